// The control socket, by which commands call the server that holds the embedded database.
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { callControl, serveControl, type Control } from '../../src/kernel/control.ts';
import { Problem } from '../../src/kernel/problem.ts';
import { silentLog } from '../support/template.ts';

let folder: string;
let path: string;
let control: Control | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'townhall-control-'));
  path = join(folder, 'control.sock');
});

afterEach(async () => {
  await control?.close();
  control = undefined;
  rmSync(folder, { recursive: true, force: true });
});

const handlers = {
  echo: async (input: unknown) => ({ received: input }),
  nothing: async () => undefined,
  refuse: async () => {
    throw new Problem('conflict', 'conflict', 'It is so already.');
  },
  break: async () => {
    throw new Error('a secret detail');
  },
};

describe('the control socket', () => {
  it('can be opened by its owner only', async () => {
    control = await serveControl(path, handlers, { log: silentLog });
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  it('carries any JSON value both ways', async () => {
    control = await serveControl(path, handlers, { log: silentLog });
    const input = { text: 'line\nbreak ü', list: [1, null] };
    expect(await callControl(path, 'echo', input)).toEqual({ received: input });
    expect(await callControl(path, 'nothing', undefined)).toBeNull();
    const longText = 'x'.repeat(1_000_000);
    expect(await callControl(path, 'echo', longText)).toEqual({ received: longText });
  });

  it('answers concurrent calls', async () => {
    control = await serveControl(path, handlers, { log: silentLog });
    expect(await Promise.all([1, 2, 3].map((n) => callControl(path, 'echo', n)))).toEqual(
      [1, 2, 3].map((n) => ({ received: n })),
    );
  });

  it('refuses unknown names and names of Object.prototype', async () => {
    control = await serveControl(path, handlers, { log: silentLog });
    for (const name of ['unknown', 'constructor', '__proto__', 'toString']) {
      await expect(callControl(path, name, null)).rejects.toMatchObject({
        name: 'Problem',
        status: 404,
        message: `The server has no control "${name}".`,
      });
    }
  });

  it('returns a Problem unchanged and hides other errors', async () => {
    control = await serveControl(path, handlers, { log: silentLog });
    await expect(callControl(path, 'refuse', null)).rejects.toMatchObject({
      kind: 'conflict',
      code: 'conflict',
      message: 'It is so already.',
    });
    const failure = await callControl(path, 'break', null).catch((error: unknown) => error);
    expect(failure).toMatchObject({ kind: 'internal', code: 'internal_error' });
    expect(String(failure)).not.toContain('secret');
  });

  it('logs other errors under the name that the log view reads', async () => {
    const errors: unknown[] = [];
    const log = { ...silentLog, error: (fields: object) => void errors.push(fields) };
    control = await serveControl(path, handlers, { log });
    await expect(callControl(path, 'break', null)).rejects.toThrow('its log has the reason');
    expect(errors).toEqual([{ err: expect.objectContaining({ message: 'a secret detail' }) }]);
  });

  it('answers 400 to a malformed line', async () => {
    control = await serveControl(path, handlers, { log: silentLog });
    for (const line of ['not json', '[]', '{"name":1}']) {
      const socket = connect(path);
      socket.write(`${line}\n`);
      const [answer] = (await once(socket, 'data')) as [Buffer];
      expect(JSON.parse(answer.toString())).toMatchObject({ ok: false, error: { kind: 'bad_request' } });
      socket.destroy();
    }
  });

  it('sends heartbeats while a handler runs', async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    control = await serveControl(path, { wait: () => promise }, { log: silentLog, heartbeatMs: 10 });
    const socket = connect(path);
    socket.write('{"name":"wait"}\n');
    const [firstPiece] = (await once(socket, 'data')) as [Buffer];
    expect(firstPiece.toString()).toMatch(/^ +$/);
    const call = callControl(path, 'wait', null);
    resolve('the result');
    expect(await call).toBe('the result');
    socket.destroy();
  });

  it('ends a call when the server is silent', async () => {
    const silentServer = createServer().listen(path);
    await once(silentServer, 'listening');
    await expect(callControl(path, 'echo', 1, { silenceMs: 50 })).rejects.toThrow(
      `The server at ${path} has sent nothing for 0.05 seconds`,
    );
    silentServer.close();
  });

  it('disappears with its server', async () => {
    control = await serveControl(path, handlers, { log: silentLog });
    await control.close();
    control = undefined;
    expect(existsSync(path)).toBe(false);
    await expect(callControl(path, 'echo', 1)).rejects.toMatchObject({ status: 503, code: 'not_ready' });
  });

  it('replaces the socket of a killed server', async () => {
    const script =
      "require('node:net').createServer().listen(process.argv[1], () => console.log('listening'))";
    const child = spawn(process.execPath, ['-e', script, path], { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(child.stdout, 'data');
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(existsSync(path)).toBe(true);
    await expect(callControl(path, 'echo', 1)).rejects.toMatchObject({ code: 'not_ready' });
    control = await serveControl(path, handlers, { log: silentLog });
    expect(await callControl(path, 'echo', 1)).toEqual({ received: 1 });
  });

  it('does not replace the socket of a running server', async () => {
    control = await serveControl(path, handlers, { log: silentLog });
    await expect(serveControl(path, handlers, { log: silentLog })).rejects.toThrow(
      'A running server listens',
    );
    expect(await callControl(path, 'echo', 1)).toEqual({ received: 1 });
  });

  it('does not replace a file that is not a socket', async () => {
    writeFileSync(path, 'mine');
    await expect(serveControl(path, handlers, { log: silentLog })).rejects.toThrow(
      `${path} exists and is not a socket.`,
    );
    expect(readFileSync(path, 'utf8')).toBe('mine');
  });
});
