// OpenAI's older completions format with its client, unmodified: passed through to a provider that has the
// format, and translated for all other kinds.
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startAi, testResilience, userToken, type World } from '../world.ts';

const rates = { input: 1_000_000, output: 2_000_000 };

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const keyedProvider = { base_url: provider.url, api_key_env: 'ACME_API_KEY' };
  const entry = (id: string, script = 'ok') => ({
    id: `${id}/${script}`,
    provider: id,
    upstream_model: script,
    rates,
    max_output_tokens: 100,
  });
  world = await startAi({
    models: provider.modelsFile(
      { ok: 'ok', mirror: 'mirror' },
      {
        model: { rates, max_output_tokens: 100 },
        provider: { output_limit_member: 'max_tokens' },
        providers: [
          {
            id: 'base',
            kind: 'openai-compatible',
            formats: ['completions'],
            output_limit_member: 'max_tokens',
            ...keyedProvider,
          },
          { id: 'openai', kind: 'openai', ...keyedProvider },
          { id: 'anthropic', kind: 'anthropic', ...keyedProvider },
          { id: 'google', kind: 'google', ...keyedProvider },
        ],
        models: [...['base', 'openai', 'anthropic', 'google'].map((id) => entry(id)), entry('base', 'cut')],
      },
    ),
    resilience: testResilience,
  });
});
afterAll(async () => {
  await world?.close();
  await provider?.close();
});
beforeEach(() => provider.reset());

const client = (base = '/v1') => new OpenAI({ baseURL: world.url + base, apiKey: userToken, maxRetries: 0 });
const lastBody = () => JSON.parse(provider.lastCall().body.toString()) as Record<string, unknown>;

const models = ['base/ok', 'acme/ok', 'openai/ok', 'anthropic/ok', 'google/ok'];

describe.each(['/v1', '/v1/ai'])("OpenAI's client at %s", (base) => {
  test.each(models)('completes a text with %s', async (model) => {
    const completion = await client(base).completions.create({ model, prompt: 'Say hello:' });
    expect(completion).toMatchObject({
      object: 'text_completion',
      model,
      choices: [{ index: 0, text: 'Hello from the provider.', finish_reason: 'stop', logprobs: null }],
      usage: { prompt_tokens: expect.any(Number), completion_tokens: 4 },
    });
  });
});

describe('ai.createCompletion', () => {
  test.each(models)('streams with %s', async (model) => {
    const stream = await client().completions.create({
      model,
      prompt: 'Say hello:',
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = '';
    const reasons: unknown[] = [];
    let outputTokens: number | undefined;
    for await (const { choices, usage } of stream) {
      text += choices[0]?.text ?? '';
      if (choices[0]?.finish_reason) reasons.push(choices[0].finish_reason);
      outputTokens = usage?.completion_tokens ?? outputTokens;
    }
    expect(text).toMatch(/^(?:Hello from the provider\.|(?:tok\d )+)$/);
    expect(reasons).toEqual(['stop']);
    expect(outputTokens).toBeGreaterThan(0);
  });

  test('answers with a local model', async () => {
    const completion = await client().completions.create({ model: 'local/echo', prompt: 'Good morning' });
    expect(completion.choices[0]?.text).toBe('Good morning');
  });

  test('passes prompt and suffix through as they are', async () => {
    await world.post(
      '/v1/completions',
      '{"model":"base/ok", "prompt":"a","suffix":"b", "top_k":3,"max_tokens":5}',
    );
    expect(provider.lastCall()).toMatchObject({ path: '/v1/completions' });
    expect(provider.lastCall().body.toString()).toBe(
      '{"model":"ok", "prompt":"a","suffix":"b", "top_k":3,"max_tokens":5}',
    );
  });

  test('sends the reserved output limit if the request has none', async () => {
    await client().completions.create({ model: 'base/ok', prompt: 'a' });
    expect(lastBody()).toMatchObject({ max_tokens: 100 });
  });

  test('sends a prompt without suffix as a user message', async () => {
    await client().completions.create({ model: 'acme/mirror', prompt: ['Once'], stop: '.', max_tokens: 7 });
    expect(lastBody()).toMatchObject({
      messages: [{ role: 'user', content: 'Once' }],
      stop: ['.'],
      max_tokens: 7,
    });
  });

  test('tells a chat model to fill in the text between prefix and suffix', async () => {
    await client().completions.create({ model: 'acme/mirror', prompt: 'add(a, b) {', suffix: '}' });
    const [instruction, message] = lastBody()['messages'] as { role: string; content: string }[];
    expect(instruction).toMatchObject({ role: 'system', content: expect.stringContaining('between') });
    expect(message?.content).toBe('<prefix>add(a, b) {</prefix>\n<suffix>}</suffix>');
  });

  test('names dropped labels in the warnings', async () => {
    const answer = await world.post('/v1/completions', { model: 'acme/ok', prompt: 'a', user: 'u' });
    expect(answer.headers.get('x-townhall-warnings')).toContain('user');
  });

  test.each([
    [
      'log probabilities of a chat model',
      { model: 'acme/ok', logprobs: 1 },
      'logprobs',
      'unsupported_by_model',
    ],
    ['two completions of a chat model', { model: 'acme/ok', n: 2 }, 'n', 'unsupported_by_model'],
    [
      'an unknown member for a chat model',
      { model: 'acme/ok', grammar: 'x' },
      'grammar',
      'unsupported_by_model',
    ],
    ['the prompt in the answer', { model: 'base/ok', echo: true }, 'echo', 'unsupported_by_model'],
    ['the best of several', { model: 'base/ok', best_of: 2 }, 'best_of', 'unpriced_member'],
  ])('refuses %s', async (_name, members, param, code) => {
    const answer = await world.post('/v1/ai/completions', { prompt: 'a', ...members });
    expect([answer.status, await answer.json()]).toMatchObject([422, { error: { code, param } }]);
    expect(provider.calls).toEqual([]);
  });

  test.each([
    ['several prompts', ['a', 'b']],
    ['a prompt of tokens', [1, 2]],
    ['an empty prompt without suffix', ''],
  ])('refuses %s', async (_name, prompt) => {
    const answer = await world.post('/v1/ai/completions', { model: 'acme/ok', prompt });
    expect(answer.status).toBe(400);
  });

  test('maps an unknown model to the error of the client', async () => {
    await expect(client().completions.create({ model: 'acme/none', prompt: 'a' })).rejects.toBeInstanceOf(
      OpenAI.NotFoundError,
    );
  });

  test('ends a stream that breaks off with an error', async () => {
    const answer = await world.post('/v1/completions', { model: 'base/cut', prompt: 'a', stream: true });
    const text = await answer.text();
    expect(text).toContain('upstream_truncated');
    expect(text).not.toContain('[DONE]');
  });

  test.each(['base/ok', 'acme/ok'])('charges %s by its usage', async (model) => {
    const answer = await world.post('/v1/completions', { model, prompt: 'Say hello:', suffix: '!' });
    // 10 tokens in at 1 credit and 4 tokens out at 2.
    expect(answer.headers.get('x-townhall-credits')).toBe('18');
  });
});
