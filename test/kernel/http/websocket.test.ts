// The limits of a WebSocket, over real sockets and with a scripted contract.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { connect } from 'node:net';
import { WebSocket as SlowClient } from 'ws';
import { afterEach, describe, expect, test } from 'vitest';
import type { Contract } from '../../../src/kernel/contract/contract.ts';
import type { AnyReply } from '../../../src/kernel/contract/reply.ts';
import type { ContractRequest } from '../../../src/kernel/contract/request.ts';
import { createBodyBudget } from '../../../src/kernel/http/body/budget.ts';
import { createWebSockets, type SocketLimits } from '../../../src/kernel/http/websocket.ts';
import { createLog } from '../../../src/kernel/log.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';
import { listen } from '../../support/local-server.ts';

const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

type Dispatch = (signal: AbortSignal, request: ContractRequest) => AsyncIterable<{ data: unknown }>;

/** A server where each message of a client is a call of `dispatch`. `admit` is called during each handshake. */
async function start(dispatch: Dispatch, limits: Partial<SocketLimits>, admit = (_: IncomingMessage) => {}) {
  const logLines: Record<string, unknown>[] = [];
  const contract = {
    authenticate: async () => {},
    dispatch: async (request: ContractRequest): Promise<AnyReply> => ({
      status: 200,
      events: dispatch(request.signal, request),
    }),
  } as unknown as Contract;
  const sockets = createWebSockets({
    contract,
    routes: [
      {
        paths: ['/calls'],
        maxMessageBytes: 1_000,
        open: () => ({ read: (body) => ({ body }), observe() {}, close() {} }),
      },
    ],
    surface: 'gateway',
    limits,
    origins: new Set(),
    log: createLog({
      level: 'info',
      redactor: createRedactor(),
      write: (line) => void logLines.push(JSON.parse(line) as Record<string, unknown>),
    }),
    clock: { monotonicMs: () => performance.now() },
    budget: createBodyBudget({ perCaller: 1e6, total: 1e6 }),
    addressOf: () => 'test',
    callerOf: () => null,
    admit,
  });
  const server = createServer({ shouldUpgradeCallback: (message) => sockets.handles(message) });
  server.on('upgrade', (message, socket, head) => sockets.upgrade(message, socket, head));
  servers.push(server);
  const { port } = await listen(server);
  return { port, sockets, logLines };
}

async function open(port: number) {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/calls`);
  const messages: Record<string, unknown>[] = [];
  socket.addEventListener('message', ({ data }) =>
    messages.push(JSON.parse(data as string) as Record<string, unknown>),
  );
  const closeCode = new Promise<number>((resolve) =>
    socket.addEventListener('close', ({ code }) => resolve(code), { once: true }),
  );
  await new Promise((resolve) => socket.addEventListener('open', resolve, { once: true }));
  return { socket, messages, closeCode };
}

const handshake = [
  'GET /calls HTTP/1.1',
  'Host: a',
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  `Sec-WebSocket-Key: ${Buffer.alloc(16, 1).toString('base64')}`,
  '\r\n',
].join('\r\n');

/** The answer to a handshake; empty if the server disconnects. */
async function shakeHands(port: number): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.write(handshake);
  const { promise, resolve } = Promise.withResolvers<string>();
  socket.once('data', (bytes) => resolve(bytes.toString()));
  socket.once('close', () => resolve(''));
  return promise;
}

/** A call that runs until it is aborted. */
async function* endlessCall(signal: AbortSignal): AsyncGenerator<{ data: unknown }> {
  yield { data: { type: 'start' } };
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}

/** An endless call, and a promise that resolves when its signal is aborted. */
function watchCall(): { dispatch: Dispatch; abortion: Promise<void> } {
  const { promise: abortion, resolve } = Promise.withResolvers<void>();
  async function* dispatch(signal: AbortSignal): AsyncGenerator<{ data: unknown }> {
    signal.addEventListener('abort', () => resolve(), { once: true });
    yield* endlessCall(signal);
  }
  return { dispatch, abortion };
}

async function* shortCall(): AsyncGenerator<{ data: unknown }> {
  yield { data: { type: 'done' } };
}

describe('a socket', () => {
  test('is closed when it is idle', async () => {
    const { port } = await start(shortCall, { idleMs: 20 });
    expect(await (await open(port)).closeCode).toBe(1000);
  });

  test('is closed when it is too old, after its running call', async () => {
    const gate = Promise.withResolvers<void>();
    async function* gatedCall(): AsyncGenerator<{ data: unknown }> {
      yield { data: { type: 'start' } };
      await gate.promise;
      yield { data: { type: 'done' } };
    }
    const { port } = await start(gatedCall, { ageMs: 500 });
    const { socket, messages, closeCode } = await open(port);
    socket.send('{}');
    await expect.poll(() => messages.length).toBe(1);
    const idleSocket = await open(port);
    expect(await idleSocket.closeCode).toBe(1001);
    gate.resolve();
    expect(await closeCode).toBe(1001);
    expect(messages).toMatchObject([
      { type: 'start' },
      { type: 'done' },
      { type: 'error', error: { code: 'websocket_connection_limit_reached' } },
    ]);
  });

  test('is closed when too many messages wait', async () => {
    const { port } = await start(endlessCall, { queueLength: 2 });
    const { socket, closeCode } = await open(port);
    for (let count = 0; count < 5; count += 1) socket.send('{}');
    expect(await closeCode).toBe(1008);
  });

  test('is not counted when its client leaves during the handshake', async () => {
    let leavesDuringHandshake = false;
    const { port, sockets } = await start(endlessCall, { perCaller: 2 }, ({ socket }) => {
      if (leavesDuringHandshake) socket.destroy();
    });
    const firstSocket = await open(port);
    leavesDuringHandshake = true;
    expect(await shakeHands(port)).toBe('');
    leavesDuringHandshake = false;
    // The second of two sockets opens, so the client that left is not counted; the third is beyond the limit.
    const secondSocket = await open(port);
    expect(await shakeHands(port)).toContain(' 429 ');
    sockets.close(0);
    await Promise.all([firstSocket.closeCode, secondSocket.closeCode]);
  });

  test('is closed for a binary message', async () => {
    const { port } = await start(shortCall, {});
    const { socket, closeCode } = await open(port);
    socket.send(Buffer.from('{}'));
    expect(await closeCode).toBe(1003);
  });

  test('is disconnected when it answers no ping', async () => {
    const { dispatch, abortion } = watchCall();
    const { port } = await start(dispatch, { heartbeatMs: 20 });
    const socket = connect(port, '127.0.0.1');
    const disconnection = new Promise((resolve) => socket.once('close', resolve));
    socket.write(handshake);
    await new Promise((resolve) => socket.once('data', resolve));
    // A masked text frame with `{}`; pings stay without an answer.
    socket.write(Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x7b, 0x7d]));
    socket.resume();
    await disconnection;
    await expect(abortion).resolves.toBeUndefined();
  });

  test('stays open while its client reads a large event slowly', async () => {
    const text = 'é'.repeat(12 * 2 ** 20);
    async function* largeCall(): AsyncGenerator<{ data: unknown }> {
      yield { data: { text } };
    }
    const { port } = await start(largeCall, { stallMs: 1_000 });
    const { promise: received, resolve } = Promise.withResolvers<string>();
    const client = new SlowClient(`ws://127.0.0.1:${port}/calls`);
    client.once('message', (data: Buffer) => resolve(data.toString()));
    client.once('close', (code: number) => resolve(`closed with ${code}`));
    await once(client, 'open');
    const pauseTimer = setInterval(() => {
      client.pause();
      setTimeout(() => client.resume(), 150);
    }, 160);
    client.send('{}');
    const message = await received;
    clearInterval(pauseTimer);
    expect(message.slice(0, 100)).toBe(JSON.stringify({ text }).slice(0, 100));
    client.terminate();
  });

  test('is closed and its call aborted when the server stops', async () => {
    const { dispatch, abortion } = watchCall();
    const { port, sockets } = await start(dispatch, {});
    const { socket, messages, closeCode } = await open(port);
    socket.send('{}');
    await expect.poll(() => messages.length).toBe(1);
    sockets.close(0);
    await expect(abortion).resolves.toBeUndefined();
    expect(await closeCode).toBe(1001);
  });
});

describe('the log line of a call', () => {
  /** Fails like a provider's stream when its signal is aborted. */
  async function* abortableCall(signal: AbortSignal): AsyncGenerator<{ data: unknown }> {
    yield* endlessCall(signal);
    throw new Error('The stream was aborted.');
  }

  async function callUntilFirstEvent(port: number) {
    const client = await open(port);
    client.socket.send('{}');
    await expect.poll(() => client.messages.length).toBe(1);
    return client;
  }

  test('has the tokens of its note', async () => {
    async function* notedCall(_signal: AbortSignal, request: ContractRequest) {
      request.note({ model: 'acme/ok', tokens: { input: 3, output: 2 } });
      yield { data: { type: 'done' } };
    }
    const { port, logLines } = await start(notedCall, {});
    const { socket } = await callUntilFirstEvent(port);
    await expect
      .poll(() => logLines)
      .toMatchObject([{ msg: 'socket call', model: 'acme/ok', inputTokens: 3, outputTokens: 2 }]);
    socket.close();
  });

  test('has the status of the error that its client received', async () => {
    const { port, sockets, logLines } = await start(abortableCall, {});
    const { messages, closeCode } = await callUntilFirstEvent(port);
    sockets.close(0);
    await closeCode;
    expect(messages[1]).toMatchObject({ status: 503, error: { code: 'draining' } });
    expect(logLines).toMatchObject([{ msg: 'socket call', status: 503, code: 'draining' }]);
  });

  test('has no error when its client left', async () => {
    const { port, logLines } = await start(abortableCall, {});
    const { socket } = await callUntilFirstEvent(port);
    socket.close();
    await expect.poll(() => logLines).toMatchObject([{ msg: 'socket call', status: 200, clientGone: true }]);
  });
});
