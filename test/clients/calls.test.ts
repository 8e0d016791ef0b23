// Features of a client's call besides its data: its response, the items of all pages, retries and
// type guards.

import { afterAll, afterEach, beforeAll, describe, expect, expectTypeOf, test } from 'vitest';
import {
  createGatewayClient,
  type GatewayClient,
  type GatewayClientOptions,
  GatewayError,
  hasType,
  type StreamPart,
  type TokenRecord,
} from '../../clients/gateway/src/index.ts';
import { createAgentClient } from '../../clients/agent/src/index.ts';
import {
  problem,
  readAll,
  type ScriptedServer,
  sendJson,
  startEvents,
  startScriptedServer,
  textParts,
  writeEvents,
} from './scripted-server.ts';

let server: ScriptedServer;
let client: GatewayClient;
beforeAll(async () => {
  server = await startScriptedServer();
  client = connect();
});
afterEach(() => server.requests.splice(0));
afterAll(() => server.close());

function connect(options: Partial<GatewayClientOptions> = {}): GatewayClient {
  return createGatewayClient({ baseUrl: server.baseUrl, token: 'th_usr_x', ...options });
}

const paidHeaders = { 'x-request-id': 'req_1', 'x-townhall-credits': '1200' };

describe('withResponse', () => {
  test('returns the status, the headers, the request id and the price', async () => {
    server.script((_request, response) => sendJson(response, 200, { id: 'msg_1' }, paidHeaders));
    const call = client.ai.generateText({ model: 'local/echo', prompt: 'Hi' });
    const { data, status, headers, requestId, credits } = await call.withResponse();
    expect(data).toEqual({ id: 'msg_1' });
    expect({ status, requestId, credits }).toEqual({ status: 200, requestId: 'req_1', credits: 1200 });
    expect(headers['content-type']).toContain('application/json');
    expect(server.requests).toHaveLength(1);
  });

  test('rejects with the error of the call', async () => {
    server.script((_request, response) => sendJson(response, 404, problem('not_found', 'model_not_found')));
    await expect(client.ai.getModel({ model_id: 'x' }).withResponse()).rejects.toMatchObject({
      code: 'model_not_found',
    });
  });

  test('of a stream resolves before its events', async () => {
    const gate = Promise.withResolvers<void>();
    server.script(async (_request, response) => {
      startEvents(response);
      await gate.promise;
      writeEvents(response, [...textParts('Hi'), '[DONE]']);
      response.end();
    });
    const { data, requestId } = await client.ai
      .streamText({ model: 'local/echo', prompt: [] })
      .withResponse();
    expect(requestId).toBe('req_stream');
    gate.resolve();
    expect((await readAll(data)).at(-1)).toMatchObject({ type: 'finish' });
    expect(server.requests).toHaveLength(1);
  });

  test('of a service call returns the request id', async () => {
    server.script((_request, response) => sendJson(response, 200, { added: true }, paidHeaders));
    const { data, requestId } = await client.call('notes', 'add', { text: 'Hi' }).withResponse();
    expect({ data, requestId }).toEqual({ data: { added: true }, requestId: 'req_1' });
  });
});

describe('a list', () => {
  function scriptPages(cursorName: string) {
    server.script((request, response) => {
      const cursor = new URL(request.url, server.baseUrl).searchParams.get('cursor');
      const page =
        cursor === null ? { items: [1, 2], [cursorName]: 'b' } : { items: [3], [cursorName]: null };
      sendJson(response, 200, page);
    });
  }

  test('resolves with its first page', async () => {
    scriptPages('next_cursor');
    expect(await client.accounts.listTokens()).toEqual({ items: [1, 2], next_cursor: 'b' });
    expect(server.requests).toHaveLength(1);
  });

  test('yields every item of all pages', async () => {
    scriptPages('next_cursor');
    const call = client.accounts.listTokens({ limit: 2 });
    expectTypeOf(call).toExtend<AsyncIterable<TokenRecord>>();
    expect(await readAll(call)).toEqual([1, 2, 3]);
    expect(server.requests.map(({ url }) => url.split('?')[1])).toEqual(['limit=2', 'limit=2&cursor=b']);
  });

  test('requests pages only on demand', async () => {
    scriptPages('next_cursor');
    for await (const _item of client.accounts.listTokens()) break;
    expect(server.requests).toHaveLength(1);
  });

  test('of the agent is iterated in the same way', async () => {
    scriptPages('nextCursor');
    expect(await readAll(createAgentClient({ baseUrl: server.baseUrl }).sessions.list())).toEqual([1, 2, 3]);
  });

  test('is iterable, unlike the call of a single answer', () => {
    expectTypeOf(client.credits.getBalance).returns.not.toExtend<AsyncIterable<unknown>>();
    expectTypeOf(client.ai.generateText).returns.not.toExtend<AsyncIterable<unknown>>();
  });
});

describe('retries', () => {
  function failFirst(count: number, status: number, headers: Record<string, string> = {}) {
    server.script((_request, response) =>
      server.requests.length <= count
        ? sendJson(response, status, problem('unavailable', 'draining'), headers)
        : sendJson(response, 200, { id: 'msg_1' }),
    );
  }
  const prompt = { model: 'local/echo', prompt: 'Hi' };

  test('are off by default', async () => {
    failFirst(1, 503);
    await expect(client.ai.generateText(prompt)).rejects.toMatchObject({ status: 503, retryable: true });
    expect(server.requests).toHaveLength(1);
  });

  test('send the same call with the same Idempotency-Key', async () => {
    failFirst(2, 503);
    expect(await client.ai.generateText(prompt, { maxRetries: 2 })).toEqual({ id: 'msg_1' });
    expect(server.requests.map(({ text }) => text)).toEqual(Array(3).fill(JSON.stringify(prompt)));
    expect(new Set(server.requests.map(({ headers }) => headers['idempotency-key'])).size).toBe(1);
  });

  test('end with the error of the last attempt', async () => {
    failFirst(9, 503);
    const call = connect({ maxRetries: 1 }).ai.generateText(prompt);
    await expect(call).rejects.toMatchObject({ status: 503 });
    expect(server.requests).toHaveLength(2);
  });

  test('wait for the Retry-After of the server', async () => {
    failFirst(1, 429, { 'retry-after': '1' });
    const startedMs = performance.now();
    await client.ai.listModels(undefined, { maxRetries: 1 });
    // One second, less the imprecision of timers.
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(990);
  });

  test('are not made after permanent failures', async () => {
    failFirst(1, 400);
    await expect(client.ai.generateText(prompt, { maxRetries: 2 })).rejects.toMatchObject({ status: 400 });
    expect(server.requests).toHaveLength(1);
  });

  test('do not repeat a change with an unknown effect', async () => {
    server.script((_request, response) => void response.destroy());
    await expect(client.accounts.logout(undefined, { maxRetries: 2 })).rejects.toMatchObject({
      code: 'connection_failed',
    });
    expect(server.requests).toHaveLength(1);
  });

  test('repeat a call with an Idempotency-Key after a broken connection', async () => {
    server.script((_request, response) =>
      server.requests.length < 3 ? void response.destroy() : sendJson(response, 200, { id: 'msg_1' }),
    );
    expect(await client.ai.generateText(prompt, { maxRetries: 2 })).toEqual({ id: 'msg_1' });
    expect(server.requests).toHaveLength(3);
  });

  test('end at the deadline of the call', async () => {
    failFirst(9, 503, { 'retry-after': '30' });
    const startedMs = performance.now();
    await expect(client.ai.listModels(undefined, { maxRetries: 5, timeoutMs: 2_000 })).rejects.toThrow(
      GatewayError,
    );
    // The wait would end after the deadline, so the call does not begin it.
    expect(performance.now() - startedMs).toBeLessThan(2_000);
    expect(server.requests).toHaveLength(1);
  });

  test('end when the signal is aborted', async () => {
    failFirst(9, 503, { 'retry-after': '30' });
    const call = client.ai.listModels(undefined, { maxRetries: 5, signal: AbortSignal.timeout(300) });
    await expect(call).rejects.toMatchObject({ name: 'TimeoutError' });
    expect(server.requests).toHaveLength(1);
  });
});

describe('hasType', () => {
  test('narrows parts to the type', () => {
    const parts = textParts('Good morning') as unknown as StreamPart[];
    const texts = parts.filter(hasType('text-delta'));
    expectTypeOf(texts).toEqualTypeOf<Extract<StreamPart, { type: 'text-delta' }>[]>();
    expect(texts.map(({ delta }) => delta).join('')).toBe('Good morning');
  });
});
