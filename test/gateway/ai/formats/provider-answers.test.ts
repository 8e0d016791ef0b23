// Providers whose answers deviate from their format: errors with status 200, failed answers,
// and other names for usage. Every route to such a provider must report and charge them alike.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { errorOf, eventsOf, partsOf, startAi, testResilience, type World } from '../world.ts';

const messages = [{ role: 'user', content: 'hi' }];
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
const data = (value: object | string) =>
  `data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`;
const chunk = (delta: object, finish: string | null = null, overrides: object = {}) =>
  data({
    id: 'c',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'x',
    choices: [{ index: 0, delta, finish_reason: finish }],
    ...overrides,
  });
const completion = (message: object, overrides: object = {}, choice: object = {}) =>
  JSON.stringify({
    id: 'c',
    object: 'chat.completion',
    created: 1,
    model: 'x',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: 'hi', ...message },
        finish_reason: 'stop',
        ...choice,
      },
    ],
    ...overrides,
  });
const verbatimModel = (body: { sse?: string; json?: string }) =>
  `verbatim?${new URLSearchParams(body).toString()}`;

// Moonshot reports cached tokens in a member of its own.
const moonshot = { prompt_tokens: 1_000, completion_tokens: 10, total_tokens: 1_010, cached_tokens: 900 };
// Some servers count reasoning on top of the completion, which only the total shows.
const separateReasoning = {
  prompt_tokens: 10,
  completion_tokens: 4,
  total_tokens: 314,
  completion_tokens_details: { reasoning_tokens: 300 },
};
const failure = { error: { message: 'overloaded', code: 503 } };
const failedAnswer = {
  id: 'r',
  object: 'response',
  status: 'failed',
  model: 'x',
  output: [],
  error: { code: 'server_error', message: 'x' },
  usage: null,
};

const scripts: Record<string, string> = {
  overloaded: verbatimModel({ json: JSON.stringify(failure), sse: data(failure) }),
  'kind-of-error': verbatimModel({
    json: JSON.stringify({ object: 'error', code: 503, message: 'x' }),
    sse: chunk({ content: 'x' }) + data({ object: 'error', code: 500, message: 'x' }) + data('[DONE]'),
  }),
  'named-error': verbatimModel({
    sse: `${chunk({ content: 'x' })}event: error\n${data({ message: 'x' })}${data('[DONE]')}`,
  }),
  'gave-up': verbatimModel({
    json: completion({ content: '' }, {}, { finish_reason: 'error' }),
    sse: chunk({ content: 'x' }) + chunk({}, 'error') + data('[DONE]'),
  }),
  'no-reason': verbatimModel({ sse: chunk({ content: 'x' }) + data('[DONE]') }),
  'no-last-line': verbatimModel({ sse: `${chunk({ content: 'x' })}${chunk({}, 'stop')}data: [DONE]` }),
  moonshot: verbatimModel({
    json: completion({}, { usage: moonshot }),
    sse:
      chunk({ content: 'x' }) +
      chunk({}, 'stop') +
      chunk({}, null, { choices: [], usage: moonshot }) +
      data('[DONE]'),
  }),
  'separate-reasoning': verbatimModel({
    json: completion({}, { usage: separateReasoning }),
    sse:
      chunk({ content: 'x' }) +
      chunk({}, 'stop') +
      chunk({}, null, { choices: [], usage: separateReasoning }) +
      data('[DONE]'),
  }),
  'negative-usage': verbatimModel({
    json: completion(
      { content: 'x'.repeat(400) },
      { usage: { prompt_tokens: -1, completion_tokens: -1, total_tokens: -2 } },
    ),
  }),
  long: verbatimModel({ json: completion({ content: 'x'.repeat(9 * 1024 * 1024) }) }),
  failed: verbatimModel({
    json: JSON.stringify(failedAnswer),
    sse:
      data({ type: 'response.created', response: { ...failedAnswer, status: 'in_progress', error: null } }) +
      data({ type: 'response.failed', response: failedAnswer }),
  }),
  repeating: verbatimModel({
    sse:
      data({
        type: 'response.created',
        response: { ...failedAnswer, instructions: 'x'.repeat(3 * 1024 * 1024) },
      }) +
      data({
        type: 'response.completed',
        response: { ...failedAnswer, status: 'completed', usage: { input_tokens: 1, output_tokens: 1 } },
      }),
  }),
  'stored-context': verbatimModel({
    json: JSON.stringify({
      ...failedAnswer,
      status: 'completed',
      error: null,
      usage: { input_tokens: 50_000, output_tokens: 10 },
    }),
  }),
};

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const rates = { input: 1_000_000, cached_input: 100_000, output: 2_000_000 };
  const modelsOf = (owner: string) =>
    Object.entries(scripts).map(([name, script]) => ({
      id: `${owner}/${name}`,
      provider: owner,
      upstream_model: script,
      rates,
      max_output_tokens: 1_000,
      context_window: 128_000,
    }));
  const entry = {
    kind: 'openai-compatible',
    base_url: provider.url,
    usage: 'ask',
    output_limit_member: 'max_tokens',
  };
  world = await startAi({
    models: JSON.stringify({
      // One server as two providers: its format passes through for one and is translated for the
      // other.
      providers: [
        { ...entry, id: 'passed', formats: ['chat', 'responses'] },
        { ...entry, id: 'translated', formats: [] },
        { id: 'gemini', kind: 'google', base_url: provider.url, output_limit_member: 'maxOutputTokens' },
        { id: 'claude', kind: 'anthropic', base_url: provider.url },
      ],
      models: [
        ...modelsOf('passed'),
        ...modelsOf('translated'),
        { id: 'claude/ok', provider: 'claude', upstream_model: 'ok', rates },
        {
          id: 'passed/speech',
          provider: 'passed',
          upstream_model: 'speech-long?mb=40',
          rates: { speech_character: 10 },
          modalities: ['tts'],
        },
        {
          id: 'gemini/malformed',
          provider: 'gemini',
          upstream_model: 'malformed',
          rates,
          max_output_tokens: 1_000,
        },
      ],
    }),
    env: {},
    resilience: testResilience,
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

const chat = (model: string, members: object = {}) =>
  world.post('/v1/ai/chat/completions', { model, messages, ...members });

describe.each(['passed', 'translated'])('a provider of chat completions, %s', (owner) => {
  test.each(['overloaded', 'kind-of-error'])(
    'is retried and charged nothing for an error with status 200: %s',
    async (name) => {
      const response = await chat(`${owner}/${name}`);
      expect([response.status, (await errorOf(response)).code]).toEqual([502, 'upstream_failed']);
      expect(provider.calls).toHaveLength(3);
      expect(world.ledger.last()).toMatchObject({ charged: 0n, facts: { outcome: 'upstream_failed' } });
    },
  );

  test.each(['kind-of-error', 'named-error'])(
    'fails a stream that has an error before its clean end: %s',
    async (name) => {
      const events = await eventsOf(await chat(`${owner}/${name}`, { stream: true }));
      expect(JSON.parse(events.at(-1) ?? '')).toMatchObject({ error: { code: 'upstream_failed' } });
      expect(events).not.toContain('[DONE]');
      // The caller receives and pays for the text before the error.
      expect(events.join()).toContain('"content":"x"');
      expect(world.ledger.last().facts).toMatchObject({
        outcome: 'upstream_failed',
        estimated: true,
        tokens: { output: 1 },
      });
    },
  );

  test('may omit the empty line after the end', async () => {
    const events = await eventsOf(await chat(`${owner}/no-last-line`, { stream: true }));
    expect(events.at(-1)).toBe('[DONE]');
    expect(world.ledger.last().facts.outcome).toBe('completed');
  });

  test.each([
    // 100 tokens of input, 900 cached at a tenth, 10 of output at double.
    ['moonshot', 100 + 90 + 20],
    // 10 tokens of input; 4 of output and 300 of reasoning at double.
    ['separate-reasoning', 10 + 8 + 600],
  ])('is charged alike whole and streamed: %s', async (name, credits) => {
    await (await chat(`${owner}/${name}`)).text();
    expect(world.ledger.last().charged).toBe(BigInt(credits));
    await (await chat(`${owner}/${name}`, { stream: true })).text();
    expect(world.ledger.last().charged).toBe(BigInt(credits));
    await (await world.post('/v1/ai/text', { model: `${owner}/${name}`, prompt: 'hi' })).text();
    expect(world.ledger.last().charged).toBe(BigInt(credits));
  });

  test('is charged by the text of its answer for negative usage', async () => {
    expect((await chat(`${owner}/negative-usage`)).status).toBe(200);
    const { estimated, tokens } = world.ledger.last().facts;
    expect(estimated).toBe(true);
    // 400 letters; the number of tokens is an estimate.
    expect(tokens.output).toBeGreaterThan(20);
  });

  test('is charged up to the limit for a long text without usage', async () => {
    expect((await chat(`${owner}/long`)).status).toBe(200);
    expect(world.ledger.last().facts).toMatchObject({
      outcome: 'completed',
      estimated: true,
      tokens: { output: 1_000 },
    });
  });
});

describe('a model that fails during its answer', () => {
  test.each(['translated/gave-up', 'gemini/malformed'])(
    'is an error in chat completions: %s',
    async (model) => {
      const response = await chat(model);
      expect([response.status, (await errorOf(response)).code]).toEqual([502, 'upstream_failed']);
      expect(world.ledger.last().charged).toBe(0n);
      const streamText = await (await chat(model, { stream: true })).text();
      expect(streamText).toContain('"code":"upstream_failed"');
      expect(streamText).not.toContain('[DONE]');
      expect(world.ledger.last().facts.outcome).toBe('upstream_failed');
    },
  );

  test('costs nothing before its first word', async () => {
    expect((await chat('gemini/malformed', { stream: true })).status).toBe(502);
    expect(world.ledger.last().charged).toBe(0n);
  });

  test('is an error part in formats that have one', async () => {
    const { parts, done } = await partsOf(
      await world.post('/v1/ai/stream', { model: 'translated/gave-up', prompt }),
    );
    expect(done).toBe(true);
    expect(parts.at(-1)).toMatchObject({ type: 'finish', finishReason: { unified: 'error', raw: 'error' } });
    expect(world.ledger.last().facts.outcome).toBe('upstream_failed');
  });

  test('counts as failed without a reason for its end', async () => {
    const events = await eventsOf(await chat('translated/no-reason', { stream: true }));
    expect(events).not.toContain('[DONE]');
    expect(world.ledger.last().facts.outcome).toBe('upstream_failed');
  });
});

describe('a response', () => {
  test('costs only the reported usage when it failed', async () => {
    const response = await world.post('/v1/ai/responses', { model: 'passed/failed', input: 'hi' });
    expect([response.status, response.headers.get('x-townhall-credits')]).toEqual([200, '0']);
    expect(world.ledger.last()).toMatchObject({ charged: 0n, facts: { outcome: 'upstream_failed' } });
    await (
      await world.post('/v1/ai/responses', { model: 'passed/failed', input: 'hi', stream: true })
    ).text();
    expect(world.ledger.last().facts.outcome).toBe('upstream_failed');
  });

  test('accepts events that repeat a long request', async () => {
    const events = await eventsOf(
      await world.post('/v1/ai/responses', { model: 'passed/repeating', input: 'hi', stream: true }),
    );
    expect(events).toHaveLength(2);
    expect(world.ledger.last().facts.outcome).toBe('completed');
  });

  test('is held and charged for stored context that the provider reads', async () => {
    const body = { model: 'passed/stored-context', prompt: { id: 'pmpt_1' } };
    await (await world.post('/v1/ai/responses', body)).text();
    // 50,000 input tokens at 1 credit and 10 output tokens at 2.
    expect(world.ledger.last()).toMatchObject({
      charged: 50_020n,
      overrun: 0n,
      facts: { estimated: false },
    });
  });

  test('is refused with a conversation that the provider stores', async () => {
    const response = await world.post('/v1/ai/responses', {
      model: 'passed/stored-context',
      input: 'hi',
      conversation: 'conv_1',
    });
    expect([response.status, (await errorOf(response)).param]).toEqual([422, 'conversation']);
  });
});

describe('speech', () => {
  test('releases its hold without a charge when it is too long', async () => {
    const response = await world.post(
      '/v1/ai/tts',
      { model: 'passed/speech', text: 'hello' },
      { headers: { accept: 'application/json' } },
    );
    expect([response.status, (await errorOf(response)).code]).toEqual([502, 'upstream_failed']);
    expect(world.ledger.last()).toMatchObject({ charged: 0n, facts: { outcome: 'upstream_failed' } });
    expect(world.ledger.held()).toBe(0n);
  });
});

describe('a request', () => {
  test('is refused when it repeats include_usage', async () => {
    const body =
      '{"model":"passed/moonshot","stream":true,' +
      '"stream_options":{"include_usage":true,"include_usage":false},' +
      `"messages":${JSON.stringify(messages)}}`;
    const response = await world.post('/v1/ai/chat/completions', body);
    expect([response.status, (await errorOf(response)).param]).toEqual([400, 'include_usage']);
    expect(provider.calls).toHaveLength(0);
  });

  test.each([
    ['/v1/ai/chat/completions', { messages, n: 128, max_tokens: 1e308 }],
    ['/v1/ai/responses', { input: 'hi', n: 1e308, max_output_tokens: 1e308 }],
  ])('is refused as too expensive for an impossible limit: %s', async (path, body) => {
    expect((await world.post(path, { model: 'passed/moonshot', ...body })).status).toBe(402);
  });

  test.each(['mcp_servers', 'speed', 'container'])(
    'is refused with members that the kind of provider bills separately: %s',
    async (name) => {
      const response = await world.post('/v1/ai/messages', {
        model: 'claude/ok',
        max_tokens: 10,
        messages,
        [name]: [],
      });
      expect([response.status, await errorOf(response)]).toMatchObject([
        422,
        { code: 'unpriced_member', param: name },
      ]);
      expect(provider.calls).toHaveLength(0);
    },
  );

  test('is refused with an invalid URL, named by its path', async () => {
    const response = await world.post('/v1/ai/text', {
      model: 'translated/moonshot',
      messages: [{ role: 'user', content: [{ type: 'image', media_type: 'image/png', url: 'http://[' }] }],
    });
    expect([response.status, (await errorOf(response)).param]).toEqual([400, 'messages[0].content[0].url']);
  });
});

describe('a conversation that is translated', () => {
  const lastMessages = () =>
    (JSON.parse(provider.lastCall().body.toString()) as { messages: Record<string, unknown>[] }).messages;

  test('keeps a refusal', async () => {
    await chat('translated/moonshot', {
      messages: [...messages, { role: 'assistant', content: null, refusal: 'I will not.' }, ...messages],
    });
    expect(lastMessages()[1]).toEqual({ role: 'assistant', content: 'I will not.' });
  });

  test('keeps a call without arguments', async () => {
    const call = { id: 'c1', type: 'function', function: { name: 'f', arguments: '' } };
    await chat('translated/moonshot', {
      messages: [
        ...messages,
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: 'c1', content: '' },
      ],
    });
    expect(lastMessages()[1]).toMatchObject({ tool_calls: [{ function: { name: 'f', arguments: '{}' } }] });
  });

  test('warns about a dropped member', async () => {
    const response = await chat('translated/moonshot', {
      messages: [{ role: 'user', name: 'bob', content: 'hi' }],
    });
    expect(response.headers.get('x-townhall-warnings')).toContain('messages[0].name');
  });

  test('is refused with a function_call, which translation would drop', async () => {
    const answer = await chat('translated/moonshot', {
      messages: [
        ...messages,
        { role: 'assistant', content: null, function_call: { name: 'f', arguments: '{}' } },
      ],
    });
    expect([answer.status, (await errorOf(answer)).param]).toEqual([422, 'messages[1].function_call']);
  });

  test('moves images of tool results into a user message after the results', async () => {
    const picture = { type: 'image-data', data: 'aGk=', mediaType: 'image/png' };
    const result = (toolCallId: string, value: object[]) => ({
      type: 'tool-result',
      toolCallId,
      toolName: 'look',
      output: { type: 'content', value },
    });
    const calls = ['c1', 'c2'].map((toolCallId) => ({
      type: 'tool-call',
      toolCallId,
      toolName: 'look',
      input: {},
    }));
    const content = [
      result('c1', [{ type: 'text', text: 'one' }, picture]),
      result('c2', [
        { type: 'text', text: 'two' },
        { type: 'text', text: 'more' },
      ]),
    ];
    await (
      await world.post('/v1/ai/stream', {
        model: 'translated/moonshot',
        prompt: [...prompt, { role: 'assistant', content: calls }, { role: 'tool', content }],
      })
    ).text();
    expect(lastMessages().slice(2)).toEqual([
      { role: 'tool', tool_call_id: 'c1', content: 'one' },
      { role: 'tool', tool_call_id: 'c2', content: 'two\nmore' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Files that the tool look returned in addition to its text (c1):' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,aGk=' } },
        ],
      },
    ]);
  });
});
