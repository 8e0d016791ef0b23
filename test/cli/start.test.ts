// `townhall start`: the first command of a new user and the call and the link that it prints.
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { townhall } from './townhall.ts';
import type { Run } from './townhall.ts';

const shell = promisify(execFile);
const hasCurl = existsSync('/usr/bin/curl');

test('townhall start prints the first password after a failed start', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
  const otherServer = createServer();
  otherServer.listen(0, '127.0.0.1');
  await once(otherServer, 'listening');
  const { port } = otherServer.address() as AddressInfo;
  try {
    const firstStart = townhall(['start'], {
      cwd: folder,
      env: { HOST: '127.0.0.1', PORT: '0', AGENT_PORT: String(port) },
    });
    expect(await firstStart.ended).toBe(1);
    expect(firstStart.screen()).toContain('set another port with AGENT_PORT');
    const secondStart = townhall(['start'], {
      cwd: folder,
      env: { HOST: '127.0.0.1', PORT: '0', AGENT_PORT: '0' },
    });
    await secondStart.waitFor(/admin +admin, password \S+ \(shown only now\)/);
    secondStart.process.kill('SIGINT');
    expect(await secondStart.ended).toBe(0);
  } finally {
    otherServer.close();
    await rm(folder, { recursive: true, force: true });
  }
});

test('townhall start refuses a wrong console port before it opens data', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
  const otherServer = createServer();
  otherServer.listen(0, '127.0.0.1');
  await once(otherServer, 'listening');
  const { port } = otherServer.address() as AddressInfo;
  const start = (consolePort: string) =>
    townhall(['start'], { cwd: folder, env: { PORT: '0', AGENT_PORT: '0', CONSOLE_PORT: consolePort } });
  try {
    const secondStart = start(String(port));
    expect(await secondStart.ended).toBe(1);
    expect(secondStart.screen()).toContain('set another port with CONSOLE_PORT');
    const result = start('many');
    expect(await result.ended).toBe(2);
    expect(result.screen()).toContain('CONSOLE_PORT');
    expect(existsSync(join(folder, 'data'))).toBe(false);
  } finally {
    otherServer.close();
    await rm(folder, { recursive: true, force: true });
  }
});

test('townhall start hides the gateway’s secrets from an agent in the same folder', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
  const masterKeyFile = join(folder, 'keys', 'sealing');
  await mkdir(join(folder, 'keys'));
  await writeFile(masterKeyFile, `${randomBytes(32).toString('base64')}\n`);
  await writeFile(join(folder, 'notes.txt'), 'for everyone');
  const run = townhall(['start'], {
    cwd: folder,
    env: {
      HOST: '127.0.0.1',
      PORT: '0',
      AGENT_PORT: '0',
      AGENT_WORKSPACE: folder,
      TOWNHALL_MASTER_KEY_FILE: masterKeyFile,
      STORAGE_PATH: 'pictures',
    },
  });
  try {
    const [, url] = await run.waitFor(/agent +(http\S+)/);
    const token = (await readFile(join(folder, 'data', 'agent', 'agent.token'), 'utf8')).trim();
    await mkdir(join(folder, 'pictures'), { recursive: true });
    await writeFile(join(folder, 'pictures', 'a.txt'), 'a picture');
    await writeFile(join(folder, 'data', 'townhall.db', 'master.key'), 'an older key');
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
  } finally {
    run.process.kill('SIGINT');
    await run.ended;
    await rm(folder, { recursive: true, force: true });
  }
});

test('townhall start without bubblewrap says so in one place', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
  const run = townhall(['start'], {
    cwd: folder,
    env: { PORT: '0', AGENT_PORT: '0', CONSOLE_PORT: '0', PATH: folder },
  });
  try {
    await run.waitFor(/How do I add/);
    expect(run.screen().match(/shell off: townhall doctor/g)).toHaveLength(1);
    expect(run.screen()).not.toMatch(/^\{/m);
    expect(run.screen().match(/bwrap|sandbox/)).toBeNull();
  } finally {
    run.process.kill('SIGKILL');
    await run.ended;
    await rm(folder, { recursive: true, force: true });
  }
});

test('townhall start refuses a workspace within the data folder', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
  await mkdir(join(folder, 'data', 'townhall.db', 'media'), { recursive: true });
  const run = townhall(['start'], {
    cwd: folder,
    env: { HOST: '127.0.0.1', PORT: '0', AGENT_PORT: '0', AGENT_WORKSPACE: 'data/townhall.db/media' },
  });
  try {
    await run.waitFor(/Ctrl-C ends it/).catch(() => {});
    expect(run.screen()).toContain('name another one with --workspace');
    expect(await run.ended).toBe(2);
  } finally {
    run.process.kill('SIGKILL');
    await run.ended;
    await rm(folder, { recursive: true, force: true });
  }
});

// The local edition uses the embedded database; PostgreSQL would add nothing here.
describe.skipIf(inject('databaseSource')?.engine === 'postgres')('townhall start', () => {
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

  test('prints a link that opens the console signed in, once', async () => {
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
    expect(await overview.json()).toMatchObject({ agent: { state: 'here' } });
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
    const list = townhall(['models', 'list', '--jq', '.items[0].id', ...flags()], { cwd: folder });
    expect(await list.ended).toBe(0);
    expect(list.screen()).toBe('local/echo\n');
  });

  test('keeps its user token in use beside the session of an administrator', async () => {
    const [, adminId = '', password = ''] = /admin +(\S+), password (\S+) /.exec(run.screen()) ?? [];
    const words = ['login', '--admin', '--admin-id', adminId, '--password-stdin'];
    expect(await townhall(words, { cwd: folder, input: password }).ended).toBe(0);
    const me = townhall(['call', 'gateway', 'accounts.getMe', '--jq', '.bureau.bureau_id'], { cwd: folder });
    expect(await me.ended).toBe(0);
    const users = townhall(['users', 'list', '--jq', '.items | length'], { cwd: folder });
    expect(await users.ended).toBe(0);
    expect([me.screen(), users.screen()]).toEqual(['local\n', '1\n']);
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

  test('exits with 1 for a taken port, which it names', async () => {
    const [, port] = await run.waitFor(/gateway +http:\/\/\S+:(\d+)/);
    const secondFolder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
    const start = townhall(['start'], { cwd: secondFolder, env: { PORT: port ?? '', AGENT_PORT: '0' } });
    expect(await start.ended).toBe(1);
    expect(start.screen()).toContain(port);
    expect(start.screen()).not.toContain('    at ');
    await rm(secondFolder, { recursive: true, force: true });
  });
});
