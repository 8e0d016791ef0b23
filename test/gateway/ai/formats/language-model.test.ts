// The AI SDK's language-model format at ai.streamText: parts, prompts and failures.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { errorOf, partsOf, startAi, type World } from '../world.ts';

const say = (text: string) => [{ role: 'user', content: [{ type: 'text', text }] }];
type Part = Record<string, unknown>;

/** Every stream has its parts in order, matching starts and ends, one finish part and [DONE]. */
function expectWellFormed({ parts, done }: { parts: Part[]; done: boolean }): void {
  expect(done).toBe(true);
  expect(parts[0]?.type).toBe('stream-start');
  expect(parts[1]?.type).toBe('response-metadata');
  expect(parts.filter((part) => part.type === 'finish')).toHaveLength(1);
  expect(parts.at(-1)?.type).toBe('finish');
  const openParts = new Set<unknown>();
  for (const { type: kind, id } of parts) {
    const type = kind as string;
    if (type.endsWith('-start') && type !== 'stream-start') {
      expect(openParts.has(id)).toBe(false);
      openParts.add(id);
    } else if (type.endsWith('-delta')) expect(openParts.has(id)).toBe(true);
    else if (type.endsWith('-end')) expect(openParts.delete(id)).toBe(true);
  }
  expect(openParts.size).toBe(0);
}

const textOf = (parts: Part[]) =>
  parts.map((part) => (part.type === 'text-delta' ? part.delta : '')).join('');

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const scripts = {
    ok: 'ok',
    tools: 'tools',
    reasoning: 'reasoning',
    none: 'usage-none',
    zero: 'usage-zero',
    negative: 'usage-negative',
    absurd: 'usage-absurd',
    reset: 'reset?chunks=3',
    'no-done': 'no-done',
    'no-finish': 'no-finish',
    error: 'error-event',
    first: 'error-first',
    refused: 'status?code=400&error_code=context_length_exceeded',
    silence: 'silence?chunks=2',
    utf8: 'invalid-utf8',
    cut: 'not-json',
  };
  world = await startAi({
    models: provider.modelsFile(scripts, {
      model: {
        reasoning: {
          efforts: [
            { id: 'low', name: 'Low' },
            { id: 'deep', name: 'Deep' },
          ],
          default_effort: 'low',
        },
      },
      provider: { unpriced_members: ['service_tier'] },
    }),
    timeouts: { idleMs: 1_500 },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
const stream = (body: object, headers: Record<string, string> = {}) =>
  world.post('/v1/ai/stream', body, { headers });
const lastRequest = () => JSON.parse(provider.lastCall().body.toString()) as Part;

describe('the parts of ai.streamText', () => {
  test('streams the parts of a local model in order', async () => {
    const answer = await partsOf(await stream({ model: 'local/echo', prompt: say('Good morning, all') }));
    expectWellFormed(answer);
    expect(textOf(answer.parts)).toBe('Good morning, all');
    expect(answer.parts[1]).toMatchObject({
      modelId: 'local/echo',
      id: expect.stringMatching(/^msg_/),
      timestamp: expect.stringMatching(/^\d{4}-.*Z$/),
    });
    expect(answer.parts.at(-1)).toEqual({
      type: 'finish',
      finishReason: { unified: 'stop', raw: 'stop' },
      usage: {
        inputTokens: { total: 3, noCache: 3, cacheRead: 0, cacheWrite: 0 },
        outputTokens: { total: 3, text: 3, reasoning: 0 },
      },
      providerMetadata: { townhall: { credits: 0 } },
    });
  });

  test("streams a provider's parts with the catalog id of the model", async () => {
    const answer = await partsOf(await stream({ model: 'acme/ok', prompt: say('x') }));
    expectWellFormed(answer);
    expect(textOf(answer.parts)).toBe('tok0 tok1 tok2 tok3 tok4 ');
    expect(answer.parts[1]).toMatchObject({ modelId: 'acme/ok' });
    expect(answer.parts.at(-1)).toMatchObject({
      finishReason: { unified: 'stop' },
      usage: { inputTokens: { total: 10 }, outputTokens: { total: 5 } },
    });
    expect(lastRequest()).toMatchObject({
      model: 'ok',
      stream: true,
      stream_options: { include_usage: true },
      reasoning_effort: 'low',
    });
  });

  test('streams tool calls with their input', async () => {
    const answer = await partsOf(
      await stream({
        model: 'acme/tools',
        prompt: say('x'),
        tools: [{ type: 'function', name: 'get_weather', inputSchema: { type: 'object' } }],
      }),
    );
    expectWellFormed(answer);
    expect(answer.parts.find((part) => part.type === 'tool-call')).toMatchObject({
      toolCallId: 'call_1',
      toolName: 'get_weather',
      input: '{"city":"Oslo"}',
    });
    expect(answer.parts.at(-1)).toMatchObject({ finishReason: { unified: 'tool-calls' } });
  });

  test('streams reasoning before the text', async () => {
    const answer = await partsOf(await stream({ model: 'acme/reasoning', prompt: say('x') }));
    expectWellFormed(answer);
    const kinds = answer.parts.map((part) => part.type);
    expect(kinds.indexOf('reasoning-start')).toBeLessThan(kinds.indexOf('text-start'));
  });
});

describe('a request of ai.streamText', () => {
  const conversation = [
    { role: 'system', content: 'Be brief.' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'Look' },
        { type: 'file', mediaType: 'image/png', data: 'aGVsbG8=' },
        { type: 'file', mediaType: 'image/png', data: 'https://images.example.com/a.png' },
      ],
    },
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: 'hm' },
        { type: 'text', text: 'I call' },
        { type: 'tool-call', toolCallId: 'c1', toolName: 't', input: { a: 1 } },
      ],
    },
    {
      role: 'tool',
      content: [
        { type: 'tool-result', toolCallId: 'c1', toolName: 't', output: { type: 'json', value: { b: 2 } } },
      ],
    },
  ];

  test('translates the whole prompt of version 3', async () => {
    expectWellFormed(
      await partsOf(
        await stream({
          model: 'acme/ok',
          prompt: conversation,
          toolChoice: { type: 'auto' },
          responseFormat: { type: 'json', schema: { type: 'object' }, name: 'n' },
          maxOutputTokens: 9,
          stopSequences: ['s'],
          topP: 0.5,
        }),
      ),
    );
    expect(lastRequest()).toMatchObject({
      max_tokens: 9,
      stop: ['s'],
      top_p: 0.5,
      response_format: { type: 'json_schema', json_schema: { name: 'n' } },
      messages: [
        { role: 'system', content: 'Be brief.' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Look' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,aGVsbG8=' } },
            { type: 'image_url', image_url: { url: 'https://images.example.com/a.png' } },
          ],
        },
        {
          role: 'assistant',
          content: 'I call',
          tool_calls: [{ id: 'c1', type: 'function', function: { name: 't', arguments: '{"a":1}' } }],
        },
        { role: 'tool', tool_call_id: 'c1', content: '{"b":2}' },
      ],
    });
  });

  const modelHeader = { 'ai-language-model-id': 'local/echo' };

  test('reads the model from the header', async () => {
    const answer = await partsOf(await stream({ prompt: say('x') }, modelHeader));
    expectWellFormed(answer);
    expect(answer.parts[1]).toMatchObject({ modelId: 'local/echo' });
  });

  test.each([
    ['no model', {}, {}],
    ['a model that differs from the header', { model: 'local/guide' }, modelHeader],
  ])('refuses a body with %s', async (_name, members, headers) => {
    const response = await stream({ prompt: say('x'), ...members }, headers);
    expect(response.status).toBe(400);
    expect((await errorOf(response)).message).toContain('model');
  });

  test.each(['reasoning_effort', 'reasoning'])(
    'refuses an effort that the model lacks in %s',
    async (member) => {
      const response = await stream({ model: 'acme/ok', prompt: say('x'), [member]: 'medium' });
      expect(response.status).toBe(422);
      expect(await errorOf(response)).toMatchObject({ code: 'unsupported_reasoning_effort', param: member });
    },
  );

  test.each([
    ['the requested effort', { reasoning_effort: 'deep' }, { reasoning_effort: 'deep' }],
    ['options of the provider', { providerOptions: { acme: { user: 'u' } } }, { user: 'u' }],
  ])('sends %s', async (_name, members, expected) => {
    await (await stream({ model: 'acme/ok', prompt: say('x'), ...members })).text();
    expect(lastRequest()).toMatchObject(expected);
  });

  test.each([
    [{ acme: { model: 'dearer' } }, 400, 'providerOptions.acme.model'],
    [{ acme: { reasoningEffort: 'deep' } }, 400, 'providerOptions.acme.reasoningEffort'],
    [{ openaiCompatible: { max_tokens: 1e9 } }, 400, 'providerOptions.openaiCompatible.max_tokens'],
    [{ acme: { api_base: 'http://attacker.example' } }, 400, 'providerOptions.acme.api_base'],
    [{ acme: { service_tier: 'priority' } }, 422, 'providerOptions.acme.service_tier'],
  ])('refuses provider options that the call itself decides: %j', async (providerOptions, status, param) => {
    provider.reset();
    const response = await stream({ model: 'acme/ok', prompt: say('x'), providerOptions });
    expect(response.status).toBe(status);
    expect(await errorOf(response)).toMatchObject({ param });
    expect(provider.calls).toHaveLength(0);
  });
});

describe('an answer of ai.streamText', () => {
  test('forwards raw chunks only with includeRawChunks', async () => {
    const withRaw = await partsOf(
      await stream({ model: 'acme/ok', prompt: say('x'), includeRawChunks: true }),
    );
    expectWellFormed(withRaw);
    expect(withRaw.parts.filter((part) => part.type === 'raw').length).toBeGreaterThan(5);
    expect(
      (await partsOf(await stream({ model: 'acme/ok', prompt: say('x') }))).parts.some(
        (part) => part.type === 'raw',
      ),
    ).toBe(false);
  });

  test.each([
    ['acme/none', {}],
    ['acme/zero', { total: 0, text: 0, reasoning: 0 }],
    ['acme/negative', {}],
    ['acme/absurd', { total: 1e15, text: 1e15, reasoning: 0 }],
  ])('reports only valid token counts (%s)', async (model, outputTokens) => {
    const answer = await partsOf(await stream({ model, prompt: say('x') }));
    expectWellFormed(answer);
    expect((answer.parts.at(-1) as { usage: Part }).usage.outputTokens).toEqual(outputTokens);
  });
});

describe('a failure of ai.streamText', () => {
  test.each([
    ['acme/reset', 'upstream_truncated'],
    ['acme/no-done', 'upstream_truncated'],
    ['acme/no-finish', 'upstream_truncated'],
    ['acme/error', 'upstream_failed'],
    ['acme/utf8', 'upstream_failed'],
    ['acme/cut', 'upstream_failed'],
    ['acme/silence', 'upstream_timeout'],
  ])('ends the stream with an error part after a failure midway (%s)', async (model, code) => {
    const answer = await partsOf(await stream({ model, prompt: say('x') }));
    expectWellFormed(answer);
    expect(answer.parts.at(-2)).toMatchObject({
      type: 'error',
      error: { code, type: 'upstream_error', request_id: expect.stringMatching(/^req_/) },
    });
    expect(answer.parts.at(-1)).toMatchObject({ finishReason: { unified: 'error' } });
    expect(JSON.stringify(answer.parts)).not.toContain('CANARY');
  });

  test('reports the usage so far when a local model fails midway', async () => {
    const answer = await partsOf(
      await stream({ model: 'local/echo', prompt: say('@fail-after 2\na b c d') }),
    );
    expectWellFormed(answer);
    expect(answer.parts.at(-2)).toMatchObject({ type: 'error' });
    expect(answer.parts.at(-1)).toMatchObject({
      finishReason: { unified: 'error' },
      usage: { outputTokens: { total: 2 } },
    });
  });

  test.each([
    ['acme/first', 502, 'upstream_failed'],
    ['acme/refused', 400, 'context_length_exceeded'],
  ])('answers a failure before the first part with an error status (%s)', async (model, status, code) => {
    const response = await stream({ model, prompt: say('x') });
    expect(response.status).toBe(status);
    expect(await errorOf(response)).toMatchObject({ code });
  });
});

describe('a refusal of ai.streamText', () => {
  test('refuses an image for a model that accepts only text', async () => {
    const prompt = [{ role: 'user', content: [{ type: 'file', mediaType: 'image/png', data: 'aGk=' }] }];
    const response = await stream({ model: 'local/echo', prompt });
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({
      code: 'unsupported_by_model',
      param: 'prompt[0].content[0]',
    });
  });

  test('refuses an unknown specification version', async () => {
    expect(
      (
        await stream(
          { model: 'local/echo', prompt: say('x') },
          { 'ai-language-model-specification-version': '2' },
        )
      ).status,
    ).toBe(400);
  });
});
