// A hold is sized by what really goes to a provider, and what a provider's own tools would cost is not left to chance.
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
  // An older name: its package turns an effort into tokens to think with, on top of the limit.
  const older = (id: string, more: object = {}) => ({ id, provider: 'claude', upstream_model: 'claude-opus-4-20250514', rates, max_output_tokens: 4_096, reasoning: { efforts, default_effort: 'none' }, ...more });
  world = await startAi({
    models: provider.modelsFile({ ok: 'ok' }, {
      model: { rates },
      providers: [
        { id: 'claude', kind: 'anthropic', base_url: provider.url, output_limit_member: 'max_tokens' },
        { id: 'gemini', kind: 'google', base_url: provider.url },
        { id: 'gpt', kind: 'openai', base_url: provider.url },
      ],
      models: [
        older('claude/older'),
        { id: 'claude/ok', provider: 'claude', upstream_model: 'ok', rates },
        { id: 'claude/free', provider: 'claude', upstream_model: 'ok', rates: null },
        { id: 'gemini/ok', provider: 'gemini', upstream_model: 'gemini-2.5-flash', rates: null },
        { id: 'gpt/ok', provider: 'gpt', upstream_model: 'ok', rates: null },
      ],
    }),
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

const sent = () => JSON.parse(provider.lastCall().body.toString()) as { max_tokens?: number; thinking?: { budget_tokens?: number }; tools?: { type?: string }[] };
const text = (more: object) => world.post('/v1/ai/text', { model: 'claude/older', prompt: 'hi', ...more });

describe('an effort that raises the limit', () => {
  test('is held for as it is really sent', async () => {
    await (await text({ reasoning_effort: 'high', max_output_tokens: 100 })).text();
    const { max_tokens: limit = 0, thinking } = sent();
    expect(limit).toBe(100 + (thinking?.budget_tokens ?? 0));
    expect(limit).toBeGreaterThan(1_000);
    expect(world.ledger.last().held).toBeGreaterThanOrEqual(BigInt(limit));
  });

  test('is 402 where a limit that was sent cannot be paid with it, and nothing is sent', async () => {
    world.ledger.reset(1_000n);
    const response = await text({ reasoning_effort: 'high', max_output_tokens: 100 });
    expect(response.status).toBe(402);
    expect(provider.calls).toEqual([]);
    expect([world.ledger.balance, world.ledger.held()]).toEqual([1_000n, 0n]);
  });

  test('leaves a limit of ours at what is affordable', async () => {
    world.ledger.reset(50_000n);
    await (await text({ reasoning_effort: 'low' })).text();
    const { max_tokens: limit = 0, thinking } = sent();
    expect(limit).toBeLessThanOrEqual(50_000);
    expect(limit).toBeGreaterThan(thinking?.budget_tokens ?? 0);
  });
});

describe('tools of a provider in stream', () => {
  const tool = (id: string, more: object = {}) => [{ type: 'provider', id, name: 'shell', args: {}, ...more }];
  const stream = (model: string, tools: object[]) => world.post('/v1/ai/stream', { model, prompt, tools });

  test('go on to the provider that knows them', async () => {
    const response = await stream('claude/ok', tool('anthropic.bash_20250124'));
    expect(response.status).toBe(200);
    await response.text();
    expect(sent().tools).toMatchObject([{ type: 'bash_20250124' }]);
    // The scripted provider does not know this name, which the package has to; what it was sent is the matter.
    await (await stream('gemini/ok', tool('google.code_execution'))).text();
    expect(provider.lastCall().body.toString()).toContain('codeExecution');
  });

  test.each(['acme/ok', 'local/echo', 'gemini/ok', 'gpt/ok'])('are 422 for a model whose provider does not know them: %s', async (model) => {
    const response = await stream(model, tool('anthropic.bash_20250124'));
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({ code: 'unsupported_by_model', param: 'tools[0].id' });
    expect(provider.calls).toEqual([]);
  });

  test('are 422 where their use is billed apart, but for a model that is free', async () => {
    const refused = await stream('claude/ok', tool('anthropic.web_search_20250305'));
    expect(refused.status).toBe(422);
    expect(await errorOf(refused)).toMatchObject({ code: 'unpriced_member' });
    expect((await stream('claude/free', tool('anthropic.web_search_20250305'))).status).toBe(200);
  });
});
