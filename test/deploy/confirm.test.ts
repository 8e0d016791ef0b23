// The end of a deployment, when the new version serves already.
import { expect, test } from 'vitest';
import type { CityFolder, CityState } from '../../src/deploy/index.ts';
import type { Generation } from '../../src/deploy/supervisor/generation.ts';
import { confirm, currentOf, type SupervisorData } from '../../src/deploy/supervisor/transitions.ts';
import { silentLog } from '../support/template.ts';

test('a deployment is confirmed even if old versions cannot be removed', async () => {
  const candidate = { version: '0.1.2' } as Generation;
  const warnings: string[] = [];
  const supervisor = {
    folder: {
      writeState: async () => {},
      // Six versions, and five are kept (maxVersions).
      versions: async () => ['0.1.0', '0.1.1', '0.1.2', 'a', 'b', 'c'],
      removeVersion: () => Promise.reject(new Error('EACCES')),
    } as unknown as CityFolder,
    log: { ...silentLog, warn: (_fields: object, message: string) => void warnings.push(message) },
    state: { phase: 'switched', candidate, before: undefined, isExclusive: false },
    draining: new Set(),
  } as unknown as SupervisorData;
  await confirm(supervisor, { version: '0.1.2', previous: '0.1.1' } as CityState);
  expect(currentOf(supervisor.state)).toBe(candidate);
  expect(warnings).toEqual(['old versions could not be removed']);
});
