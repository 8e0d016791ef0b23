// Writing event streams and bytes: heartbeats, slow readers, and clients that disconnect.
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { afterEach, describe, expect, test } from 'vitest';
import { type StreamOutcome, writeContent, writeEvents } from '../../../src/kernel/http/sse.ts';
import { openSocket } from '../world.ts';
import { listen } from '../../support/local-server.ts';
import { until } from '../../support/until.ts';
import { sendBytes } from '../../support/raw-http.ts';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

/** A server whose answers the function writes; resolves to its port. */
async function serve(write: (response: ServerResponse) => Promise<unknown>): Promise<number> {
  const server = createServer((_request, response) => void write(response));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return (await listen(server)).port;
}

const limits = { heartbeatMs: 15_000, stallMs: 60_000 };
const request = 'GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n';

function body(answer: string): string {
  // Remove the chunk sizes and line breaks of chunked encoding.
  return answer
    .slice(answer.indexOf('\r\n\r\n') + 4)
    .replace(/(?:^|\r\n)[0-9a-f]+\r\n/g, '')
    .replace(/\r\n$/, '');
}

async function* streamOf<T>(...items: T[]): AsyncGenerator<T> {
  yield* items;
}

async function* oneEventAfter(start: Promise<void>): AsyncGenerator<{ data: number }> {
  await start;
  yield { data: 1 };
}

/** Sends the request; the function returns what has arrived so far. */
async function sendRequest(port: number): Promise<() => string> {
  const socket = await openSocket(port);
  let output = '';
  socket.on('data', (chunk) => {
    output += chunk.toString('latin1');
  });
  socket.write(request);
  return () => output;
}

describe('writeEvents', () => {
  test('writes one JSON document per data line and [DONE] last', async () => {
    const port = await serve((response) =>
      writeEvents(response, streamOf({ data: { a: 'x\r\ny' } }, { data: [1], event: 'step', id: '7' }), {
        end: '[DONE]',
        limits,
        onError: () => '',
      }),
    );
    expect(body(await sendBytes(port, request))).toBe(
      'data: {"a":"x\\r\\ny"}\n\nid: 7\nevent: step\ndata: [1]\n\ndata: [DONE]\n\n',
    );
  });

  test('sends the head before the first event exists', async () => {
    const gate = Promise.withResolvers<void>();
    const port = await serve((response) =>
      writeEvents(response, oneEventAfter(gate.promise), { limits, onError: () => '' }),
    );
    const received = await sendRequest(port);
    // No heartbeat sends the head within this time.
    await until(() => received().includes('HTTP/1.1 200'), 'the head', limits.heartbeatMs / 3);
    expect(received()).not.toContain('data:');
    gate.resolve();
    await until(() => received().includes('data: 1\n\n'), 'the event');
  });

  test('sends heartbeats while quiet', async () => {
    const gate = Promise.withResolvers<void>();
    const port = await serve((response) =>
      writeEvents(response, oneEventAfter(gate.promise), {
        limits: { ...limits, heartbeatMs: 20 },
        onError: () => '',
      }),
    );
    const received = await sendRequest(port);
    await until(() => (received().match(/: hb\n\n/g) ?? []).length >= 2, 'two heartbeats');
    expect(received()).not.toContain('data:');
    gate.resolve();
    await until(() => received().includes('data: 1\n\n'), 'the event');
  });

  test('reports a late error in the stream and omits [DONE]', async () => {
    const port = await serve((response) =>
      writeEvents(
        response,
        (async function* () {
          yield { data: 1 };
          throw new Error('inside');
        })(),
        {
          end: '[DONE]',
          limits,
          onError: (error) => `data: ${JSON.stringify({ message: (error as Error).message })}\n\n`,
        },
      ),
    );
    expect(body(await sendBytes(port, request))).toBe('data: 1\n\ndata: {"message":"inside"}\n\n');
  });

  test.each([
    ['name', { event: 'a\ndata: forged' }],
    ['id', { id: '7\ndata: forged' }],
  ])('refuses a line break in the %s of an event', async (_field, members) => {
    let reportedError: unknown;
    const port = await serve((response) =>
      writeEvents(response, streamOf({ data: 1, ...members }), {
        limits,
        onError: (error) => {
          reportedError = error;
          return '';
        },
      }),
    );
    expect(body(await sendBytes(port, request))).not.toContain('forged');
    expect(String(reportedError)).toContain('line break');
  });

  test('stops the producer when the client disconnects', async () => {
    let hasReturned = false;
    let outcome: StreamOutcome | undefined;
    let release = () => {};
    const events = {
      [Symbol.asyncIterator]: () => ({
        next: () =>
          new Promise<IteratorResult<{ data: number }>>(
            (resolve) => (release = () => resolve({ done: true, value: undefined })),
          ),
        return: async () => {
          hasReturned = true;
          release();
          return { done: true as const, value: undefined };
        },
      }),
    };
    const port = await serve(async (response) => {
      outcome = await writeEvents(response, events, { limits, onError: () => '' });
    });
    const socket = await openSocket(port);
    socket.write(request);
    await once(socket, 'data');
    socket.destroy();
    await until(() => hasReturned && outcome !== undefined, 'the producer is stopped');
    expect(outcome).toBe('client_gone');
  });

  test('drops a stalled reader at its deadline', async () => {
    let producedEvents = 0;
    let outcome: StreamOutcome | undefined;
    let servedResponse: ServerResponse | undefined;
    let highestLength = 0;
    const megabyte = 'x'.repeat(1024 * 1024);
    const port = await serve(async (response) => {
      servedResponse = response;
      outcome = await writeEvents(
        response,
        (async function* () {
          for (;;) {
            producedEvents += 1;
            highestLength = Math.max(highestLength, response.writableLength);
            yield { data: megabyte };
          }
        })(),
        { limits: { ...limits, stallMs: 300 }, onError: () => '' },
      );
    });
    const socket = await openSocket(port);
    socket.pause();
    socket.write(request);
    await until(() => {
      highestLength = Math.max(highestLength, servedResponse?.writableLength ?? 0);
      return outcome !== undefined;
    }, 'the drop');
    expect(outcome).toBe('stalled');
    // Beyond the socket buffers, the server itself buffers less than a megabyte.
    expect(producedEvents).toBeLessThan(20);
    expect(highestLength).toBeLessThan(1024 * 1024);
    socket.destroy();
  });

  test('sends a slow reader every byte in order', async () => {
    const port = await serve((response) =>
      writeEvents(
        response,
        (async function* () {
          for (let n = 0; n < 40; n += 1) yield { data: { n, fill: 'y'.repeat(100_000) } };
        })(),
        { limits: { ...limits, heartbeatMs: 1 }, onError: () => '' },
      ),
    );
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    let text = '';
    const decoder = new TextDecoder();
    for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
      text += decoder.decode(chunk, { stream: true });
      await new Promise((resolve) => setImmediate(resolve));
    }
    const frames = text.split('\n\n').filter((frame) => frame.startsWith('data: '));
    const numbers = frames
      .map((frame) => JSON.parse(frame.slice('data: '.length)) as { n: number; fill: string })
      .map(({ n, fill }) => (fill.length === 100_000 ? n : -1));
    expect(numbers).toEqual(Array.from({ length: 40 }, (_, n) => n));
  });
});

describe('writeContent', () => {
  test('passes bytes through unchanged', async () => {
    const bytes = [Buffer.from([0, 255, 13, 10]), Buffer.alloc(300_000, 7)];
    const port = await serve((response) =>
      writeContent(response, streamOf(...bytes), { limits, onError: () => {} }),
    );
    const receivedBytes = Buffer.from(await (await fetch(`http://127.0.0.1:${port}/`)).arrayBuffer());
    expect(receivedBytes.equals(Buffer.concat(bytes))).toBe(true);
  });

  test('stops the producer when a client that reads nothing disconnects', async () => {
    let outcome: StreamOutcome | undefined;
    let isStopped = false;
    let producedCount = 0;
    const port = await serve(async (response) => {
      outcome = await writeContent(
        response,
        (async function* () {
          try {
            for (; ; producedCount += 1) yield Buffer.alloc(32 * 1024);
          } finally {
            isStopped = true;
          }
        })(),
        { limits, onError: () => {} },
      );
    });
    const socket = await openSocket(port);
    socket.pause();
    socket.write(request);
    await until(async () => {
      const countBefore = producedCount;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return producedCount > 0 && producedCount === countBefore;
    }, 'the buffers of both sockets are full');
    socket.destroy();
    await until(() => outcome !== undefined, 'the end of the answer');
    expect(outcome).toBe('client_gone');
    await until(() => isStopped, 'the end of the producer');
  });

  test('cuts the connection when the producer fails midway', async () => {
    const errors: unknown[] = [];
    const port = await serve((response) =>
      writeContent(
        response,
        (async function* () {
          yield Buffer.from('half');
          throw new Error('inside');
        })(),
        { limits, onError: (error) => errors.push(error) },
      ),
    );
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    await expect(answer.text()).rejects.toThrow('terminated');
    expect(errors).toHaveLength(1);
  });
});
