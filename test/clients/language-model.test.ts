// `client.model()` under the AI SDK, over real sockets: requests follow the contract, and results
// have the SDK's types.

import type { LanguageModelV3, LanguageModelV3CallOptions } from '@ai-sdk/provider';
import { APICallError, generateText, isStepCount, jsonSchema, Output, streamText, tool } from 'ai';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  createGatewayClient,
  type GatewayClient,
  GatewayError,
  type StreamRequest,
} from '../../clients/gateway/src/index.ts';
import { quickest } from '../support/quickest.ts';
import {
  eventStream,
  finishPart,
  problem,
  readAll,
  type ScriptedServer,
  sendJson,
  startEvents,
  startScriptedServer,
  textParts,
} from './scripted-server.ts';

let server: ScriptedServer;
let client: GatewayClient;
let model: LanguageModelV3;

beforeAll(async () => {
  server = await startScriptedServer();
  client = createGatewayClient({ baseUrl: server.baseUrl, token: 'th_usr_x' });
  model = client.model('local/echo');
});
afterEach(() => server.requests.splice(0));
afterAll(() => server.close());

/** Answers the calls with these streams in order. */
function answerWith(...streams: unknown[][]): void {
  server.script((request, response) =>
    eventStream([...(streams.shift() ?? []), '[DONE]'])(request, response),
  );
}

function requestAt(index = 0): StreamRequest {
  return server.requests[index]?.json as StreamRequest;
}

const hello: LanguageModelV3CallOptions = {
  prompt: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }],
};
const start = { type: 'stream-start', warnings: [] };

const failedParts = [
  start,
  {
    type: 'error',
    error: { type: 'upstream_error', code: 'upstream_failed', message: 'The model failed.' },
  },
  finishPart('error'),
];

describe('generateText of the AI SDK', () => {
  test('returns text, usage and response metadata', async () => {
    answerWith(textParts('Good morning'));
    const result = await generateText({
      model,
      prompt: 'Good morning',
      maxOutputTokens: 50,
      temperature: 0.5,
    });
    expect(result.text).toBe('Good morning');
    expect(result.finishReason).toBe('stop');
    expect(result.usage).toMatchObject({ inputTokens: 3, outputTokens: 2 });
    expect(result.finalStep.response).toMatchObject({
      id: 'msg_1',
      modelId: 'local/echo',
      timestamp: new Date('2026-11-20T09:00:00.000Z'),
    });
    expect(requestAt()).toEqual({
      model: 'local/echo',
      prompt: [{ role: 'user', content: [{ type: 'text', text: 'Good morning' }] }],
      maxOutputTokens: 50,
      temperature: 0.5,
    });
  });

  test('calls tools and sends their results', async () => {
    answerWith(
      [
        start,
        { type: 'reasoning-start', id: 'r' },
        { type: 'reasoning-delta', id: 'r', delta: 'I shall look.' },
        { type: 'reasoning-end', id: 'r', providerMetadata: { acme: { signature: 's' } } },
        { type: 'tool-input-start', id: 'call_1', toolName: 'weather' },
        { type: 'tool-input-delta', id: 'call_1', delta: '{"city":"Oslo"}' },
        { type: 'tool-input-end', id: 'call_1' },
        { type: 'tool-call', toolCallId: 'call_1', toolName: 'weather', input: '{"city":"Oslo"}' },
        finishPart('tool-calls'),
      ],
      textParts('It snows.'),
    );
    const weather = tool({
      description: 'The weather of a city.',
      inputSchema: jsonSchema<{ city: string }>({
        type: 'object',
        properties: { city: { type: 'string' } },
        required: ['city'],
      }),
      execute: ({ city }) => ({ city, sky: 'snow' }),
    });
    const result = await generateText({
      model,
      prompt: 'How is Oslo?',
      tools: { weather },
      stopWhen: isStepCount(3),
    });
    expect(result.text).toBe('It snows.');
    expect(result.steps[0]?.reasoningText).toBe('I shall look.');
    expect(requestAt(0)).toMatchObject({
      tools: [{ type: 'function', name: 'weather', inputSchema: { required: ['city'] } }],
      toolChoice: { type: 'auto' },
    });
    expect(requestAt(1).prompt.slice(1)).toEqual([
      {
        role: 'assistant',
        content: [
          { type: 'reasoning', text: 'I shall look.', providerOptions: { acme: { signature: 's' } } },
          { type: 'tool-call', toolCallId: 'call_1', toolName: 'weather', input: { city: 'Oslo' } },
        ],
      },
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            toolCallId: 'call_1',
            toolName: 'weather',
            output: { type: 'json', value: { city: 'Oslo', sky: 'snow' } },
          },
        ],
      },
    ]);
  });

  test('returns an object by a schema', async () => {
    answerWith(textParts('{"city":"Oslo"}'));
    const schema = jsonSchema<{ city: string }>({
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
      additionalProperties: false,
    });
    const result = await generateText({ model, prompt: 'Where?', output: Output.object({ schema }) });
    expect(result.output).toEqual({ city: 'Oslo' });
    expect(requestAt().responseFormat).toMatchObject({ type: 'json', schema: { required: ['city'] } });
  });

  test('prefers the reasoning of the call to that of the model', async () => {
    answerWith(textParts('a'), textParts('b'), textParts('c'), textParts('d'));
    const reasoningModel = client.model('local/echo', { reasoningEffort: 'low' });
    await generateText({ model: reasoningModel, prompt: 'Hi' });
    await generateText({ model: reasoningModel, prompt: 'Hi', reasoning: 'high' });
    await generateText({
      model: reasoningModel,
      prompt: 'Hi',
      providerOptions: { townhall: { reasoningEffort: 'xhigh' }, acme: { a: 1 } },
    });
    await generateText({ model, prompt: 'Hi' });
    expect([0, 1, 2, 3].map((index) => requestAt(index).reasoning_effort)).toEqual([
      'low',
      'high',
      'xhigh',
      undefined,
    ]);
    expect(requestAt(2).providerOptions).toEqual({ acme: { a: 1 } });
  });
});

describe('an error of generateText', () => {
  test('is retried after the server’s Retry-After when it is transient', async () => {
    const sendText = eventStream([...textParts('Back'), '[DONE]']);
    server.script((request, response) =>
      server.requests.length === 1
        ? sendJson(response, 503, problem('server_error', 'draining'), { 'retry-after': '0' })
        : sendText(request, response),
    );
    // Without the header the SDK waits for two seconds.
    const retriedMs = await quickest(2_000, async () => {
      server.requests.splice(0);
      expect((await generateText({ model, prompt: 'Hi' })).text).toBe('Back');
      expect(server.requests).toHaveLength(2);
    });
    expect(retriedMs).toBeLessThan(2_000);
  });

  test('keeps its type without a retry when it is final', async () => {
    server.script((_request, response) =>
      sendJson(response, 401, problem('authentication_error', 'invalid_token')),
    );
    const error: unknown = await generateText({ model, prompt: 'A secret prompt' }).catch(
      (cause: unknown) => cause,
    );
    expect(GatewayError.isInstance(error)).toBe(true);
    expect(error).toMatchObject({ status: 401, code: 'invalid_token' });
    expect(APICallError.isInstance(error)).toBe(true);
    const call = error as APICallError;
    expect(call).toMatchObject({ statusCode: 401, isRetryable: false });
    expect(call.url).toBe(`${server.baseUrl}/v1/ai/stream`);
    expect(call.responseHeaders?.['content-type']).toContain('json');
    expect(call.requestBodyValues).toEqual(requestAt());
    expect(JSON.stringify(error)).not.toContain('A secret prompt');
    expect(server.requests).toHaveLength(1);
  });

  test('is thrown for a truncated answer without a second paid call', async () => {
    server.script(eventStream(textParts('Good morning').slice(0, 4)));
    await expect(generateText({ model, prompt: 'Hi' })).rejects.toMatchObject({ code: 'stream_truncated' });
    expect(server.requests).toHaveLength(1);
  });

  test('is thrown for a failure midway', async () => {
    answerWith(failedParts);
    await expect(generateText({ model, prompt: 'Hi' })).rejects.toMatchObject({
      code: 'upstream_failed',
      message: 'The model failed.',
    });
    expect(server.requests).toHaveLength(1);
  });
});

describe('streamText of the AI SDK', () => {
  test('yields the text as it arrives', async () => {
    answerWith(textParts('one two three'));
    const chunks = await readAll(streamText({ model, prompt: 'Count.' }).textStream);
    expect(chunks).toEqual(['one ', 'two ', 'three']);
  });

  test('reports a failure midway to onError', async () => {
    answerWith(failedParts);
    const errors: unknown[] = [];
    await streamText({
      model,
      prompt: 'Hi',
      onError: ({ error }) => void errors.push(error),
    }).consumeStream();
    expect(errors.map((error) => GatewayError.isInstance(error) && error.code)).toEqual(['upstream_failed']);
    expect(server.requests).toHaveLength(1);
  });

  test('closes the socket within 50 ms of an abort', async () => {
    server.script(eventStream(textParts('Good morning').slice(0, 4), { isOpen: true }));
    const closeMs = await quickest(50, async () => {
      const abort = new AbortController();
      let isAborted = false;
      let startedMs = Infinity;
      const result = streamText({
        model,
        prompt: 'Hi',
        abortSignal: abort.signal,
        onAbort: () => void (isAborted = true),
      });
      for await (const part of result.stream) {
        if (part.type !== 'text-delta') continue;
        startedMs = performance.now();
        abort.abort();
      }
      expect(isAborted).toBe(true);
      return ((await server.requests.at(-1)?.disconnection) ?? Infinity) - startedMs;
    });
    expect(closeMs).toBeLessThan(50);
  });
});

describe('client.model', () => {
  test('names its provider, id and specification version', () => {
    expect(model).toMatchObject({
      specificationVersion: 'v3',
      provider: 'townhall',
      modelId: 'local/echo',
    });
    expect(model.supportedUrls).toEqual({});
  });

  test('sends bytes as base64 and URLs as text without changing the prompt', async () => {
    answerWith(textParts('Seen.'));
    const bytes = Uint8Array.from({ length: 100_000 }, (_, index) => index % 251);
    const prompt: LanguageModelV3CallOptions['prompt'] = [
      {
        role: 'user',
        content: [
          { type: 'file', mediaType: 'image/png', data: bytes },
          { type: 'file', mediaType: 'image/png', data: new URL('https://example.com/a.png') },
          { type: 'file', mediaType: 'image/png', data: 'AAEC' },
        ],
      },
    ];
    await model.doGenerate({ prompt });
    expect(requestAt().prompt).toEqual([
      {
        role: 'user',
        content: [
          { type: 'file', mediaType: 'image/png', data: Buffer.from(bytes).toString('base64') },
          { type: 'file', mediaType: 'image/png', data: 'https://example.com/a.png' },
          { type: 'file', mediaType: 'image/png', data: 'AAEC' },
        ],
      },
    ]);
    expect(prompt[0]).toMatchObject({
      content: [{ data: bytes }, { data: expect.any(URL) }, { data: 'AAEC' }],
    });
  });

  test('returns files, sources and tool calls in their order', async () => {
    const file = { type: 'file', mediaType: 'image/png', data: 'AAEC' };
    const source = {
      type: 'source',
      sourceType: 'url',
      id: 's',
      url: 'https://example.com',
      title: 'Example',
    };
    const call = { type: 'tool-call', toolCallId: 'c', toolName: 't', input: '{}' };
    answerWith([
      start,
      { type: 'text-start', id: 'a' },
      { type: 'text-start', id: 'b' },
      { type: 'text-delta', id: 'b', delta: 'two' },
      file,
      { type: 'text-delta', id: 'a', delta: 'one' },
      { type: 'text-end', id: 'b' },
      { type: 'text-end', id: 'a' },
      { type: 'text-start', id: 'empty' },
      { type: 'text-end', id: 'empty' },
      source,
      call,
      finishPart('tool-calls'),
    ]);
    const { content, finishReason } = await model.doGenerate(hello);
    expect(content).toEqual([
      { type: 'text', text: 'one' },
      { type: 'text', text: 'two' },
      file,
      source,
      call,
    ]);
    expect(finishReason).toEqual({ unified: 'tool-calls', raw: undefined });
  });

  test('restores dates and members that JSON omits', async () => {
    answerWith(textParts('Hi'));
    const { stream, response } = await model.doStream(hello);
    const parts = await readAll(stream);
    expect(parts[1]).toMatchObject({
      type: 'response-metadata',
      timestamp: new Date('2026-11-20T09:00:00.000Z'),
    });
    const finish = parts.at(-1);
    expect(finish).toStrictEqual({
      type: 'finish',
      finishReason: { unified: 'stop', raw: undefined },
      usage: {
        inputTokens: { total: 3, noCache: 3, cacheRead: undefined, cacheWrite: undefined },
        outputTokens: { total: 2, text: 2, reasoning: undefined },
        raw: undefined,
      },
    });
    expect(response?.headers?.['x-request-id']).toBe('req_stream');
  });

  test('warns of unsupported tools beside the warnings of the gateway', async () => {
    const warning = { type: 'other', message: 'A warning.' };
    answerWith([{ type: 'stream-start', warnings: [warning] }, ...textParts('Hi').slice(1)]);
    const { warnings } = await model.doGenerate({
      ...hello,
      tools: [{ type: 'provider', id: 'acme.search', name: 'search', args: {} }],
      toolChoice: { type: 'auto' },
    });
    expect(warnings).toEqual([
      expect.objectContaining({ type: 'unsupported', feature: 'tool search' }),
      warning,
    ]);
    expect(requestAt()).not.toHaveProperty('tools');
    expect(requestAt()).not.toHaveProperty('toolChoice');
  });

  test('sends a call’s headers except credential and connection headers', async () => {
    answerWith(textParts('Hi'));
    await model.doGenerate({
      ...hello,
      headers: {
        'x-trace': '1',
        Authorization: 'Bearer other',
        Cookie: 'a=b',
        Host: 'evil.example',
        'Content-Type': 'text/plain',
        'x-none': undefined,
      },
    });
    const { headers } = server.requests[0] ?? {};
    expect(headers).toMatchObject({
      'x-trace': '1',
      authorization: 'Bearer th_usr_x',
      'content-type': 'application/json',
      host: new URL(server.baseUrl).host,
    });
    expect(headers).not.toHaveProperty('cookie');
    expect(headers).not.toHaveProperty('x-none');
  });

  test('closes the socket when its stream is cancelled during a read', async () => {
    server.script(eventStream([start], { isOpen: true }));
    const closeMs = await quickest(50, async () => {
      const { stream } = await model.doStream(hello);
      const reader = stream.getReader();
      await reader.read();
      const nextRead = reader.read();
      const startedMs = performance.now();
      await reader.cancel();
      expect((await nextRead).done).toBe(true);
      return ((await server.requests.at(-1)?.disconnection) ?? Infinity) - startedMs;
    });
    expect(closeMs).toBeLessThan(50);
  });

  test('closes the socket for an unreadable event', async () => {
    server.script((_request, response) => {
      startEvents(response);
      response.write('data: {"type"\n\n');
    });
    const { stream } = await model.doStream(hello);
    await expect(readAll(stream)).rejects.toMatchObject({ code: 'invalid_response', isRetryable: false });
    expect(await server.requests[0]?.disconnection).toBeGreaterThan(0);
  });

  test('fails a stream that is cut off', async () => {
    server.script(eventStream([start]));
    const { stream } = await model.doStream(hello);
    await expect(readAll(stream)).rejects.toMatchObject({ code: 'stream_truncated', isRetryable: false });
  });
});
