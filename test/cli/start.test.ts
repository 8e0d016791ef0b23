// `townhall start`: the first command of a new user and the call and the link that it prints.
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  inject,
  onTestFinished,
  test,
} from 'vitest';
import { listen } from '../support/local-server.ts';
import { runTownhall, townhall, type Run } from './townhall.ts';

const shell = promisify(execFile);
const hasCurl = existsSync('/usr/bin/curl');

describe('townhall start in a new folder', () => {
  let folder: string;
  const runs: Run[] = [];
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
  });
  afterEach(async () => {
    for (const run of runs.splice(0)) {
      run.process.kill('SIGKILL');
      await run.ended;
    }
    await rm(folder, { recursive: true, force: true });
  });

  /** Starts the local edition on free ports; it is killed at the end of the test. */
  function start(env: Record<string, string> = {}): Run {
    const ports = { HOST: '127.0.0.1', PORT: '0', AGENT_PORT: '0', CONSOLE_PORT: '0' };
    const run = townhall(['start'], { cwd: folder, env: { ...ports, ...env } });
    runs.push(run);
    return run;
  }

  /** A port that another server holds until the end of the test. */
  async function occupyPort(): Promise<string> {
    const otherServer = createServer();
    onTestFinished(() => void otherServer.close());
    return String((await listen(otherServer)).port);
  }

  test('prints the first password after a failed start', async () => {
    const firstStart = start({ AGENT_PORT: await occupyPort() });
    expect(await firstStart.ended).toBe(1);
    expect(firstStart.screen()).toContain('set another port with AGENT_PORT');
    await start().waitFor(/admin +admin, password \S+ \(shown only now\)/);
  });

  test('starts while its Bureau is paused', async () => {
    const firstStart = start();
    const [, adminId = '', password = ''] = await firstStart.waitFor(/admin +(\S+), password (\S+) /);
    const login = ['login', '--admin', '--admin-id', adminId, '--password-stdin'];
    expect(await runTownhall(login, { cwd: folder, input: password })).toMatchObject({ code: 0 });
    const pause = ['call', 'gateway', 'bureaus.pauseBureau', 'bureau_id=local'];
    expect(await runTownhall(pause, { cwd: folder })).toMatchObject({ code: 0 });
    firstStart.process.kill('SIGINT');
    expect(await firstStart.ended).toBe(0);
    const secondStart = start();
    await secondStart.waitFor(/is running/);
    expect(secondStart.screen()).toContain('until the Bureau local is active');
  });

  test('refuses a used console port before it creates data', async () => {
    const run = start({ CONSOLE_PORT: await occupyPort() });
    expect(await run.ended).toBe(1);
    expect(run.screen()).toContain('set another port with CONSOLE_PORT');
    expect(existsSync(join(folder, 'data'))).toBe(false);
  });

  test('refuses an invalid console port before it creates data', async () => {
    const run = start({ CONSOLE_PORT: 'many' });
    expect(await run.ended).toBe(2);
    expect(run.screen()).toContain('CONSOLE_PORT');
    expect(existsSync(join(folder, 'data'))).toBe(false);
  });

  /** Starts with the folder as the workspace of the agent, and files that the agent may not read. */
  async function startWithSecrets(): Promise<Run> {
    const masterKeyFile = join(folder, 'keys', 'sealing');
    await mkdir(join(folder, 'keys'));
    await writeFile(masterKeyFile, `${randomBytes(32).toString('base64')}\n`);
    await writeFile(join(folder, 'notes.txt'), 'for everyone');
    const run = start({
      AGENT_WORKSPACE: folder,
      TOWNHALL_MASTER_KEY_FILE: masterKeyFile,
      STORAGE_PATH: 'pictures',
    });
    await run.waitFor(/agent +http/);
    await mkdir(join(folder, 'pictures'), { recursive: true });
    await writeFile(join(folder, 'pictures', 'a.txt'), 'a picture');
    await writeFile(join(folder, 'data', 'townhall.db', 'master.key'), 'an older key');
    return run;
  }

  test('hides the secrets of the gateway from an agent in the same folder', async () => {
    const run = await startWithSecrets();
    const [, url] = await run.waitFor(/agent +(http\S+)/);
    const token = (await readFile(join(folder, 'data', 'agent', 'agent.token'), 'utf8')).trim();
    const read = async (path: string): Promise<{ status: number; text: string }> => {
      const answer = await fetch(`${url}/api/plugins/action`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ plugin_name: 'files', action_name: 'read', payload: { path } }),
      });
      return { status: answer.status, text: await answer.text() };
    };
    expect(await read('notes.txt')).toMatchObject({
      status: 200,
      text: expect.stringContaining('for everyone'),
    });
    for (const path of [
      'keys/sealing',
      'pictures/a.txt',
      'data/townhall.db/master.key',
      'data/townhall.db/townhall.pid',
      'data/local.token',
      'data/agent/agent.token',
    ]) {
      expect(await read(path), path).toMatchObject({
        status: 422,
        text: expect.stringContaining('does not exist'),
      });
    }
  });

  test('mentions the missing bubblewrap in one place', async () => {
    const run = start({ PATH: folder });
    await run.waitFor(/How do I add/);
    expect(run.screen().match(/shell off: townhall doctor/g)).toHaveLength(1);
    expect(run.screen()).not.toMatch(/^\{/m);
    expect(run.screen().match(/bwrap|sandbox/)).toBeNull();
  });

  test('refuses a workspace within the data folder', async () => {
    await mkdir(join(folder, 'data', 'townhall.db', 'media'), { recursive: true });
    const run = start({ AGENT_WORKSPACE: 'data/townhall.db/media' });
    expect(await run.ended).toBe(2);
    expect(run.screen()).toContain('name another one with --workspace');
  });
});

// The local edition uses the embedded database; PostgreSQL would add nothing here.
describe.skipIf(inject('databaseSource')?.engine === 'postgres')('a local edition', () => {
  let folder: string;
  let run: Run;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
    run = townhall(['start'], { cwd: folder, env: { PORT: '0', AGENT_PORT: '0' } });
    await run.waitFor(/How do I add/);
  });
  afterAll(async () => {
    run?.process.kill('SIGKILL');
    await run?.ended;
    await rm(folder, { recursive: true, force: true });
  });

  const gatewayUrl = (): string => /gateway +(http\S+)/.exec(run.screen())?.[1] ?? '';

  test('prints its progress before it serves', () => {
    expect(run.screen()).toMatch(
      /opening the embedded database …[\s\S]*starting the agent …[\s\S]*is running/,
    );
  });

  test.skipIf(!hasCurl)('prints a call that works as pasted', async () => {
    const [call = ''] = /curl [\s\S]*?(?=\n$)/.exec(run.screen()) ?? [];
    const { stdout } = await shell('bash', ['-c', call.replace(/^curl/, 'curl -sS --fail-with-body')], {
      cwd: folder,
    });
    const message = JSON.parse(stdout) as { parts: { text: string }[] };
    expect(message.parts.at(-1)?.text).toContain('MODELS_FILE');
  });

  test('fits its screen into ten lines of fewer than 80 columns', () => {
    const lines = run.screen().trimEnd().split('\n');
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(80);
    const screen = lines.slice(lines.findIndex((line) => line.includes('is running')));
    expect(screen.filter((line) => line !== '')).toHaveLength(10);
  });

  test('prints a link that opens the console once', async () => {
    const [link = ''] = /http\S+\/open\?code=\S+/.exec(run.screen()) ?? [];
    const { origin, searchParams } = new URL(link);
    const redeem = () =>
      fetch(`${origin}/open`, {
        method: 'POST',
        headers: { origin, 'content-type': 'application/json' },
        body: JSON.stringify({ code: searchParams.get('code') }),
      });
    const firstRedemption = await redeem();
    expect(firstRedemption.status).toBe(200);
    const { key } = (await firstRedemption.json()) as { key: string };
    const overview = await fetch(`${origin}/call/console.overview`, {
      method: 'POST',
      headers: { origin, 'content-type': 'application/json', authorization: `Bearer ${key}` },
      body: '{}',
    });
    expect(await overview.json()).toMatchObject({ agent: { state: 'connected' } });
    expect((await redeem()).ok).toBe(false);
  });

  test('stores the tokens in files readable by their owner only', async () => {
    for (const [name, prefix] of Object.entries({
      'local.token': 'th_usr_',
      'agent/agent.token': 'th_agt_',
    })) {
      const path = join(folder, 'data', name);
      expect((await stat(path)).mode & 0o777, name).toBe(0o600);
      expect(await readFile(path, 'utf8')).toMatch(new RegExp(`^${prefix}\\w+\n$`));
    }
  });

  test.each([
    ['lets commands in its folder find it at any port', () => []],
    ['accepts the local token at its own address', () => ['--url', gatewayUrl()]],
  ])('%s', async (_, flags) => {
    const words = ['models', 'list', '--jq', '.items[0].id', ...flags()];
    expect(await runTownhall(words, { cwd: folder })).toEqual({ code: 0, screen: 'local/echo\n' });
  });

  test('keeps its user token in use beside the session of an administrator', async () => {
    const [, adminId = '', password = ''] = /admin +(\S+), password (\S+) /.exec(run.screen()) ?? [];
    const login = ['login', '--admin', '--admin-id', adminId, '--password-stdin'];
    expect(await runTownhall(login, { cwd: folder, input: password })).toMatchObject({ code: 0 });
    const getMe = ['call', 'gateway', 'accounts.getMe', '--jq', '.bureau.bureau_id'];
    expect(await runTownhall(getMe, { cwd: folder })).toEqual({ code: 0, screen: 'local\n' });
    const listUsers = ['users', 'list', '--jq', '.items | length'];
    expect(await runTownhall(listUsers, { cwd: folder })).toEqual({ code: 0, screen: '1\n' });
  });

  test('creates the first administrator, who can log in', async () => {
    const [, url] = await run.waitFor(/gateway +(http\S+)/);
    const [, adminId, password] = await run.waitFor(/admin +(\S+), password (\S+) /);
    const answer = await fetch(`${url}/v1/admin/login`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ admin_id: adminId, password }),
    });
    expect(answer.status).toBe(200);
  });

  test('exits with 0 on SIGINT and restarts with the same token', async () => {
    const readToken = () => readFile(join(folder, 'data', 'local.token'), 'utf8');
    const tokenBefore = await readToken();
    run.process.kill('SIGINT');
    expect(await run.ended).toBe(0);
    run = townhall(['start'], { cwd: folder, env: { PORT: '0', AGENT_PORT: '0' } });
    await run.waitFor(/How do I add/);
    expect(await readToken()).toBe(tokenBefore);
    expect(run.screen()).toMatch(/admin +new password: \S.* admin reset/);
  });

  test('exits with 1 and the number of a used port', async () => {
    const [, port] = await run.waitFor(/gateway +http:\/\/\S+:(\d+)/);
    const secondFolder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
    onTestFinished(() => rm(secondFolder, { recursive: true, force: true }));
    const env = { PORT: port ?? '', AGENT_PORT: '0' };
    const { code, screen } = await runTownhall(['start'], { cwd: secondFolder, env });
    expect(code).toBe(1);
    expect(screen).toContain(port);
    expect(screen).not.toContain('    at ');
  });
});
