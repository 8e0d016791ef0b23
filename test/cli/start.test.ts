// The newcomer's door: one command, and what its screen says to paste.
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

test('a start that comes to nothing leaves the first password to the next', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
  const busy = createServer();
  busy.listen(0, '127.0.0.1');
  await once(busy, 'listening');
  const { port } = busy.address() as AddressInfo;
  try {
    const first = townhall(['start'], {
      cwd: folder,
      env: { HOST: '127.0.0.1', PORT: '0', AGENT_PORT: String(port) },
    });
    expect(await first.ended).toBe(1);
    expect(first.screen()).toContain('give another port with AGENT_PORT');
    const second = townhall(['start'], {
      cwd: folder,
      env: { HOST: '127.0.0.1', PORT: '0', AGENT_PORT: '0' },
    });
    await second.waitFor(/administrator +admin, password \S+ \(shown only now\)/);
    second.process.kill('SIGINT');
    expect(await second.ended).toBe(0);
  } finally {
    busy.close();
    await rm(folder, { recursive: true, force: true });
  }
});

test('keeps the secrets of the gateway from an agent that works in the same folder', async () => {
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
    const [, token] = await run.waitFor(/AGENT=(\S+)/);
    const [, url] = await run.waitFor(/agent +(http\S+)/);
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

test('refuses a workspace within the data folder of the gateway', async () => {
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

// The local edition is the embedded database; a PostgreSQL has nothing to add here.
describe.skipIf(inject('databaseSource')?.engine === 'postgres')('townhall start', () => {
  let folder: string;
  let run: Run;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-start-'));
    run = townhall(['start'], { cwd: folder, env: { PORT: '0', AGENT_PORT: '0' } });
    await run.waitFor(/Ctrl-C ends it/);
  });
  afterAll(async () => {
    run?.process.kill('SIGKILL');
    await run?.ended;
    await rm(folder, { recursive: true, force: true });
  });

  test('says what it is busy with before it serves', () => {
    expect(run.screen()).toMatch(
      /opening the embedded database …[\s\S]*starting the agent …[\s\S]*Paste these/,
    );
  });

  test.skipIf(!hasCurl)('shows calls that work as pasted', async () => {
    const lines = run.screen().split('\n');
    const calls = lines.filter((line) => line.startsWith('curl '));
    const names = lines.filter((line) => /^(TOKEN|AGENT)=/.test(line)).join('\n');
    expect(calls).toHaveLength(5);
    const answers = await Promise.all(
      calls.map(
        async (call) =>
          (await shell('bash', ['-c', `${names}\n${call.replace(/^curl/, 'curl -sS --fail-with-body')}`]))
            .stdout,
      ),
    );
    expect(JSON.parse(answers[0] ?? '')).toMatchObject({ ok: true });
    const catalog = JSON.parse(answers[1] ?? '') as { items: { id: string }[] };
    expect(catalog.items.map(({ id }) => id)).toContain('local/guide');
    const message = JSON.parse(answers[2] ?? '') as { parts: { text: string }[] };
    expect(message.parts.at(-1)?.text).toContain('MODELS_FILE');
    expect(answers[3]).toMatch(/^data: \{[\s\S]*data: \[DONE\]\n\n$/);
    expect(JSON.parse(answers[4] ?? '')).toMatchObject({ success: true, finishReason: 'stop' });
  });

  test('keeps the tokens in files for their owner alone', async () => {
    const tokens = { 'local.token': /TOKEN=(\S+)/, 'agent/agent.token': /AGENT=(\S+)/ };
    for (const [name, pattern] of Object.entries(tokens)) {
      const path = join(folder, 'data', name);
      expect((await stat(path)).mode & 0o777, name).toBe(0o600);
      expect(await readFile(path, 'utf8')).toBe(`${run.screen().match(pattern)?.[1]}\n`);
    }
  });

  test('makes the first administrator once, and one that can log in', async () => {
    const [, url] = await run.waitFor(/gateway +(http\S+)/);
    const [, adminId, password] = await run.waitFor(/administrator +(\S+), password (\S+) /);
    const answer = await fetch(`${url}/v1/admin/login`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ admin_id: adminId, password }),
    });
    expect(answer.status).toBe(200);
  });

  test('ends with 0 on an interrupt, keeps its data, and comes back with the same token', async () => {
    const before = run.screen().match(/TOKEN=(\S+)/)?.[1];
    run.process.kill('SIGINT');
    expect(await run.ended).toBe(0);
    run = townhall(['start'], { cwd: folder, env: { PORT: '0', AGENT_PORT: '0' } });
    await run.waitFor(/Ctrl-C ends it/);
    expect(run.screen().match(/TOKEN=(\S+)/)?.[1]).toBe(before);
    expect(run.screen()).not.toContain('administrator');
  });

  test('says which port is taken and ends with 1', async () => {
    const [, port] = await run.waitFor(/gateway +http:\/\/\S+:(\d+)/);
    const second = await mkdtemp(join(tmpdir(), 'townhall-start-'));
    const start = townhall(['start'], { cwd: second, env: { PORT: port ?? '', AGENT_PORT: '0' } });
    expect(await start.ended).toBe(1);
    expect(start.screen()).toContain(port);
    expect(start.screen()).not.toContain('    at ');
    await rm(second, { recursive: true, force: true });
  });
});
