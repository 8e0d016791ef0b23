// The streams of the clients, byte by byte and over real sockets.

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { createGatewayClient, type GatewayClient, GatewayError } from '../../clients/gateway/src/index.ts';
import { createAbortScope } from '../../clients/shared/src/abort-scope.ts';
import { readEvents } from '../../clients/shared/src/stream.ts';
import { quickest } from '../support/quickest.ts';
import {
  eventStream,
  failureOf,
  finishPart,
  problem,
  readAll,
  type ScriptedServer,
  sendJson,
  startEvents,
  startScriptedServer,
  textParts,
  writeEvents,
} from './scripted-server.ts';

const encoder = new TextEncoder();

async function readChunks(
  chunks: readonly Uint8Array[],
  options: { maxEventChars?: number; hasEndMark?: boolean } = {},
): Promise<string[]> {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  const events: string[] = [];
  const readOptions = {
    scope: createAbortScope(undefined),
    idleTimeoutMs: 1000,
    hasEndMark: true,
    fail: (failure: ConstructorParameters<typeof GatewayError>[0]) => new GatewayError(failure),
    ...options,
  };
  for await (const data of readEvents(new Response(body), readOptions)) events.push(data);
  return events;
}

describe('readEvents', () => {
  // A byte order mark, a comment, and the three line ends of the format.
  const sample = [
    '\uFEFF: hb\r\ndata: {"text":"grüße 🌳"}\r\n\r\n',
    'event: x\rdata: two\r\r',
    'id: 7\ndata: three\n\ndata: [DONE]\n\n',
  ].join('');
  const expected = ['{"text":"grüße 🌳"}', 'two', 'three'];

  test('yields the same events for every split into two chunks', async () => {
    const bytes = encoder.encode(sample);
    for (let index = 0; index <= bytes.length; index++) {
      expect(
        await readChunks([bytes.subarray(0, index), bytes.subarray(index)]),
        `split at ${index}`,
      ).toEqual(expected);
    }
  });

  test('yields the same events for single bytes', async () => {
    expect(await readChunks(Array.from(encoder.encode(sample), (byte) => Uint8Array.of(byte)))).toEqual(
      expected,
    );
  });

  test('ignores bytes after [DONE]', async () => {
    expect(await readChunks([encoder.encode('data: 1\n\ndata: [DONE]\n\ndata: 2\n\n')])).toEqual(['1']);
  });

  test('ends with the connection when the format has no end mark', async () => {
    expect(await readChunks([encoder.encode('data: 1\n\n')], { hasEndMark: false })).toEqual(['1']);
  });

  test.each(['', 'data: 1\n\n', 'data: 1\n\ndata: [DONE]', 'data: [DO'])(
    'throws for a stream that ends as %j',
    async (text) => {
      expect((await failureOf(readChunks([encoder.encode(text)]))).code).toBe('stream_truncated');
    },
  );

  test('throws for an event above the size limit', async () => {
    const piece = encoder.encode('x'.repeat(600));
    const error = await failureOf(
      readChunks([encoder.encode('data: '), piece, piece, encoder.encode('\n\ndata: [DONE]\n\n')], {
        maxEventChars: 1000,
      }),
    );
    expect(error.code).toBe('stream_event_too_large');
  });
});

describe('a stream over a socket', () => {
  let server: ScriptedServer;
  let client: GatewayClient;
  const request = {
    model: 'local/echo',
    prompt: [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'Hi' }] }],
  };
  const chat = {
    model: 'local/echo',
    messages: [{ role: 'user' as const, content: 'Hi' }],
    stream: true as const,
  };

  beforeAll(async () => {
    server = await startScriptedServer();
    client = createGatewayClient({ baseUrl: server.baseUrl, token: 'th_usr_x' });
  });
  afterEach(() => server.requests.splice(0));
  afterAll(() => server.close());

  /** Milliseconds from `startedMs` until the client has closed the connection of the last request. */
  async function measureDisconnection(startedMs: number): Promise<number> {
    return ((await server.requests.at(-1)?.disconnection) ?? Infinity) - startedMs;
  }

  test('yields the parts in order over a reusable connection', async () => {
    server.script(eventStream([...textParts('Good morning'), '[DONE]']));
    const connectionCount = server.connections();
    expect(await readAll(client.ai.streamText(request))).toEqual(textParts('Good morning'));
    for (let round = 0; round < 7; round++) await readAll(client.ai.streamText(request));
    expect(server.requests[0]).toMatchObject({
      method: 'POST',
      url: '/v1/ai/stream',
      json: request,
      headers: {
        'ai-language-model-specification-version': '3',
        accept: 'text/event-stream',
        authorization: 'Bearer th_usr_x',
      },
    });
    // Fetch may open another connection while one is being returned to the pool; eight would mean
    // no reuse at all.
    expect(server.connections() - connectionCount).toBeLessThan(4);
  });

  test('throws the typed error of a refused stream without a retry', async () => {
    server.script((_request, response) =>
      sendJson(response, 401, problem('authentication_error', 'invalid_token')),
    );
    const error = await failureOf(readAll(client.ai.streamText(request)));
    expect(error).toMatchObject({
      status: 401,
      code: 'invalid_token',
      type: 'authentication_error',
      requestId: 'req_body',
      retryable: false,
    });
    expect(server.requests).toHaveLength(1);
  });

  test('throws stream_truncated without a finish part, even after [DONE]', async () => {
    server.script(eventStream([...textParts('Hi').slice(0, -1), '[DONE]']));
    expect(await failureOf(readAll(client.ai.streamText(request)))).toMatchObject({
      code: 'stream_truncated',
      status: 200,
      requestId: 'req_stream',
      retryable: false,
    });
  });

  test('throws stream_truncated without [DONE] and without a retry', async () => {
    server.script(eventStream(textParts('Hi')));
    const events = client.ai.streamText(request)[Symbol.asyncIterator]();
    for (const part of textParts('Hi')) expect((await events.next()).value).toEqual(part);
    expect((await failureOf(events.next())).code).toBe('stream_truncated');
    expect(server.requests).toHaveLength(1);
  });

  test('throws connection_failed once when the connection breaks midway', async () => {
    server.script(async (_request, response) => {
      startEvents(response);
      await new Promise((resolve) => response.write('data: {"type":"text-start","id":"0"}\n\n', resolve));
      response.socket?.resetAndDestroy();
    });
    expect(await failureOf(readAll(client.ai.streamText(request)))).toMatchObject({
      code: 'connection_failed',
      status: 200,
      retryable: false,
    });
    expect(server.requests).toHaveLength(1);
  });

  test('yields an error part of the model as a part', async () => {
    const parts = [
      { type: 'stream-start', warnings: [] },
      { type: 'error', error: { type: 'upstream_error', code: 'upstream_failed', message: 'No.' } },
      finishPart(),
    ];
    server.script(eventStream([...parts, '[DONE]']));
    expect(await readAll(client.ai.streamText(request))).toEqual(parts);
  });

  test('throws an error event between chat completion chunks', async () => {
    const chunk = {
      id: 'c',
      object: 'chat.completion.chunk',
      created: 1,
      model: 'local/echo',
      choices: [{ index: 0, delta: { content: 'Hi' } }],
    };
    server.script(eventStream([chunk, problem('upstream_error', 'upstream_failed')]));
    const events = client.ai.createChatCompletion(chat)[Symbol.asyncIterator]();
    expect((await events.next()).value).toEqual(chunk);
    expect(await failureOf(events.next())).toMatchObject({
      code: 'upstream_failed',
      type: 'upstream_error',
      status: 200,
      retryable: false,
    });
    expect(server.requests[0]).toMatchObject({ url: '/v1/ai/chat/completions', json: chat });
  });

  test('throws invalid_response for an event that is not JSON', async () => {
    server.script((_request, response) => {
      startEvents(response);
      response.end('data: {"type"\n\ndata: [DONE]\n\n');
    });
    expect((await failureOf(readAll(client.ai.streamText(request)))).code).toBe('invalid_response');
  });

  test('throws invalid_response for an HTML page', async () => {
    server.script(
      (_request, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'),
    );
    expect((await failureOf(readAll(client.ai.streamText(request)))).code).toBe('invalid_response');
  });

  test('closes the socket within 50 ms of an abort', async () => {
    server.script(eventStream(textParts('Hi').slice(0, 3), { isOpen: true }));
    const closeMs = await quickest(50, async () => {
      const abort = new AbortController();
      const events = client.ai.streamText(request, { signal: abort.signal })[Symbol.asyncIterator]();
      for (let part = 0; part < 3; part++) await events.next();
      const nextEvent = events.next();
      const startedMs = performance.now();
      abort.abort();
      await expect(nextEvent).rejects.toMatchObject({ name: 'AbortError' });
      return measureDisconnection(startedMs);
    });
    expect(closeMs).toBeLessThan(50);
  });

  test('closes the socket within 50 ms after a `break` in its loop', async () => {
    server.script(eventStream(textParts('Hi').slice(0, 3), { isOpen: true }));
    const closeMs = await quickest(50, async () => {
      let startedMs = Infinity;
      for await (const part of client.ai.streamText(request)) {
        if (part.type !== 'text-start') continue;
        startedMs = performance.now();
        break;
      }
      return measureDisconnection(startedMs);
    });
    expect(closeMs).toBeLessThan(50);
  });

  test('closes the socket on return() during a read', async () => {
    server.script(eventStream(textParts('Hi').slice(0, 1), { isOpen: true }));
    const events = client.ai.streamText(request)[Symbol.asyncIterator]();
    await events.next();
    const nextEvent = events.next();
    await events.return?.();
    expect(await nextEvent).toMatchObject({ done: true });
    expect(await server.requests[0]?.disconnection).toBeGreaterThan(0);
  });

  test('sends nothing for an aborted signal', async () => {
    await expect(
      readAll(client.ai.streamText(request, { signal: AbortSignal.abort() })),
    ).rejects.toMatchObject({ name: 'AbortError' });
    expect(server.requests).toHaveLength(0);
  });

  test('throws timeout for a silence after the last heartbeat', async () => {
    server.script((_request, response) => {
      startEvents(response);
      writeEvents(response, textParts('Hi').slice(0, 3));
      let heartbeats = 0;
      const timer = setInterval(
        () => (heartbeats++ < 12 ? response.write(': hb\n\n') : clearInterval(timer)),
        100,
      );
    });
    const startedMs = performance.now();
    const error = await failureOf(readAll(client.ai.streamText(request, { idleTimeoutMs: 1_000 })));
    expect(error).toMatchObject({ code: 'timeout', status: 200, retryable: false });
    // 1.2 seconds of heartbeats and one of silence, less the imprecision of timers.
    expect(performance.now() - startedMs).toBeGreaterThan(1_900);
    expect(await server.requests[0]?.disconnection).toBeGreaterThan(0);
  });

  test('does not count the time of a slow reader as silence', async () => {
    server.script(eventStream([...textParts('Hi'), '[DONE]']));
    const parts = [];
    for await (const part of client.ai.streamText(request, { idleTimeoutMs: 500 })) {
      parts.push(part);
      // The reader waits longer than the idle limit for the first part.
      if (parts.length === 1) await new Promise((resolve) => setTimeout(resolve, 800));
    }
    expect(parts).toHaveLength(textParts('Hi').length);
  });

  test('throws when read twice without another request', async () => {
    server.script(eventStream([...textParts('Hi'), '[DONE]']));
    const events = client.ai.streamText(request);
    await readAll(events);
    expect(() => events[Symbol.asyncIterator]()).toThrow(TypeError);
    expect(server.requests).toHaveLength(1);
  });
});
