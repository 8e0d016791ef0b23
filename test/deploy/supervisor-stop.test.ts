// A stop request during the start of a supervisor.
import { existsSync } from 'node:fs';
import type * as fileSystem from 'node:fs/promises';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { cityFolder, startSupervisor } from '../../src/deploy/index.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { callControl } from '../../src/kernel/control.ts';
import { silentLog } from '../../src/kernel/log.ts';

const files = vi.hoisted(() => ({
  beforeChmod: async (_path: string): Promise<void> => undefined,
}));
vi.mock('node:fs/promises', async (importOriginal) => {
  const original = await importOriginal<typeof fileSystem>();
  return {
    ...original,
    chmod: async (path: string, mode: number) => {
      await files.beforeChmod(path);
      await original.chmod(path, mode);
    },
  };
});

test('stops by a request that arrives before the start is complete', async () => {
  const folder = cityFolder(await mkdtemp(join(tmpdir(), 'th-stop-')));
  onTestFinished(() => rm(folder.project, { recursive: true, force: true }));
  await folder.make();
  let stopAnswer: unknown;
  files.beforeChmod = async (path) => {
    if (path === folder.socket) stopAnswer = await callControl(path, 'stop', null);
  };
  const supervisor = await startSupervisor({
    folder,
    clock: systemClock,
    log: silentLog,
    write: () => undefined,
    pid: process.pid,
  });
  expect(stopAnswer).toBeNull();
  // Starting a version now would leave its gateway without a supervisor.
  const runner = { command: join(folder.project, 'missing'), arguments: [] };
  const state = { host: '127.0.0.1', port: 0, url: 'http://127.0.0.1' };
  await supervisor.resume(
    { version: '1', runner, env: {} },
    { ...state, cityId: 'city_1', name: 'Bee', baseUrl: state.url, version: '1', previous: null },
  );
  await supervisor.stopped;
  expect(existsSync(folder.pidFile)).toBe(false);
  expect(existsSync(folder.socket)).toBe(false);
});
