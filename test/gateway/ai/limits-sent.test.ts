// Holds of calls whose output limit the gateway adds or raises, and refusals of members that a
// provider bills separately or a model lacks.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { errorOf, startAi, type World } from './world.ts';

const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
const efforts = ['none', 'low', 'medium', 'high'].map((id) => ({ id, name: id }));
const rates = { input: 1_000_000, output: 1_000_000 };

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const providerOf = (id: string, kind: string, members: object = {}) => ({
    id,
    kind,
    base_url: provider.url,
    ...members,
  });
  const modelOf = (id: string, members: object = {}) => ({
    id,
    provider: id.split('/')[0],
    upstream_model: 'ok',
    rates,
    ...members,
  });
  // For this older model name the SDK package raises the limit by tokens for reasoning.
  const olderModel = {
    upstream_model: 'claude-opus-4-20250514',
    max_output_tokens: 4_096,
    reasoning: { efforts, default_effort: 'none' },
  };
  const overrides = {
    model: { rates },
    providers: [
      providerOf('claude', 'anthropic', { output_limit_member: 'max_tokens' }),
      providerOf('plain', 'anthropic'),
      providerOf('plain-gpt', 'openai'),
      providerOf('plain-gemini', 'google'),
      providerOf('gemini', 'google'),
      providerOf('gpt', 'openai'),
    ],
    models: [
      modelOf('claude/older', olderModel),
      modelOf('plain/older', { ...olderModel, max_output_tokens: 1_000 }),
      modelOf('plain-gpt/ok', { max_output_tokens: 1_000 }),
      modelOf('plain-gemini/ok', { max_output_tokens: 1_000 }),
      modelOf('claude/to-acme', { fallbacks: ['acme/ok'] }),
      modelOf('claude/ok'),
      modelOf('claude/free', { rates: null }),
      modelOf('gemini/ok', { upstream_model: 'gemini-2.5-flash', rates: null }),
      modelOf('gpt/ok', { rates: null }),
      modelOf('gpt/priced'),
      modelOf('acme/free', { rates: null }),
    ],
  };
  world = await startAi({
    models: provider.modelsFile({ ok: 'ok' }, overrides),
    env: { ACME_API_KEY: 'x' },
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

const lastRequest = () =>
  JSON.parse(provider.lastCall().body.toString()) as {
    max_tokens?: number;
    thinking?: { budget_tokens?: number };
    tools?: { type?: string }[];
  };
const text = (members: object) =>
  world.post('/v1/ai/text', { model: 'claude/older', prompt: 'hi', ...members });

describe('an effort that raises the output limit', () => {
  test('holds credits for the limit that is sent', async () => {
    await (await text({ reasoning_effort: 'high', max_output_tokens: 100 })).text();
    const { max_tokens: limit = 0, thinking } = lastRequest();
    expect(limit).toBe(100 + (thinking?.budget_tokens ?? 0));
    expect(limit).toBeGreaterThan(1_000);
    expect(world.ledger.last().held).toBeGreaterThanOrEqual(BigInt(limit));
  });

  test('is a 402 before the call when the credits do not cover it', async () => {
    world.ledger.reset(1_000n);
    const response = await text({ reasoning_effort: 'high', max_output_tokens: 100 });
    expect(response.status).toBe(402);
    // The whole balance, including the first hold of the call itself.
    const error = await errorOf(response);
    expect(error['message']).toContain('and 1000 are available');
    expect(error['details']).toContainEqual({ path: 'affordable_credits', message: '1000' });
    expect(provider.calls).toEqual([]);
    expect([world.ledger.balance, world.ledger.held()]).toEqual([1_000n, 0n]);
  });

  test('keeps a limit that the gateway adds affordable', async () => {
    world.ledger.reset(50_000n);
    await (await text({ reasoning_effort: 'low' })).text();
    const { max_tokens: limit = 0, thinking } = lastRequest();
    expect(limit).toBeLessThanOrEqual(50_000);
    expect(limit).toBeGreaterThan(thinking?.budget_tokens ?? 0);
  });
});

describe('the longest answer that a models file declares', () => {
  test.each(['plain/older', 'plain-gpt/ok', 'plain-gemini/ok'])(
    'limits a model whose provider has no output_limit_member: %s',
    async (model) => {
      await (await text({ model })).text();
      expect(provider.lastCall().body.toString()).toMatch(
        /"(?:max_tokens|max_completion_tokens|maxOutputTokens)":1000\b/,
      );
      // 1,000 output tokens and a short input, at one credit per token.
      const { held: hold } = await world.ledger.until(1);
      expect(hold).toBeGreaterThanOrEqual(1_000n);
      expect(hold).toBeLessThan(1_100n);
    },
  );

  test('adds a limit to messages without one', async () => {
    await (
      await world.post('/v1/ai/messages', {
        model: 'plain/older',
        messages: [{ role: 'user', content: 'hi' }],
      })
    ).text();
    expect(lastRequest().max_tokens).toBe(1_000);
  });
});

describe('a JSON answer without a schema', () => {
  const format = { type: 'json' };
  const requests: [string, string, object][] = [
    [
      'response_format',
      'chat/completions',
      { messages: [{ role: 'user', content: 'hi' }], response_format: { type: 'json_object' } },
    ],
    [
      'response_format',
      'chat/completions',
      { messages: [{ role: 'user', content: 'hi' }], response_format: { type: 'json_object' }, stream: true },
    ],
    ['response_format', 'text', { prompt: 'hi', response_format: format }],
    ['responseFormat', 'stream', { prompt, responseFormat: format }],
  ];

  test.each(requests)(
    "is refused with its member for Anthropic's models: %s of %s",
    async (param, path, body) => {
      const response = await world.post(`/v1/ai/${path}`, { model: 'claude/ok', ...body });
      expect([response.status, await errorOf(response)]).toMatchObject([
        422,
        { code: 'unsupported_by_model', param },
      ]);
      expect(provider.calls).toEqual([]);
    },
  );

  test.each(requests)('falls back to a model that supports it: %s of %s', async (_param, path, body) => {
    const response = await world.post(`/v1/ai/${path}`, { model: 'claude/to-acme', ...body });
    expect(response.status).toBe(200);
    await response.text();
    expect(provider.calls.map((call) => call.path)).toEqual(['/v1/chat/completions']);
    expect(provider.lastCall().body.toString()).toContain('json_object');
  });
});

describe('tools of a provider in stream', () => {
  const tool = (id: string, overrides: object = {}) => [
    { type: 'provider', id, name: 'shell', args: {}, ...overrides },
  ];
  const stream = (model: string, tools: object[]) => world.post('/v1/ai/stream', { model, prompt, tools });

  test('of Anthropic are sent to Anthropic', async () => {
    const response = await stream('claude/ok', tool('anthropic.bash_20250124'));
    expect(response.status).toBe(200);
    await response.text();
    expect(lastRequest().tools).toMatchObject([{ type: 'bash_20250124' }]);
  });

  test('of Google are sent to Google', async () => {
    // The SDK package needs this model name, which the scripted provider lacks; only the request is
    // checked.
    await (await stream('gemini/ok', tool('google.code_execution'))).text();
    expect(provider.lastCall().body.toString()).toContain('codeExecution');
  });

  test.each(['acme/ok', 'local/echo', 'gemini/ok', 'gpt/ok'])(
    'are 422 for a model whose provider does not have them: %s',
    async (model) => {
      const response = await stream(model, tool('anthropic.bash_20250124'));
      expect(response.status).toBe(422);
      expect(await errorOf(response)).toMatchObject({ code: 'unsupported_by_model', param: 'tools[0].id' });
      expect(provider.calls).toEqual([]);
    },
  );

  test('of OpenAI use the responses format without storage', async () => {
    const response = await stream('gpt/ok', tool('openai.web_search'));
    expect(response.status).toBe(200);
    const events = await response.text();
    expect(events).toContain('Hello ');
    expect(events.trimEnd()).toMatch(/\[DONE\]$/);
    expect(provider.lastCall().path).toBe('/v1/responses');
    expect(JSON.parse(provider.lastCall().body.toString())).toMatchObject({
      tools: [{ type: 'web_search' }],
      store: false,
    });
  });

  test('of OpenAI store the answer when the caller requests it', async () => {
    await (
      await world.post('/v1/ai/stream', {
        model: 'gpt/ok',
        prompt,
        tools: tool('openai.web_search'),
        providerOptions: { openai: { store: true } },
      })
    ).text();
    expect(JSON.parse(provider.lastCall().body.toString())).toMatchObject({ store: true });
  });

  test('are what makes a call use the responses format of OpenAI', async () => {
    await (await world.post('/v1/ai/stream', { model: 'gpt/ok', prompt })).text();
    expect(provider.lastCall().path).toBe('/v1/chat/completions');
  });

  test.each([
    'openai.web_search',
    'openai.web_search_preview',
    'openai.code_interpreter',
    'openai.file_search',
    'openai.image_generation',
    'openai.mcp',
    'openai.shell',
  ])('are refused on a priced model of OpenAI: %s', async (id) => {
    const response = await stream('gpt/priced', tool(id));
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({ code: 'unpriced_member', param: 'tools[0].id' });
    expect(provider.calls).toEqual([]);
  });

  test('are accepted on a priced model if the caller runs them', async () => {
    expect((await stream('gpt/priced', tool('openai.custom', { args: { name: 'shell' } }))).status).toBe(200);
    expect(JSON.parse(provider.lastCall().body.toString())).toMatchObject({ tools: [{ type: 'custom' }] });
  });

  test('are refused on a priced model if billed by use', async () => {
    const response = await stream('claude/ok', tool('anthropic.web_search_20250305'));
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({ code: 'unpriced_member' });
  });

  test('are accepted on a free model if billed by use', async () => {
    expect((await stream('claude/free', tool('anthropic.web_search_20250305'))).status).toBe(200);
  });
});

describe('tools of a provider in chat completions', () => {
  const chat = (model: string, tools: object[]) =>
    world.post('/v1/ai/chat/completions', { model, messages: [{ role: 'user', content: 'hi' }], tools });

  test.each([
    ['gpt/ok', 'web_search', 'unsupported_by_model', '/v1/ai/responses or /v1/ai/stream'],
    ['gpt/ok', 'mcp', 'unsupported_by_model', '/v1/ai/responses'],
    ['gpt/priced', 'code_interpreter', 'unpriced_member', 'without a price'],
    ['acme/ok', 'browser_search', 'unpriced_member', 'without a price'],
    ['claude/free', 'web_search_20250305', 'unsupported_by_model', '/v1/ai/messages or /v1/ai/stream'],
    ['claude/ok', 'bash_20250124', 'unsupported_by_model', '/v1/ai/messages'],
    ['gemini/ok', 'google_search', 'unsupported_by_model', '/v1/ai/stream'],
    ['gemini/ok', 'custom', 'unsupported_by_model', 'type custom'],
    ['local/echo', 'web_search', 'unsupported_by_model', 'type web_search'],
  ])('are refused with the route that supports them: %s, %s', async (model, type, code, words) => {
    const response = await chat(model, [{ type: 'function', function: { name: 'f' } }, { type }]);
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({
      code,
      param: 'tools[1].type',
      message: expect.stringContaining(words),
    });
    expect(provider.calls).toEqual([]);
  });

  test.each([
    ['acme/free', { type: 'browser_search' }],
    [
      'gpt/priced',
      {
        type: 'custom',
        custom: {
          name: 'sql',
          format: { type: 'grammar', grammar: { syntax: 'lark', definition: 'start: "x"' } },
        },
      },
    ],
  ])('are sent unchanged where the provider may have them: %s', async (model, tool) => {
    expect((await chat(model, [tool])).status).toBe(200);
    expect(JSON.parse(provider.lastCall().body.toString())).toMatchObject({ tools: [tool] });
  });
});

describe('members of chat completions', () => {
  test('are refused if they request audio, which has no price', async () => {
    const response = await world.post('/v1/ai/chat/completions', {
      model: 'gpt/priced',
      messages: [{ role: 'user', content: 'hi' }],
      modalities: ['text', 'audio'],
      audio: { voice: 'alloy', format: 'wav' },
    });
    expect([response.status, await errorOf(response)]).toMatchObject([
      422,
      { code: 'unpriced_member', param: 'audio' },
    ]);
    expect(provider.calls).toEqual([]);
  });

  test.each([
    ['web_search_options', {}],
    ['min_p', 0.1],
    ['thinking', { type: 'enabled' }],
    ['logit_bias', { 5: 1 }],
    ['modalities', ['text', 'audio']],
    ['service_tier', 'flex'],
    ['tool_choice', { type: 'custom', custom: { name: 'f' } }],
  ])('are refused if a translated model does not support them: %s', async (member, value) => {
    const response = await world.post('/v1/ai/chat/completions', {
      model: 'gemini/ok',
      messages: [{ role: 'user', content: 'hi' }],
      [member]: value,
    });
    expect(response.status).toBe(422);
    // The provider bills this member separately under another name.
    const code = member === 'service_tier' ? 'unpriced_member' : 'unsupported_by_model';
    expect(await errorOf(response)).toMatchObject({
      code,
      param: expect.stringMatching(new RegExp(`^${member}`)),
    });
    expect(provider.calls).toEqual([]);
  });
});
