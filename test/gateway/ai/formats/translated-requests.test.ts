// Requests in one format for a provider of another format: each member is sent, refused, or
// reported in a warning. No member is dropped silently.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { errorOf, partsOf, startAi, type World } from '../world.ts';

const messages = [{ role: 'user', content: 'hi' }];
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
const schema = { type: 'object', properties: { city: { type: 'string' } } };
const tools = [{ type: 'function', function: { name: 'f', parameters: schema } }];

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const entry = (id: string, kind: string, overrides: object = {}) => ({
    id,
    kind,
    name: id,
    base_url: provider.url,
    output_limit_member: 'max_tokens',
    ...overrides,
  });
  world = await startAi({
    models: JSON.stringify({
      // The same servers as two providers: chat completions pass through for one and are translated
      // for the other.
      providers: [
        entry('acme-one', 'openai-compatible'),
        entry('acme-two', 'openai-compatible', { formats: [] }),
        entry('openai', 'openai'),
        entry('gpt', 'openai', { formats: ['responses'] }),
        entry('claude', 'anthropic'),
        entry('gemini', 'google', { name: 'Google' }),
      ],
      models: [
        ...['acme-one', 'acme-two', 'openai', 'gpt', 'claude', 'gemini'].map((id) => ({
          id: `${id}/ok`,
          provider: id,
          upstream_model: 'ok',
          rates: { input: 1_000_000, output: 1_000_000 },
          max_output_tokens: 1_000,
          context_window: 400_000,
        })),
        {
          id: 'openai/reasoning',
          provider: 'openai',
          upstream_model: 'reasoning',
          rates: null,
          reasoning: { efforts: [{ id: 'low', name: 'Low' }], default_effort: 'low' },
        },
      ],
    }),
    env: {},
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => {
  provider.reset();
  world.ledger.reset();
});

const lastRequest = () => JSON.parse(provider.lastCall().body.toString()) as Record<string, unknown>;
const chat = (owner: string, members: object) =>
  world.post('/v1/ai/chat/completions', { model: `${owner}/ok`, messages, ...members });
const stream = (owner: string, members: object) =>
  world.post('/v1/ai/stream', { model: `${owner}/ok`, prompt, ...members });

describe('parallel_tool_calls', () => {
  test.each(['acme-one', 'acme-two', 'openai', 'gpt'])(
    'is sent unchanged to a server of chat completions: %s',
    async (owner) => {
      for (const isParallel of [false, true]) {
        expect((await chat(owner, { tools, parallel_tool_calls: isParallel })).status).toBe(200);
        expect(lastRequest()).toMatchObject({ parallel_tool_calls: isParallel });
      }
      await chat(owner, { tools });
      expect(lastRequest()).not.toHaveProperty('parallel_tool_calls');
    },
  );

  test.each([
    [{}, 'auto'],
    [{ tool_choice: 'required' }, 'any'],
    [{ tool_choice: { type: 'function', function: { name: 'f' } } }, 'tool'],
  ])('becomes disable_parallel_tool_use for Anthropic %#', async (members, type) => {
    for (const streams of [false, true]) {
      const response = await chat('claude', {
        tools,
        parallel_tool_calls: false,
        stream: streams,
        ...members,
      });
      expect(response.status).toBe(200);
      await response.text();
      expect(lastRequest()).toMatchObject({ tool_choice: { type, disable_parallel_tool_use: true } });
    }
  });

  test('is not sent to Anthropic unless it is false', async () => {
    for (const choice of [{}, { parallel_tool_calls: true }, { parallel_tool_calls: null }]) {
      expect((await chat('claude', { tools, ...choice })).status).toBe(200);
      expect(provider.lastCall().body.toString()).not.toContain('disable_parallel_tool_use');
    }
  });

  test.each(['gemini/ok', 'local/echo'])('is refused by name if the format lacks it: %s', async (model) => {
    const response = await chat('gemini', { model, tools, parallel_tool_calls: false });
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({
      code: 'unsupported_by_model',
      param: 'parallel_tool_calls',
      message: expect.stringMatching(/^parallel_tool_calls cannot be false for this model/),
    });
    expect(provider.calls).toEqual([]);
  });

  test('is refused when it is not a boolean', async () => {
    expect(await errorOf(await chat('claude', { tools, parallel_tool_calls: 'no' }))).toMatchObject({
      code: 'invalid_request',
      param: 'parallel_tool_calls',
    });
  });

  test.each([
    [
      'claude',
      { anthropic: { disableParallelToolUse: true } },
      { tool_choice: { disable_parallel_tool_use: true } },
    ],
    ['openai', { openai: { parallelToolCalls: false } }, { parallel_tool_calls: false }],
  ])('can be a provider option in a stream: %s', async (owner, providerOptions, expected) => {
    const sdkTools = [{ type: 'function', name: 'f', inputSchema: schema }];
    await (await stream(owner, { tools: sdkTools, providerOptions })).text();
    expect(lastRequest()).toMatchObject(expected);
  });

  test('is disable_parallel_tool_use in messages', async () => {
    const tool_choice = { type: 'auto', disable_parallel_tool_use: true };
    const messageTools = [{ name: 'f', input_schema: schema }];
    const request = { model: 'claude/ok', max_tokens: 5, messages, tools: messageTools, tool_choice };
    await world.post('/v1/ai/messages', request);
    expect(lastRequest()).toMatchObject({ tool_choice });
  });

  test('passes through in responses', async () => {
    await world.post('/v1/ai/responses', { model: 'openai/ok', input: 'x', parallel_tool_calls: false });
    expect(lastRequest()).toMatchObject({ parallel_tool_calls: false });
  });
});

describe('strict schemas', () => {
  const format = (strict: boolean | null | undefined) => ({
    type: 'json_schema',
    json_schema: { name: 'n', schema, strict },
  });

  // A translated request has the default instead of null or an absent member.
  test.each([
    ['acme-one', [true, false, null, undefined]],
    ['openai', [true, false, null, undefined]],
    ['acme-two', [true, false, false, false]],
    ['gpt', [true, false, false, false]],
  ])("keep the request's strict member, or its default: %s", async (owner, expected) => {
    const values: unknown[] = [];
    for (const strict of [true, false, null, undefined]) {
      expect((await chat(owner, { response_format: format(strict) })).status).toBe(200);
      const { json_schema: jsonSchema } = lastRequest()['response_format'] as {
        json_schema: { strict?: boolean | null };
      };
      values.push(jsonSchema.strict);
    }
    expect(values).toEqual(expected);
  });

  test.each(['acme-one', 'acme-two', 'openai', 'gpt'])("keep a tool's strict member: %s", async (owner) => {
    for (const strict of [true, false, undefined]) {
      expect(
        (
          await chat(owner, {
            tools: [{ type: 'function', function: { name: 'f', parameters: schema, strict } }],
          })
        ).status,
      ).toBe(200);
      expect((lastRequest()['tools'] as { function: { strict?: boolean } }[])[0]?.function.strict).toBe(
        strict,
      );
    }
  });

  test('refuse a strict member that is not a boolean', async () => {
    expect(
      await errorOf(
        await chat('acme-two', {
          response_format: { type: 'json_schema', json_schema: { name: 'n', schema, strict: 'yes' } },
        }),
      ),
    ).toMatchObject({ code: 'invalid_request', param: 'response_format.json_schema.strict' });
  });
});

// Every member of a request of OpenAI's client, with a value other than its default.
const valuesByMember: Record<string, unknown> = {
  audio: { voice: 'alloy', format: 'mp3' },
  frequency_penalty: 0.75,
  function_call: 'auto',
  functions: [{ name: 'g' }],
  logit_bias: { 5: 1 },
  logprobs: true,
  max_completion_tokens: 123,
  max_tokens: 124,
  metadata: { k: 'label' },
  modalities: ['audio'],
  moderation: { model: 'm' },
  n: 2,
  parallel_tool_calls: false,
  prediction: { type: 'content', content: 'x' },
  presence_penalty: 0.5,
  prompt_cache_key: 'label',
  prompt_cache_options: { mode: 'explicit' },
  prompt_cache_retention: '24h',
  reasoning_effort: 'low',
  response_format: { type: 'json_object' },
  safety_identifier: 'label',
  seed: 77,
  service_tier: 'flex',
  stop: ['stopped'],
  store: true,
  stream_options: { include_obfuscation: false },
  temperature: 0.25,
  tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [] } },
  tools: [{ type: 'function', function: { name: 'named', parameters: schema } }],
  top_logprobs: 2,
  top_p: 0.5,
  user: 'label',
  verbosity: 'low',
  web_search_options: {},
};
// How the provider's request or a warning may name a member, if not by its own name.
const patternsByMember: Record<string, RegExp> = {
  max_completion_tokens: /123/,
  max_tokens: /124/,
  frequency_penalty: /frequency_?penalty/i,
  presence_penalty: /presence_?penalty/i,
  response_format: /json_object|application\/json|responseFormat/,
  seed: /seed/,
  stop: /stopped/,
  // The gateway sends `stream_options` of its own, to request the usage.
  stream_options: /include_obfuscation/,
  temperature: /0\.25/,
  tools: /named/,
  top_p: /0\.5/,
  parallel_tool_calls: /disable_parallel_tool_use|parallel_tool_calls/,
};

// Members that are valid only together with other members.
const requiredBeside: Record<string, object> = {
  stream_options: { stream: true },
  tool_choice: { tools },
  parallel_tool_calls: { tools },
};

describe.each(['acme-two', 'gpt', 'claude', 'gemini'])(
  'a request of chat completions that is translated, for %s',
  (owner) => {
    test.each(Object.entries(valuesByMember))('sends, refuses or warns about %s', async (member, value) => {
      const response = await chat(owner, { ...requiredBeside[member], [member]: value });
      if (response.status === 200) {
        await response.text();
        const warnings = response.headers.get('x-townhall-warnings') ?? '';
        const ownName = new RegExp(`"${member}":|(?:^|; )${member}\\b`, 'm');
        expect(`${provider.lastCall().body.toString()}\n${warnings}`).toMatch(
          patternsByMember[member] ?? ownName,
        );
      } else {
        expect(response.status).toBe(422);
        expect((await errorOf(response)).param).toMatch(new RegExp(`^${member}\\b`));
      }
    });

    test.each([
      [
        'messages[0].content[0].image_url.detail',
        {
          messages: [
            {
              role: 'user',
              content: [
                { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA', detail: 'low' } },
              ],
            },
          ],
        },
      ],
      [
        'messages[0].content[0].prompt_mark',
        { messages: [{ role: 'user', content: [{ type: 'text', text: 'hi', prompt_mark: true }] }] },
      ],
      [
        'messages[1].prompt_note',
        { messages: [...messages, { role: 'user', content: 'x', prompt_note: 'y' }] },
      ],
      [
        'tools[0].function.cache_control',
        { tools: [{ type: 'function', function: { name: 'f', cache_control: {} } }] },
      ],
      ['messages[0].name', { messages: [{ role: 'user', name: 'Ann', content: 'hi' }] }],
    ])('warns about dropped nested members: %s', async (path, request) => {
      const response = await chat(owner, request);
      expect([response.status, response.headers.get('x-townhall-warnings')]).toEqual([
        200,
        expect.stringContaining(path),
      ]);
    });

    test('does not warn about defaults or members copied from answers', async () => {
      const echoedMessage = { role: 'assistant', content: 'a', refusal: null, annotations: [], audio: null };
      const response = await chat(owner, {
        messages: [
          ...messages,
          echoedMessage,
          {
            role: 'user',
            content: [
              { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA', detail: 'auto' } },
            ],
          },
        ],
        user: null,
      });
      expect([response.status, response.headers.get('x-townhall-warnings')]).toEqual([200, null]);
    });

    test('refuses a call of a custom tool', async () => {
      const call = { id: 'c', type: 'custom', custom: { name: 'sql', input: 'select' } };
      const response = await chat(owner, {
        messages: [...messages, { role: 'assistant', content: null, tool_calls: [call] }],
      });
      expect([response.status, (await errorOf(response)).param]).toEqual([
        422,
        'messages[1].tool_calls[0].type',
      ]);
    });
  },
);

describe('provider options in a stream', () => {
  test.each([
    ['openai', { openai: { serviceTier: 'priority' } }, 'providerOptions.openai.serviceTier'],
    ['claude', { anthropic: { serviceTier: 'auto' } }, 'providerOptions.anthropic.serviceTier'],
    ['claude', { anthropic: { inferenceGeo: 'us' } }, 'providerOptions.anthropic.inferenceGeo'],
    ['claude', { anthropic: { speed: 'fast' } }, 'providerOptions.anthropic.speed'],
  ])('are refused in any spelling if they change the price: %s %#', async (owner, providerOptions, param) => {
    const response = await stream(owner, { providerOptions });
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({ code: 'unpriced_member', param });
    expect(provider.calls).toEqual([]);
  });

  test('select the responses format only if chat completions lack them', async () => {
    await (
      await stream('openai', {
        providerOptions: { openai: { instructions: 'Be brief.', truncation: 'auto' } },
      })
    ).text();
    expect(provider.lastCall().path).toBe('/v1/responses');
    expect(lastRequest()).toMatchObject({ instructions: 'Be brief.', truncation: 'auto', store: false });
    await (
      await stream('openai', { providerOptions: { openai: { user: 'u', reasoningSummary: null } } })
    ).text();
    expect(provider.lastCall().path).toBe('/v1/chat/completions');
  });

  test('raise the hold for context that the provider stores', async () => {
    await (await stream('openai', { maxOutputTokens: 10 })).text();
    const plainHold = world.ledger.last().held ?? 0n;
    await (
      await stream('openai', {
        maxOutputTokens: 10,
        providerOptions: { openai: { previousResponseId: 'resp_1' } },
      })
    ).text();
    // Stored context counts as up to 262,144 tokens.
    expect((world.ledger.last().held ?? 0n) - plainHold).toBeGreaterThan(200_000n);
  });
});

describe('a request of messages', () => {
  const request = { model: 'claude/ok', max_tokens: 5, messages };

  test.each(['fallbacks', 'service_tier', 'speed', 'inference_geo', 'container', 'mcp_servers'])(
    'is refused with a member that changes the price: %s',
    async (member) => {
      const response = await world.post('/v1/ai/messages', {
        ...request,
        [member]: [{ model: 'claude-opus-5' }],
      });
      expect(response.status).toBe(422);
      expect(await errorOf(response)).toMatchObject({ code: 'unpriced_member', param: member });
    },
  );

  test.each(['anthropic-workspace-id', 'anthropic-user-profile-id'])(
    'is 400 with a header that names another account: %s',
    async (header) => {
      const response = await world.post('/v1/ai/messages', request, { headers: { [header]: 'wrkspc_1' } });
      expect(response.status).toBe(400);
      expect(await errorOf(response)).toMatchObject({ code: 'invalid_request', param: header });
      expect(provider.calls).toEqual([]);
    },
  );

  test('raises the hold when it continues a thread of the provider', async () => {
    await world.post('/v1/ai/messages', { ...request, thread: { type: 'create' } });
    const firstHold = world.ledger.last().held ?? 0n;
    await world.post('/v1/ai/messages', {
      ...request,
      thread: { type: 'continue', previous_message_id: 'msg_1' },
    });
    expect((world.ledger.last().held ?? 0n) - firstHold).toBeGreaterThan(200_000n);
  });
});

describe("the reasoning of OpenAI's models", () => {
  const request = {
    model: 'openai/reasoning',
    prompt,
    providerOptions: { openai: { reasoningSummary: 'auto' } },
  };

  test('is returned by a stream that requests its summary', async () => {
    const { parts } = await partsOf(await world.post('/v1/ai/stream', request));
    expect(provider.lastCall().path).toBe('/v1/responses');
    expect(lastRequest()).toMatchObject({ reasoning: { effort: 'low', summary: 'auto' } });
    expect(parts.map((part) => part.type)).toEqual(
      expect.arrayContaining(['reasoning-start', 'reasoning-delta', 'reasoning-end', 'text-start']),
    );
    expect(parts.flatMap((part) => (part.type === 'reasoning-delta' ? [part['delta']] : [])).join('')).toBe(
      'Let me think.',
    );
  });

  test('is returned by a whole answer that requests its summary', async () => {
    const response = await world.post('/v1/ai/language-model', request, {
      headers: { 'ai-language-model-streaming': 'false' },
    });
    expect(await response.json()).toMatchObject({
      content: [{ type: 'reasoning', text: 'Let me think.' }, { type: 'text' }],
    });
  });
});
