// Each kind of provider through the caller's formats: requests, answers, tools, reasoning and errors.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { chunkOf, errorOf, eventsOf, partsOf, startAi, testResilience, type World } from '../world.ts';

const messages = [{ role: 'user', content: 'hi' }];
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
const key = 'CANARY-3c1f-key';
const efforts = { efforts: ['none', 'low', 'high'].map((id) => ({ id, name: id })), default_effort: 'none' };
const weather = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const picture =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

// The key header of each kind of provider, and the paths that answer without and with a stream.
const kinds = [
  {
    kind: 'openai',
    header: 'authorization',
    credential: `Bearer ${key}`,
    path: '/v1/chat/completions',
    streamPath: '/v1/chat/completions',
  },
  {
    kind: 'anthropic',
    header: 'x-api-key',
    credential: key,
    path: '/v1/messages',
    streamPath: '/v1/messages',
  },
  {
    kind: 'google',
    header: 'x-goog-api-key',
    credential: key,
    path: '/v1/models/ok:generateContent',
    streamPath: '/v1/models/ok:streamGenerateContent?alt=sse',
  },
] as const;

describe.each(kinds)('a provider of the kind $kind', ({ kind, header, credential, path, streamPath }) => {
  let provider: ScriptedProvider;
  let world: World;
  const model = (script: string) => `${kind}/${script.replace(/[~?].*$/, '')}`;
  beforeAll(async () => {
    provider = await startProvider();
    const openaiScripts: Partial<Record<string, string>> = { cut: 'reset?chunks=3', error: 'error-event' };
    const scripts = [
      'ok',
      'tools',
      'reasoning',
      'cut',
      'error',
      'error-first',
      'status~code=401',
      'never-headers',
    ];
    const models = {
      providers: [
        {
          id: kind,
          kind,
          api_key_env: 'THE_KEY',
          usage: kind === 'openai' ? 'ask' : 'none',
          output_limit_member: 'max_tokens',
        },
      ],
      models: [
        ...scripts.map((script) => ({
          id: model(script),
          provider: kind,
          upstream_model: (kind === 'openai' ? openaiScripts[script] : undefined) ?? script,
          rates: null,
          max_output_tokens: 777,
        })),
        { id: `${kind}/thinker`, provider: kind, upstream_model: 'ok', rates: null, reasoning: efforts },
      ],
    };
    world = await startAi({
      models: JSON.stringify(models),
      // The models file has no address; the environment overrides the kind's default.
      env: { THE_KEY: key, [`${kind.toUpperCase()}_BASE_URL`]: `${provider.url}/` },
      timeouts: { firstByteMs: 4_000, answerMs: 4_000 },
      resilience: testResilience,
    });
  });
  afterAll(async () => {
    await world.close();
    await provider.close();
  });
  beforeEach(() => provider.reset());
  const lastRequest = () => JSON.parse(provider.lastCall().body.toString()) as Record<string, unknown>;

  test('answers text in its own format with its own credential', async () => {
    const response = await world.post('/v1/ai/text', { model: `${kind}/ok`, prompt: 'hi' });
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({
      parts: [{ type: 'text', text: 'Hello from the provider.' }],
      metadata: { model: `${kind}/ok`, finish_reason: 'stop', usage: { output_tokens: 4 } },
    });
    expect(provider.lastCall().path).toBe(path);
    expect(provider.lastCall().headers[header]).toBe(credential);
    const credentials = ['authorization', 'x-api-key', 'x-goog-api-key'].filter(
      (name) => name in provider.lastCall().headers,
    );
    expect(credentials).toEqual([header]);
    // The call sets no output limit, so the model's own is sent.
    expect(JSON.stringify(lastRequest())).toContain('777');
  });

  // The scripted stream of chat completions has one output token more than the other formats.
  test('streams parts in order, with usage', async () => {
    const { parts, done } = await partsOf(await world.post('/v1/ai/stream', { model: `${kind}/ok`, prompt }));
    expect(done).toBe(true);
    expect(provider.lastCall().path).toBe(streamPath);
    expect(parts.filter((part) => part.type === 'text-delta').length).toBeGreaterThanOrEqual(3);
    expect(parts.at(-1)).toMatchObject({
      type: 'finish',
      finishReason: { unified: 'stop' },
      usage: { outputTokens: { total: kind === 'openai' ? 5 : 4 } },
    });
  });

  test('calls tools in text', async () => {
    const tool = { name: 'get_weather', input_schema: weather };
    expect(
      await (await world.post('/v1/ai/text', { model: `${kind}/tools`, prompt: 'hi', tools: [tool] })).json(),
    ).toMatchObject({
      parts: [{ type: 'tool-call', tool_name: 'get_weather', input: { city: 'Oslo' } }],
      metadata: { finish_reason: 'tool-calls' },
    });
    expect(JSON.stringify(lastRequest())).toContain('get_weather');
  });

  test('calls tools in streams', async () => {
    const { parts } = await partsOf(
      await world.post('/v1/ai/stream', {
        model: `${kind}/tools`,
        prompt,
        tools: [{ type: 'function', name: 'get_weather', inputSchema: weather }],
      }),
    );
    expect(parts.find((part) => part.type === 'tool-call')).toMatchObject({
      toolName: 'get_weather',
      input: '{"city":"Oslo"}',
    });
  });

  test('calls tools in chat completions', async () => {
    const tools = [{ type: 'function' as const, function: { name: 'get_weather', parameters: weather } }];
    const { choices } = await world
      .openai()
      .chat.completions.stream({ model: `${kind}/tools`, messages: [{ role: 'user', content: 'hi' }], tools })
      .finalChatCompletion();
    expect(choices[0]).toMatchObject({
      finish_reason: 'tool_calls',
      message: { tool_calls: [{ function: { name: 'get_weather', arguments: '{"city":"Oslo"}' } }] },
    });
  });

  test('accepts a conversation with a tool and an image', async () => {
    const turns = [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Where is this?' },
          { type: 'image', media_type: 'image/png', data: picture },
        ],
      },
      {
        role: 'assistant',
        content: [
          { type: 'tool-call', tool_call_id: 'c1', tool_name: 'get_weather', input: { city: 'Oslo' } },
        ],
      },
      { role: 'tool', content: [{ type: 'tool-result', tool_call_id: 'c1', output: { rain: true } }] },
    ];
    expect(
      (
        await world.post('/v1/ai/text', {
          model: `${kind}/ok`,
          messages: turns,
          tools: [{ name: 'get_weather', input_schema: weather }],
        })
      ).status,
    ).toBe(200);
    const body = provider.lastCall().body.toString();
    for (const expected of [picture, 'get_weather', 'rain', 'Where is this?'])
      expect(body).toContain(expected);
  });

  test('serves chat completions without a stream', async () => {
    const client = world.openai();
    const image = { type: 'image_url' as const, image_url: { url: `data:image/png;base64,${picture}` } };
    const completion = await client.chat.completions.create({
      model: `${kind}/ok`,
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: [{ type: 'text', text: 'hi' }, image] },
      ],
      response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: weather } },
    });
    expect(completion).toMatchObject({
      model: `${kind}/ok`,
      object: 'chat.completion',
      choices: [{ finish_reason: 'stop' }],
    });
    expect(provider.lastCall().body.toString()).toContain(picture);
  });

  test('serves streamed chat completions', async () => {
    const events = await eventsOf(
      await world.post('/v1/ai/chat/completions', {
        model: `${kind}/ok`,
        messages,
        stream: true,
        stream_options: { include_usage: true },
      }),
    );
    expect(events.at(-1)).toBe('[DONE]');
    expect(
      events
        .slice(0, -1)
        .map((event) => (chunkOf(event).choices[0]?.delta.content as string | undefined) ?? '')
        .join(''),
    ).toMatch(/^Hello from the provider\.$|^tok0 /);
    expect(chunkOf(events.at(-2)).usage).toMatchObject({ completion_tokens: kind === 'openai' ? 5 : 4 });
  });

  test('streams its reasoning as reasoning', async () => {
    const providerOptions = kind === 'openai' ? { openai: { reasoningSummary: 'auto' } } : {};
    const { parts } = await partsOf(
      await world.post('/v1/ai/stream', { model: `${kind}/reasoning`, prompt, providerOptions }),
    );
    expect(parts.map((part) => part.type)).toEqual(
      expect.arrayContaining(['reasoning-start', 'reasoning-delta', 'reasoning-end', 'text-start']),
    );
  });

  test('returns its reasoning in text', async () => {
    // This format cannot request a summary of the reasoning, so the call goes to OpenAI's chat completions,
    // where the package reads no reasoning. The next test passes the provider's answer through.
    const reasoning = kind === 'openai' ? [] : [{ type: 'reasoning', text: 'Let me think.' }];
    expect(
      await (await world.post('/v1/ai/text', { model: `${kind}/reasoning`, prompt: 'hi' })).json(),
    ).toMatchObject({ parts: [...reasoning, { type: 'text' }] });
  });

  test('returns its reasoning in chat completions', async () => {
    const completion = await world
      .openai()
      .chat.completions.create({ model: `${kind}/reasoning`, messages: [{ role: 'user', content: 'hi' }] });
    // OpenAI's own format has no such member; a server's additional members pass through.
    expect(completion.choices[0]?.message).toMatchObject({
      reasoning_content: expect.stringContaining('Let me think.'),
    });
  });

  const askThinker = (members: object = {}) =>
    world.post('/v1/ai/text', { model: `${kind}/thinker`, prompt: 'hi', ...members });

  test('receives the requested effort', async () => {
    await askThinker({ reasoning_effort: 'high' });
    expect(JSON.stringify(lastRequest())).toMatch(
      /"reasoning_effort":"high"|"thinking":\{|"thinkingConfig":\{/,
    );
  });

  test('receives the default effort when the call requests none', async () => {
    await askThinker({ reasoning_effort: 'none' });
    const defaultRequest = lastRequest();
    await askThinker();
    expect(lastRequest()).toEqual(defaultRequest);
  });

  test('receives no effort from chat completions that request none', async () => {
    await world.post('/v1/ai/chat/completions', { model: `${kind}/thinker`, messages });
    expect(JSON.stringify(lastRequest())).not.toMatch(/reasoning_effort|"thinking"|thinkingConfig/);
  });

  test('refuses an effort that the model lacks', async () => {
    expect((await askThinker({ reasoning_effort: 'extreme' })).status).toBe(422);
    expect(provider.calls).toHaveLength(0);
  });

  test.each([
    ['cut', 'upstream_truncated'],
    ['error', 'upstream_failed'],
  ])('fails an incomplete answer: %s', async (script, code) => {
    const { parts, done } = await partsOf(
      await world.post('/v1/ai/stream', { model: `${kind}/${script}`, prompt }),
    );
    expect(done).toBe(true);
    expect(parts.at(-2)).toMatchObject({ type: 'error', error: { code } });
    expect(parts.at(-1)).toMatchObject({ type: 'finish', finishReason: { unified: 'error' } });
    const events = await eventsOf(
      await world.post('/v1/ai/chat/completions', { model: `${kind}/${script}`, messages, stream: true }),
    );
    expect(events).not.toContain('[DONE]');
    expect(chunkOf(events.at(-1)).error).toMatchObject({ code });
  });

  test('retries a failure before the first part', async () => {
    const response = await world.post('/v1/ai/stream', { model: `${kind}/error-first`, prompt });
    expect(response.status).toBe(502);
    // A call and two retries: OpenAI's code server_error and the overload of the other two are temporary failures.
    expect(provider.calls).toHaveLength(3);
  });

  test('reports refused credentials without the key', async () => {
    expect(
      await errorOf(await world.post('/v1/ai/text', { model: `${kind}/status`, prompt: 'hi' })),
    ).toMatchObject({ code: 'provider_credentials' });
    expect(world.logged.join('')).not.toContain(key);
  });

  test('answers 504 when no answer begins in time', async () => {
    const response = await world.post('/v1/ai/text', { model: `${kind}/never-headers`, prompt: 'hi' });
    expect(response.status).toBe(504);
  });

  test('is not called with provider options that override the call', async () => {
    for (const members of [
      { thinking: { type: 'enabled' } },
      { baseURL: 'http://attacker.example' },
      { effort: 'max' },
    ]) {
      const response = await world.post('/v1/ai/stream', {
        model: `${kind}/ok`,
        prompt,
        providerOptions: { [kind]: members },
      });
      expect(response.status).toBe(400);
    }
    expect(provider.calls).toHaveLength(0);
  });
});

describe('a setting that a model does not support', () => {
  test('is reported in every format', async () => {
    const provider = await startProvider();
    const models = JSON.stringify({
      providers: [{ id: 'anthropic', kind: 'anthropic', base_url: provider.url }],
      models: [{ id: 'anthropic/ok', provider: 'anthropic', upstream_model: 'ok', rates: null }],
    });
    const world = await startAi({ models, env: {} });
    try {
      for (const stream of [false, true]) {
        const chat = await world.post('/v1/ai/chat/completions', {
          model: 'anthropic/ok',
          messages,
          seed: 7,
          stream,
        });
        expect(chat.headers.get('x-townhall-warnings')).toContain('seed');
        await chat.text();
      }
      expect(
        await (await world.post('/v1/ai/text', { model: 'anthropic/ok', prompt: 'hi', seed: 7 })).json(),
      ).toMatchObject({ metadata: { warnings: expect.arrayContaining([expect.stringContaining('seed')]) } });
      const { parts } = await partsOf(
        await world.post('/v1/ai/stream', { model: 'anthropic/ok', prompt, seed: 7 }),
      );
      expect(parts[0]).toMatchObject({
        type: 'stream-start',
        warnings: expect.arrayContaining([expect.objectContaining({ type: 'unsupported', feature: 'seed' })]),
      });
    } finally {
      await world.close();
      await provider.close();
    }
  });
});
