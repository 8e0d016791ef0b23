// Requests that pass through to providers of the same format: messages, responses, embeddings and rerank.
import Anthropic from '@anthropic-ai/sdk';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { errorOf, startAi, userToken, testResilience, type World } from '../world.ts';

const key = 'CANARY-9d2e-key';
const efforts = { efforts: [{ id: 'low', name: 'Low' }], default_effort: 'low' };

const scripts = [
  'ok',
  'cut',
  'error',
  'error-first',
  'error-start',
  'cut-start',
  'failed-start',
  'tools',
  'status?code=400&error_code=bad_thing',
  'html?code=200',
  'long-vectors',
];

let provider: ScriptedProvider;
let world: World;

/** One server as a provider of each format, and a model for each script. */
function createModels() {
  const modelsOf = (owner: string) =>
    scripts.map((script) => ({
      id: `${owner}/${script.split('?')[0]}`,
      provider: owner,
      upstream_model: script,
      rates: { input: 1, output: 1 },
      max_output_tokens: 500,
      modalities: ['text', 'stream', 'openai', 'embedding'],
    }));
  return {
    providers: [
      {
        id: 'acme',
        kind: 'openai-compatible',
        base_url: provider.url,
        api_key_env: 'THE_KEY',
        formats: ['chat', 'embeddings', 'responses', 'rerank'],
        output_limit_member: 'max_tokens',
        unpriced_members: ['service_tier'],
      },
      { id: 'anthropic', kind: 'anthropic', base_url: provider.url, api_key_env: 'THE_KEY' },
      { id: 'elsewhere', kind: 'openai-compatible', base_url: provider.url, formats: ['chat', 'messages'] },
    ],
    models: [
      ...modelsOf('acme'),
      ...modelsOf('anthropic'),
      ...modelsOf('elsewhere'),
      { id: 'acme/thinker', provider: 'acme', upstream_model: 'ok', rates: null, reasoning: efforts },
      {
        id: 'acme/to-other',
        provider: 'acme',
        upstream_model: 'status?code=503',
        rates: null,
        fallbacks: ['anthropic/ok', 'acme/ok'],
      },
    ],
  };
}

beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({
    models: JSON.stringify(createModels()),
    env: { THE_KEY: key },
    resilience: testResilience,
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => provider.reset());
const lastRequest = () => provider.lastCall().body.toString();
const message = { max_tokens: 5, messages: [{ role: 'user', content: 'x' }] };

describe('a request that passes through', () => {
  test.each<[string, object, string]>([
    ['messages', { model: 'anthropic/ok', ...message, Max_Tokens: 9_000 }, 'Max_Tokens'],
    [
      'messages',
      { model: 'anthropic/ok', ...message, max_completion_tokens: 9_000 },
      'max_completion_tokens',
    ],
    [
      'messages',
      { model: 'anthropic/ok', ...message, output_config: { Effort: 'max' } },
      'output_config.Effort',
    ],
    ['responses', { model: 'acme/ok', input: 'x', maxOutputTokens: 9_000 }, 'maxOutputTokens'],
    ['responses', { model: 'acme/ok', input: 'x', Input: 'y' }, 'Input'],
    ['responses', { model: 'acme/ok', input: 'x', models: ['big'] }, 'models'],
    ['embeddings', { model: 'acme/ok', input: 'x', MODEL: 'big' }, 'MODEL'],
    ['rerank', { model: 'acme/ok', query: 'q', documents: ['a'], Documents: ['a', 'b'] }, 'Documents'],
  ])('refuses another spelling of a member that the gateway reads: %s %j', async (path, body, param) => {
    const response = await world.post(`/v1/ai/${path}`, body);
    expect([response.status, await errorOf(response)]).toMatchObject([
      422,
      { code: 'unpriced_member', param },
    ]);
    expect(provider.calls).toHaveLength(0);
  });

  test.each<[string, string, string, string]>([
    [
      'embeddings',
      '/v1/ai/embeddings',
      ' {"input" : ["a"], "model":"acme/ok" ,"dimensions":12345678901234567890 }',
      ' {"input" : ["a"], "model":"ok" ,"dimensions":12345678901234567890 }',
    ],
    [
      'responses',
      '/v1/ai/responses',
      '{"model":"acme/ok","input":[{"role":"user","content":"\\u0041"}],"temperature":1.50}',
      '{"max_output_tokens":500,' +
        '"model":"ok","input":[{"role":"user","content":"\\u0041"}],"temperature":1.50}',
    ],
    [
      'responses with a limit',
      '/v1/ai/responses',
      '{"model":"acme/ok","input":"x","max_output_tokens":9}',
      '{"model":"ok","input":"x","max_output_tokens":9}',
    ],
    [
      'messages',
      '/v1/ai/messages',
      '{"max_tokens":5,"messages":[{"role":"user","content":"x"}],\n"model":"anthropic/ok","top_k":1e2}',
      '{"max_tokens":5,"messages":[{"role":"user","content":"x"}],\n"model":"ok","top_k":1e2}',
    ],
    [
      'messages at the other path',
      '/v1/ai/v1/messages?beta=true',
      '{"max_tokens":5,"messages":[{"role":"user","content":"x"}],"model":"anthropic/ok"}',
      '{"max_tokens":5,"messages":[{"role":"user","content":"x"}],"model":"ok"}',
    ],
    [
      'rerank',
      '/v1/ai/rerank',
      '{"model":"acme/ok","query":"q","documents":["a","b"],"top_n":1}',
      '{"model":"ok","query":"q","documents":["a","b"],"top_n":1}',
    ],
  ])('changes only the model in requests and answers: %s', async (_name, path, text, expected) => {
    const response = await world.post(path, text);
    expect(response.status).toBe(200);
    expect(lastRequest()).toBe(expected);
    const { model } = JSON.parse(text) as { model: string };
    expect(response.headers.get('x-townhall-model')).toBe(model);
    // A rerank answer names no model.
    const answer = { model, ...((await response.json()) as object) };
    expect(answer.model).toBe(model);
  });

  test("carries Anthropic's headers of the key and the version", async () => {
    await world.post('/v1/ai/messages', { model: 'anthropic/ok', ...message });
    expect(provider.lastCall()).toMatchObject({
      path: '/v1/messages',
      headers: { 'x-api-key': key, 'anthropic-version': '2023-06-01' },
    });
    expect(provider.lastCall().headers).not.toHaveProperty('authorization');
  });

  test('carries the beta header of the caller', async () => {
    const headers = { 'anthropic-beta': 'context-1m-2025-08-07' };
    await world.post('/v1/ai/messages', { model: 'anthropic/ok', ...message }, { headers });
    expect(provider.lastCall()).toMatchObject({ headers });
  });

  test('carries no credential to a provider without a key', async () => {
    expect((await world.post('/v1/ai/messages', { model: 'elsewhere/ok', ...message })).status).toBe(200);
    for (const header of ['x-api-key', 'authorization'])
      expect(provider.lastCall().headers).not.toHaveProperty(header);
  });

  test('carries a bearer token to other providers', async () => {
    await world.post('/v1/ai/rerank', { model: 'acme/ok', query: 'q', documents: ['a'] });
    expect(provider.lastCall().headers.authorization).toBe(`Bearer ${key}`);
  });
});

describe('the answer to a request that passes through', () => {
  describe.each([
    ['/v1/ai/responses', 'acme', { input: 'x' }],
    ['/v1/ai/messages', 'anthropic', message],
  ])('streamed by %s', (path, owner, body) => {
    const stream = (script: string) =>
      world.post(path, { model: `${owner}/${script}`, stream: true, ...body });

    test('changes only the model, in every event that names it', async () => {
      const text = await (await stream('ok')).text();
      expect(text).toContain(`"model":"${owner}/ok"`);
      expect(text).not.toContain('"model":"ok"');
      expect(text).toMatch(owner === 'acme' ? /"type":"response\.completed"/ : /"type":"message_stop"/);
      expect(text).not.toContain('event: error');
    });

    test.each([
      ['cut', 'upstream_truncated'],
      ['error', 'upstream_failed'],
    ])('ends with an error of its format when it breaks off (%s)', async (script, code) => {
      const text = await (await stream(script)).text();
      const [, event = '', data = '{}'] = /event: (\S+)\ndata: (.*)\n\n$/.exec(text) ?? [];
      expect(event).toBe('error');
      expect(JSON.parse(data)).toMatchObject({
        type: 'error',
        error: { type: path === '/v1/ai/messages' ? 'api_error' : 'upstream_error', code },
      });
      expect(text).not.toMatch(/response\.completed|message_stop/);
    });

    test.each([
      ['error-first', 502, 'upstream_failed'],
      ['status', 400, 'bad_thing'],
      ['html', 502, 'upstream_failed'],
    ])('answers a failure before its first event with an error status (%s)', async (script, status, code) => {
      const response = await stream(script);
      expect(response.status).toBe(status);
      expect(await errorOf(response)).toMatchObject({ code });
    });

    test.each(['error-start', 'cut-start', ...(owner === 'acme' ? ['failed-start'] : [])])(
      'is retried before its first content (%s)',
      async (script) => {
        const response = await stream(script);
        expect(response.status).toBe(502);
        expect(response.headers.get('x-townhall-attempts')?.split(', ')).toHaveLength(3);
        expect(provider.calls).toHaveLength(3);
        expect(world.ledger.last().charged).toBe(0n);
      },
    );

    test('is retried before its first event', async () => {
      provider.answerKey(key, { status: 503 });
      const answer = stream('ok');
      await provider.until((calls) => calls.length === 1);
      provider.answerKey(key);
      const response = await answer;
      expect(response.status).toBe(200);
      expect(response.headers.get('x-townhall-attempts')).toMatch(/upstream_failed, .*;/);
      expect(provider.calls).toHaveLength(2);
    });
  });

  test('falls back to a model that is translated', async () => {
    const response = await world.post('/v1/ai/responses', { model: 'acme/to-other', input: 'x' });
    expect(response.status).toBe(200);
    expect(response.headers.get('x-townhall-model')).toBe('anthropic/ok');
    expect(await response.json()).toMatchObject({ object: 'response', model: 'anthropic/ok' });
  });

  test('falls back only to models whose provider supports a format without translation', async () => {
    const body = { model: 'acme/to-other', query: 'q', documents: ['a'] };
    const response = await world.post('/v1/ai/rerank', body);
    expect(response.status).toBe(200);
    expect(response.headers.get('x-townhall-model')).toBe('acme/ok');
  });
});

describe('a request that cannot pass through', () => {
  test.each<[string, string, object, number, string, string | null]>([
    [
      'a local model',
      '/v1/ai/embeddings',
      { model: 'local/echo', input: 'x' },
      422,
      'unsupported_by_model',
      'model',
    ],
    [
      'an unknown model',
      '/v1/ai/rerank',
      { model: 'acme/none', query: 'q', documents: ['a'] },
      404,
      'model_not_found',
      'model',
    ],
    [
      'a base URL',
      '/v1/ai/responses',
      { model: 'acme/ok', input: 'x', base_url: 'http://attacker.example' },
      400,
      'invalid_request',
      'base_url',
    ],
    [
      'a credential',
      '/v1/ai/messages',
      { model: 'anthropic/ok', ...message, api_key: 'k' },
      400,
      'invalid_request',
      'api_key',
    ],
    [
      'an unpriced member',
      '/v1/ai/responses',
      { model: 'acme/ok', input: 'x', service_tier: 'priority' },
      422,
      'unpriced_member',
      'service_tier',
    ],
    [
      'a tool with a price of its own in a namespace',
      '/v1/ai/responses',
      {
        model: 'acme/ok',
        input: 'x',
        tools: [
          { type: 'namespace', name: 'n', tools: [{ type: 'function', name: 'f' }, { type: 'web_search' }] },
        ],
      },
      422,
      'unpriced_member',
      'tools[0].tools[1].type',
    ],
    [
      'a tool with a price of its own in a result of a tool search',
      '/v1/ai/responses',
      {
        model: 'acme/ok',
        input: [{ type: 'tool_search_output', call_id: 'c', tools: [{ type: 'web_search' }] }],
        tools: [{ type: 'tool_search' }],
      },
      422,
      'unpriced_member',
      'input[0].tools[0].type',
    ],
    [
      'a tool with a price of its own',
      '/v1/ai/responses',
      {
        model: 'acme/ok',
        input: 'x',
        tools: [{ type: 'function', name: 'f' }, { type: 'web_search_preview' }],
      },
      422,
      'unpriced_member',
      'tools[1].type',
    ],
    [
      'an effort that the model lacks',
      '/v1/ai/responses',
      { model: 'acme/thinker', input: 'x', reasoning: { effort: 'max' } },
      422,
      'unsupported_reasoning_effort',
      'reasoning.effort',
    ],
    [
      'more than 2,048 texts',
      '/v1/ai/embeddings',
      { model: 'acme/ok', input: Array.from({ length: 2_049 }, () => 'a') },
      400,
      'invalid_request',
      'input',
    ],
    [
      'more than 2,048 lists of tokens',
      '/v1/ai/embeddings',
      { model: 'acme/ok', input: Array.from({ length: 2_049 }, () => [1]) },
      400,
      'invalid_request',
      'input',
    ],
    ['an empty text', '/v1/ai/embeddings', { model: 'acme/ok', input: '' }, 400, 'invalid_request', 'input'],
    ['an empty list', '/v1/ai/embeddings', { model: 'acme/ok', input: [] }, 400, 'invalid_request', 'input'],
    [
      'an input that is a number',
      '/v1/ai/embeddings',
      { model: 'acme/ok', input: 5 },
      400,
      'invalid_request',
      'input',
    ],
    [
      'a token that is not an integer',
      '/v1/ai/embeddings',
      { model: 'acme/ok', input: [1, 2, 3.5] },
      400,
      'invalid_request',
      'input[2]',
    ],
    [
      'a text block without its text',
      '/v1/ai/messages',
      { model: 'anthropic/ok', messages: [{ role: 'user', content: [{ type: 'text' }] }] },
      400,
      'invalid_request',
      'messages[0].content[0].text',
    ],
    ['no model', '/v1/ai/embeddings', { input: 'x' }, 400, 'invalid_request', 'model'],
  ])('is refused: %s', async (_name, path, body, status, code, param) => {
    const response = await world.post(path, body);
    expect(response.status).toBe(status);
    expect(await errorOf(response)).toMatchObject({ code, param });
    expect(provider.calls).toHaveLength(0);
  });
});

describe('embeddings', () => {
  test.each<[string, unknown]>([
    ['a text', 'one'],
    ['texts, one of them empty', ['one', '']],
    ['tokens', [1, 2]],
    ['lists of tokens', [[1], [2, 3]]],
    ['images and texts', ['one', { image: 'https://example.com/a.png' }]],
  ])('embeds %s', async (_name, input) => {
    const response = await world.post('/v1/ai/embeddings', { model: 'acme/ok', input });
    expect(response.status).toBe(200);
    expect(JSON.parse(lastRequest())).toMatchObject({ input });
  });

  test('accepts one long input as tokens', async () => {
    const response = await world.post('/v1/ai/embeddings', {
      model: 'acme/ok',
      input: Array.from({ length: 8_000 }, (_, index) => index),
    });
    expect([response.status, ((await response.json()) as { data: unknown[] }).data.length]).toEqual([200, 1]);
  });

  test('forwards megabytes of vectors and charges their usage', async () => {
    const input = Array.from({ length: 200 }, (_, index) => `text ${index}`);
    const response = await world.post('/v1/ai/embeddings', { model: 'acme/long-vectors', input });
    const { data, model } = (await response.json()) as { data: { embedding: number[] }[]; model: string };
    expect([response.status, model, data.length, data[199]?.embedding.length]).toEqual([
      200,
      'acme/long-vectors',
      200,
      1_536,
    ]);
    // The two tokens that the provider reports. The gateway's own estimate would be several hundred.
    expect(world.ledger.last().facts).toMatchObject({ estimated: false, tokens: { input: 2 } });
  });
});

describe('access to a format that passes through', () => {
  test('refuses a repeated member model', async () => {
    expect(
      await errorOf(
        await world.post('/v1/ai/responses', '{"model":"acme/ok","input":"x","model":"acme/cut"}'),
      ),
    ).toMatchObject({ code: 'duplicate_member' });
  });

  test.each(['embeddings', 'responses', 'messages', 'v1/messages', 'rerank'])(
    'refuses a guest (%s)',
    async (path) => {
      expect((await world.post(`/v1/ai/${path}`, {}, { token: null })).status).toBe(401);
    },
  );
});

describe("Anthropic's client", () => {
  const client = () =>
    new Anthropic({ baseURL: `${world.url}/v1/ai`, authToken: userToken, apiKey: null, maxRetries: 0 });
  const request = { max_tokens: 20, messages: [{ role: 'user' as const, content: 'hi' }] };
  const stream = (script: string) => client().messages.stream({ model: `anthropic/${script}`, ...request });

  test('creates a message', async () => {
    const answer = await client().messages.create({ model: 'anthropic/ok', ...request });
    expect(answer).toMatchObject({
      model: 'anthropic/ok',
      content: [{ type: 'text', text: 'Hello from the provider.' }],
      usage: { input_tokens: 10, output_tokens: 4 },
    });
  });

  test('streams a message', async () => {
    expect(await stream('ok').finalText()).toBe('Hello from the provider.');
  });

  test('assembles a streamed tool call', async () => {
    const tools = [{ name: 'get_weather', input_schema: { type: 'object' as const, properties: {} } }];
    const { content } = await client()
      .messages.stream({ model: 'anthropic/tools', ...request, tools })
      .finalMessage();
    expect(content).toMatchObject([{ type: 'tool_use', name: 'get_weather', input: { city: 'Oslo' } }]);
  });

  test('uses a beta feature', async () => {
    const betas = ['context-1m-2025-08-07'];
    const { model } = await client().beta.messages.create({ model: 'anthropic/ok', ...request, betas });
    expect(model).toBe('anthropic/ok');
    expect(provider.lastCall().headers['anthropic-beta']).toContain('context-1m-2025-08-07');
  });

  test.each([
    ['none', Anthropic.NotFoundError],
    ['status', Anthropic.BadRequestError],
  ])('maps a refusal to its error class (%s)', async (script, errorClass) => {
    await expect(
      client().messages.create({ model: `anthropic/${script}`, ...request }),
    ).rejects.toBeInstanceOf(errorClass);
  });

  test.each(['cut', 'error'])('throws for an incomplete stream (%s)', async (script) => {
    await expect(stream(script).finalMessage()).rejects.toBeInstanceOf(Anthropic.APIError);
  });
});

describe("OpenAI's client", () => {
  const client = () => world.openai();

  test('creates embeddings in the base64 that it requests', async () => {
    const { data, model, usage } = await client().embeddings.create({
      model: 'acme/ok',
      input: ['a', 'b'],
    });
    expect(data.map((item) => item.embedding)).toEqual([
      [0.5, -0.25, 1],
      [0.5, -0.25, 1],
    ]);
    expect([model, usage.total_tokens]).toEqual(['acme/ok', 2]);
  });

  test('creates a response', async () => {
    expect(await client().responses.create({ model: 'acme/ok', input: 'hi' })).toMatchObject({
      model: 'acme/ok',
      output_text: 'Hello from the provider.',
    });
  });

  test('streams a response', async () => {
    const finalResponse = await client().responses.stream({ model: 'acme/ok', input: 'hi' }).finalResponse();
    expect(finalResponse).toMatchObject({ model: 'acme/ok', output_text: 'Hello from the provider.' });
  });

  test.each(['cut', 'error'])('throws for an incomplete response (%s)', async (script) => {
    const stream = await client().responses.create({ model: `acme/${script}`, input: 'hi', stream: true });
    await expect(async () => {
      for await (const _event of stream);
    }).rejects.toThrow('model provider');
  });
});
