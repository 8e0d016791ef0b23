// Several listeners of one server, its shutdown in steps, and the compilation of its validators.
import { mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { contractOf, openSocket, startWorld, type World } from '../world.ts';
import { listen } from '../../support/local-server.ts';
import { until } from '../../support/until.ts';

let world: World | undefined;
afterEach(async () => {
  await world?.close();
  world = undefined;
});

function get(socketPath: string): Promise<number> {
  return new Promise((resolve, reject) => {
    request({ socketPath, path: '/health', agent: false, headers: { host: 'x' } }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    })
      .on('error', reject)
      .end();
  });
}

describe('additional listeners', () => {
  test('serve the same server and close with it', async () => {
    world = await startWorld();
    const folder = await mkdtemp(join(tmpdir(), 'townhall-listener-'));
    const path = join(folder, 'server.sock');
    await expect(world.server.listen({ path, url: 'http://server.test' })).resolves.toMatchObject({
      url: 'http://server.test',
    });
    expect(await get(path)).toBe(200);
    expect((await fetch(`${world.url}/health`)).status).toBe(200);
    await world.server.close();
    await expect(get(path)).rejects.toThrow(/ENOENT|ECONNREFUSED/);
    await rm(folder, { recursive: true, force: true });
  });

  test('reject an unavailable address without affecting the others', async () => {
    world = await startWorld();
    const otherServer = createServer();
    const { port } = await listen(otherServer);
    await expect(world.server.listen({ host: '127.0.0.1', port })).rejects.toThrow('EADDRINUSE');
    expect((await fetch(`${world.url}/health`)).status).toBe(200);
    await new Promise((resolve) => otherServer.close(resolve));
  });
});

describe('close', () => {
  test('answers open connections and refuses new ones while it lingers', async () => {
    world = await startWorld();
    const socket = await openSocket(world.port);
    let answer = '';
    socket.on('data', (piece: Buffer) => (answer += piece.toString('latin1')));
    socket.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n');
    await until(() => answer.includes('HTTP/1.1 200'), 'the first answer');
    answer = '';
    const closePromise = world.server.close({ lingerMs: 10_000 });
    await expect(fetch(`http://127.0.0.1:${world.port}/health`)).rejects.toThrow('fetch failed');
    socket.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n');
    await until(() => socket.closed, 'the close');
    expect(answer).toContain('HTTP/1.1 200');
    expect(answer).toMatch(/connection: close/i);
    await closePromise;
  });

  test('answers one more request after a stream', async () => {
    const gate = Promise.withResolvers<void>();
    world = await startWorld({
      handlers: {
        'open.stream': async () => ({
          status: 200,
          events: (async function* () {
            yield { data: { n: 1 } };
            await gate.promise;
            yield { data: { n: 2 } };
          })(),
        }),
      },
    });
    const socket = await openSocket(world.port);
    let answer = '';
    socket.on('data', (piece: Buffer) => (answer += piece.toString('latin1')));
    socket.write('GET /v1/open/stream HTTP/1.1\r\nhost: x\r\n\r\n');
    await until(() => answer.includes('"n":1'), 'the first event');
    expect(answer).toMatch(/connection: keep-alive/i);
    const idleSocket = await openSocket(world.port);
    const closePromise = world.server.close({ lingerMs: 1_000 });
    // A connection that never sent a request closes once the server stops lingering.
    await until(() => idleSocket.closed, 'the end of lingering');
    gate.resolve();
    await until(() => answer.endsWith('0\r\n\r\n'), 'the end of the stream');
    answer = '';
    socket.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n');
    await until(() => socket.closed, 'the close');
    expect(answer).toContain('HTTP/1.1 200');
    expect(answer).toMatch(/connection: close/i);
    await closePromise;
  });

  test('accepts connections during its notice period', async () => {
    world = await startWorld();
    let isOver = false;
    const closePromise = world.server.close({ noticeMs: 2_500 }).then(() => (isOver = true));
    const answer = await fetch(`${world.url}/health`);
    expect(answer.status).toBe(200);
    expect(answer.headers.get('connection')).toBe('close');
    expect(isOver).toBe(false);
    await closePromise;
    await expect(fetch(`${world.url}/health`)).rejects.toThrow('fetch failed');
  });

  test('serves WebSockets during its notice period', async () => {
    const path = '/v1/open/echo';
    const route = {
      paths: [path],
      maxMessageBytes: 1_000,
      open: () => ({ read: (body: Record<string, unknown>) => ({ body }), observe() {}, close() {} }),
    };
    world = await startWorld({ server: { sockets: [route] } });
    const { port } = world;
    const open = async () => {
      const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`);
      const closeCode = new Promise<number>((resolve) =>
        socket.addEventListener('close', ({ code }) => resolve(code), { once: true }),
      );
      await new Promise((resolve) => socket.addEventListener('open', resolve, { once: true }));
      return { socket, closeCode };
    };
    const earlySocket = await open();
    const closePromise = world.server.close({ noticeMs: 1_500 });
    const lateSocket = await open();
    expect(earlySocket.socket.readyState).toBe(WebSocket.OPEN);
    // 1001: the server closes both at the end of the notice period.
    expect(await Promise.all([earlySocket.closeCode, lateSocket.closeCode])).toEqual([1001, 1001]);
    await closePromise;
  });

  test('closes a connection without a request once it stops lingering', async () => {
    world = await startWorld();
    const socket = await openSocket(world.port);
    await world.server.close({ lingerMs: 100 });
    await until(() => socket.closed, 'the close');
    expect(world.server.inFlight()).toBe(0);
  });
});

describe('the compilation of validators', () => {
  const warmUpMs = 500;
  async function startCounting(): Promise<{ compilations: () => number }> {
    let compilations = 0;
    const warmUp = async (): Promise<void> => void (compilations += 1);
    world = await startWorld({
      server: { contract: { ...contractOf(), warm: warmUp }, timeouts: { warmUpMs } },
    });
    return { compilations: () => compilations };
  }

  test('begins after the server listens', async () => {
    const { compilations } = await startCounting();
    expect(compilations()).toBe(0);
    await until(() => compilations() === 1, 'the compilation of the validators');
  });

  test('does not begin after the server was closed', async () => {
    const { compilations } = await startCounting();
    await world?.close();
    await new Promise((resolve) => setTimeout(resolve, 2 * warmUpMs));
    expect(compilations()).toBe(0);
  });
});
