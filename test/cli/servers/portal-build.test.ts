// The build of the portal, which a local edition in a checkout starts when a page is first requested.
import { existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { portalBuild } from '../../../src/cli/servers/portal-build.ts';

const folder = path.join(import.meta.dirname, '../../..', 'build');
const index = path.join(folder, 'docs/index.html');
// Written at the end of a build; without it the next build does not count the portal as current.
const stamp = path.join(folder, 'docs.stamp');

describe('portalBuild', () => {
  test('builds the portal of the checkout', async () => {
    const portal = portalBuild();
    expect(portal).toBeDefined();
    rmSync(stamp, { force: true });
    await portal?.run();
    expect([existsSync(index), existsSync(stamp)]).toEqual([true, true]);
  });

  test('stops a running build when it is closed', async () => {
    const portal = portalBuild();
    const buildPromise = portal?.run();
    portal?.close();
    await expect(buildPromise).rejects.toThrow(/abort/i);
  });
});
