// Pages that the first request builds: what callers receive during the build, and after a failed build.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { startWorld, type World } from '../world.ts';
import { until } from '../../support/until.ts';

const folder = mkdtempSync(join(tmpdir(), 'page-build-'));
const directory = join(folder, 'pages');
const html = { accept: 'text/html' };

let openWorld: World | undefined;
afterEach(async () => {
  await openWorld?.close();
  rmSync(directory, { recursive: true, force: true });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function serve(build: () => Promise<void>): Promise<string> {
  openWorld = await startWorld({ server: { pages: [{ prefix: '/docs', directory, build }] } });
  return `${openWorld.url}/docs/`;
}

/** A build whose runs the test resolves or rejects. */
function controlledBuild(): { runs: PromiseWithResolvers<void>[]; build: () => Promise<void> } {
  const runs: PromiseWithResolvers<void>[] = [];
  const build = (): Promise<void> => {
    const run = Promise.withResolvers<void>();
    runs.push(run);
    return run.promise;
  };
  return { runs, build };
}

function writePages(): void {
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, 'index.html'), '<h1>Portal</h1>');
}

describe('pages that are built at the first request', () => {
  test('show a browser a page that reloads itself', async () => {
    const { build } = controlledBuild();
    const response = await fetch(await serve(build), { headers: html });
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '2']);
    expect(response.headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(await response.text()).toContain('http-equiv="refresh" content="2"');
  });

  test('answer a program with 503 and not_ready', async () => {
    const { build } = controlledBuild();
    const response = await fetch(await serve(build));
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '2']);
    expect(await response.json()).toMatchObject({ error: { code: 'not_ready' } });
  });

  test('are built once for many requests', async () => {
    const { runs, build } = controlledBuild();
    const url = await serve(build);
    await Promise.all([1, 2, 3].map(() => fetch(url, { headers: html })));
    expect(runs).toHaveLength(1);
    writePages();
    runs[0]?.resolve();
    await expect.poll(async () => (await fetch(url, { headers: html })).text()).toBe('<h1>Portal</h1>');
    expect(runs).toHaveLength(1);
  });

  test('report a failed build once and try it again', async () => {
    const { runs, build } = controlledBuild();
    const url = await serve(build);
    await fetch(url, { headers: html });
    runs[0]?.reject(new Error('a broken link'));
    await until(() => JSON.stringify(openWorld?.lines).includes('a broken link'), 'the logged error');
    expect(await (await fetch(url)).json()).toMatchObject({
      error: { message: expect.stringContaining('npm run docs') },
    });
    await fetch(url, { headers: html });
    expect(runs).toHaveLength(2);
  });

  test('are served without a build where the folder exists', async () => {
    const { runs, build } = controlledBuild();
    writePages();
    expect(await (await fetch(await serve(build))).text()).toBe('<h1>Portal</h1>');
    expect(runs).toHaveLength(0);
  });
});
