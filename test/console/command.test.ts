// `townhall console`: its output, its access rules and its exit.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Run, townhall } from '../cli/townhall.ts';
import { bearer, redeem } from '../support/console.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-console-command-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe('townhall console --json', () => {
  let run: Run;
  let url: string;
  beforeAll(async () => {
    run = townhall(['console', '--json', '--port', '0'], { cwd: folder });
    const [line] = await run.waitFor(/^\{.*\}$/m);
    ({ url } = JSON.parse(line) as { url: string });
  });
  afterAll(() => run.process.kill('SIGKILL'));

  test('prints the address with a one-time code', () => {
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/open\?code=[0-9A-Za-z]{22}$/);
  });

  test('serves its scripts without types', async () => {
    const script = await fetch(new URL('/main.js', url));
    expect([script.status, script.headers.get('content-type')]).toEqual([
      200,
      'text/javascript; charset=utf-8',
    ]);
    expect(await script.text()).not.toMatch(/import type|: HTMLElement/);
  });

  test('reports a missing agent on its pages', async () => {
    const login = await redeem(url);
    expect(login.status).toBe(200);
    const { key } = (await login.json()) as { key: string };
    const overview = await fetch(new URL('/call/console.overview', url), {
      method: 'POST',
      headers: { ...bearer(key), origin: new URL(url).origin, 'content-type': 'application/json' },
      body: '{}',
    });
    expect(await overview.json()).toMatchObject({
      agent: { state: 'refused', message: expect.stringContaining('agent.token') },
    });
  });

  test('exits with 1 when its port is in use', async () => {
    const secondRun = townhall(['console', '--port', new URL(url).port], { cwd: folder });
    expect(await secondRun.ended).toBe(1);
    expect(secondRun.screen()).toContain('is in use');
  });

  test('prints only the address and the missing agent until SIGINT', async () => {
    run.process.kill('SIGINT');
    expect(await run.ended).toBe(0);
    // Nothing else, such as a warning of Node.js.
    expect(run.screen().trimEnd().split('\n')).toEqual([
      JSON.stringify({ url }),
      expect.stringMatching(/^The agent's token is not at .*agent\.token yet: start the agent/),
    ]);
  });
});

describe('townhall console', () => {
  test('prints how to use the address', async () => {
    const run = townhall(['console', '--port', '0'], {
      cwd: folder,
      env: { TOWNHALL_AGENT_URL: 'http://127.0.0.1:1' },
    });
    await run.waitFor(/Ctrl-C ends it/);
    expect(run.screen()).toContain('for the agent at http://127.0.0.1:1\n');
    expect(run.screen()).toMatch(
      /It works once, within 10 minutes:\n\n {2}http:\/\/127\.0\.0\.1:\d+\/open\?code=/,
    );
    run.process.kill('SIGTERM');
    expect(await run.ended).toBe(0);
  });

  test('lists its options in the help', async () => {
    const help = townhall(['console', '--help'], { cwd: folder });
    expect(await help.ended).toBe(0);
    expect(help.screen()).toMatch(
      /--open[\s\S]*--json[\s\S]*--port[\s\S]*--agent-url[\s\S]*--data-dir[\s\S]*--token-file/,
    );
  });

  test.each([[['--agent-url', 'http://example.com']], [['--port', 'x']], [['--nothing']], [['word']]])(
    'refuses %j',
    async (words) => {
      expect(await townhall(['console', ...words], { cwd: folder }).ended).toBe(2);
    },
  );
});
