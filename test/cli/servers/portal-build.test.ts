// The build of the portal that a local edition in a checkout starts at the first request of a page.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { portalBuild } from '../../../src/cli/servers/portal-build.ts';

const root = path.join(import.meta.dirname, '../../..');

test('the portal of the checkout is built', async () => {
  const portal = portalBuild();
  await portal?.run();
  expect(existsSync(path.join(root, 'build/docs/index.html'))).toBe(true);
});

test('a stop of the server ends a running build', async () => {
  const portal = portalBuild();
  const buildPromise = portal?.run();
  portal?.close();
  await expect(buildPromise).rejects.toThrow(/abort/i);
});
