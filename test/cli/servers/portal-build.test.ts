// The build of the portal, which a local edition in a checkout starts when a page is first requested.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { portalBuild } from '../../../src/cli/servers/portal-build.ts';

const index = path.join(import.meta.dirname, '../../..', 'build/docs/index.html');

describe('portalBuild', () => {
  test('builds the portal of the checkout', async () => {
    const portal = portalBuild();
    expect(portal).toBeDefined();
    await portal?.run();
    expect(existsSync(index)).toBe(true);
  });

  test('stops a running build when it is closed', async () => {
    const portal = portalBuild();
    const buildPromise = portal?.run();
    portal?.close();
    await expect(buildPromise).rejects.toThrow(/abort/i);
  });
});
