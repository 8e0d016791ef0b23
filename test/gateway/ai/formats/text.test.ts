// The gateway's own format at ai.generateText: answers, options, efforts and refusals.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { errorOf, startAi, type World } from '../world.ts';

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const scripts = {
    ok: 'ok',
    mirror: 'mirror',
    reasoning: 'reasoning',
    cached: 'usage-cached',
    negative: 'usage-negative',
    none: 'usage-none',
    tools: 'tools',
  };
  const reasoning = {
    efforts: [
      { id: 'low', name: 'Low' },
      { id: 'deep', name: 'Deep' },
    ],
    default_effort: 'low',
  };
  const models = [
    { id: 'acme/thinker', provider: 'acme', upstream_model: 'mirror', rates: null, reasoning },
    { id: 'acme/chat-only', provider: 'acme', upstream_model: 'ok', rates: null, modalities: ['openai'] },
  ];
  world = await startAi({ models: provider.modelsFile(scripts, { models }) });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
const text = (body: object) => world.post('/v1/ai/text', body);
const requestFor = async (body: object) => {
  expect((await text(body)).status).toBe(200);
  return JSON.parse(provider.lastCall().body.toString()) as Record<string, unknown>;
};

describe('ai.generateText', () => {
  test('answers with a message', async () => {
    const response = await text({ model: 'local/echo', prompt: 'Good morning' });
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      id: expect.stringMatching(/^msg_[0-9a-z]{26}$/),
      role: 'assistant',
      parts: [{ type: 'text', text: 'Good morning' }],
      metadata: {
        model: 'local/echo',
        finish_reason: 'stop',
        usage: {
          input_tokens: 2,
          cached_input_tokens: 0,
          cache_write_tokens: 0,
          output_tokens: 2,
          reasoning_tokens: 0,
        },
        credits: 0,
        attempts: [{ model: 'local/echo', outcome: 'answered' }],
      },
    });
  });

  test('sends the options to the provider', async () => {
    const body = await requestFor({
      model: 'acme/mirror',
      system: 'Be brief.',
      prompt: 'hi',
      max_output_tokens: 50,
      temperature: 0.5,
      stop: ['x'],
      seed: 7,
    });
    expect(body).toMatchObject({
      model: 'mirror',
      max_tokens: 50,
      temperature: 0.5,
      stop: ['x'],
      seed: 7,
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'hi' },
      ],
    });
    expect(body).not.toHaveProperty('reasoning_effort');
  });

  test('names the model by its id in the catalog', async () => {
    expect(await (await text({ model: 'acme/ok', prompt: 'hi' })).json()).toMatchObject({
      metadata: { model: 'acme/ok' },
    });
  });

  test('accepts a conversation instead of a prompt', async () => {
    const messages = [
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'b' },
      { role: 'user', content: 'c' },
    ];
    expect((await requestFor({ model: 'acme/mirror', messages })).messages).toEqual(messages);
  });
});

describe('the effort of ai.generateText', () => {
  test('sends the requested effort or the default', async () => {
    expect(await requestFor({ model: 'acme/thinker', prompt: 'x' })).toMatchObject({
      reasoning_effort: 'low',
    });
    expect(await requestFor({ model: 'acme/thinker', prompt: 'x', reasoning_effort: 'deep' })).toMatchObject({
      reasoning_effort: 'deep',
    });
  });

  test.each([
    ['acme/thinker', 'must be one of low, deep'],
    ['local/echo', 'must be one of low, high'],
  ])('refuses an effort that %s lacks and names the allowed ones', async (model, message) => {
    const response = await text({ model, prompt: 'x', reasoning_effort: 'extreme' });
    expect(response.status).toBe(422);
    expect(response.headers.get('x-should-retry')).toBe('false');
    expect(await errorOf(response)).toMatchObject({
      code: 'unsupported_reasoning_effort',
      param: 'reasoning_effort',
      details: [{ path: 'reasoning_effort', message }],
    });
  });

  test('refuses an effort for a model without levels', async () => {
    const response = await text({ model: 'acme/ok', prompt: 'x', reasoning_effort: 'low' });
    expect(response.status).toBe(422);
    expect((await errorOf(response)).message).toContain('no reasoning efforts');
  });
});

describe('an answer of ai.generateText', () => {
  test('returns reasoning as a part of its own', async () => {
    expect(await (await text({ model: 'acme/reasoning', prompt: 'x' })).json()).toMatchObject({
      parts: [
        { type: 'reasoning', text: 'Let me think. Done.' },
        { type: 'text', text: 'Forty-two.' },
      ],
    });
  });

  test('counts each token in only one kind', async () => {
    expect(await (await text({ model: 'acme/cached', prompt: 'x' })).json()).toMatchObject({
      metadata: {
        usage: {
          input_tokens: 40,
          cached_input_tokens: 60,
          cache_write_tokens: 0,
          output_tokens: 10,
          reasoning_tokens: 20,
        },
      },
    });
  });

  test.each(['acme/negative', 'acme/none'])(
    'reports zero tokens for invalid or missing counts (%s)',
    async (model) => {
      expect(await (await text({ model, prompt: 'x' })).json()).toMatchObject({
        metadata: { usage: { input_tokens: 0, output_tokens: 0 } },
      });
    },
  );

  test('returns a call of a tool that was not offered', async () => {
    expect(await (await text({ model: 'acme/tools', prompt: 'x' })).json()).toMatchObject({
      parts: [{ type: 'tool-call', tool_name: 'get_weather', input: { city: 'Oslo' } }],
      metadata: { finish_reason: 'tool-calls' },
    });
  });
});

describe('a refusal of ai.generateText', () => {
  test('counts messages without the system prompt', async () => {
    const image = { type: 'image', media_type: 'image/png', data: 'iVBORw0KGgo=' };
    const response = await text({
      model: 'local/echo',
      system: 'Be brief.',
      messages: [{ role: 'user', content: [image] }],
    });
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({ param: 'messages[0].content[0]' });
  });

  test.each<[string, object, string, string]>([
    ['neither a prompt nor messages', {}, 'prompt', 'is required, or `messages` in its place'],
    [
      'a prompt together with messages',
      { prompt: 'x', messages: [{ role: 'user', content: 'y' }] },
      'messages',
      'cannot be combined with `prompt`',
    ],
    [
      'a file without content',
      { messages: [{ role: 'user', content: [{ type: 'image', media_type: 'image/png' }] }] },
      'messages[0].content[0].data',
      'is required, or `url` in its place',
    ],
    [
      'a file with both data and a URL',
      {
        messages: [
          {
            role: 'user',
            content: [
              { type: 'image', media_type: 'image/png', data: 'AAAA', url: 'https://example.com/a.png' },
            ],
          },
        ],
      },
      'messages[0].content[0].url',
      'cannot be combined with `data`',
    ],
    [
      'a URL with an unsupported scheme',
      {
        messages: [
          {
            role: 'user',
            content: [{ type: 'image', media_type: 'image/png', url: 'ftp://example.com/a.png' }],
          },
        ],
      },
      'messages[0].content[0].url',
      'must match the pattern ^[Hh][Tt][Tt][Pp][Ss]?://',
    ],
    [
      'an unknown kind of answer',
      { prompt: 'x', response_format: { type: 'xml' } },
      'response_format.type',
      'must be one of "text", "json"',
    ],
  ])('explains the error for %s', async (_name, members, path, message) => {
    const response = await text({ model: 'local/echo', ...members });
    expect(response.status).toBe(400);
    expect(await errorOf(response)).toMatchObject({
      code: 'invalid_request',
      param: path,
      details: [{ path, message }],
    });
  });

  test('explains a large body by the schema that it matches most closely', async () => {
    const messages = [{ role: 'user', content: ['x'.repeat(20_000), 1] }];
    expect(await errorOf(await text({ model: 'local/echo', messages }))).toMatchObject({
      param: 'messages[0].content[0]',
      details: [{ path: 'messages[0].content[0]', message: 'must be an object' }],
    });
  });

  test('names one of many wrong parts', async () => {
    const messages = [{ role: 'user', content: Array.from({ length: 100_000 }, () => 1) }];
    const { details } = await errorOf(await text({ model: 'local/echo', messages }));
    expect(details).toEqual([{ path: 'messages[0].content[0]', message: 'must be an object' }]);
  });

  test.each<[string, object, number, string]>([
    ['an unknown model', { model: 'acme/none-such', prompt: 'x' }, 404, 'model_not_found'],
    ['a model of another format', { model: 'acme/chat-only', prompt: 'x' }, 422, 'unsupported_by_model'],
    ['no model', { prompt: 'x' }, 400, 'invalid_request'],
    [
      'an unknown member',
      { model: 'local/echo', prompt: 'x', api_base: 'http://attacker.example' },
      400,
      'invalid_request',
    ],
  ])('refuses %s', async (_name, body, status, code) => {
    const response = await text(body);
    expect(response.status).toBe(status);
    expect(await errorOf(response)).toMatchObject({ code });
  });

  test('refuses a guest', async () => {
    expect(
      (await world.post('/v1/ai/text', { model: 'local/echo', prompt: 'x' }, { token: null })).status,
    ).toBe(401);
  });
});
