// Streamed calls request usage by default; a provider that refuses the request is called again
// without it.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createUsageRequests, type UsageRequest } from '../../../src/gateway/ai/upstream/usage-requests.ts';
import type { UpstreamRequest } from '../../../src/gateway/ai/upstream/client.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { errorOf, eventsOf, partsOf, startAi, type World } from './world.ts';

const rates = { input: 1_000_000, output: 1_000_000 };
const messages = [{ role: 'user', content: 'hi' }];
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];

let provider: ScriptedProvider;
let world: World;
// A refusal is cached by endpoint, so each case has its own endpoint and provider.
const providerIds = ['message', 'param', 'location', 'nothing', 'hub', 'twice'];
beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({
    models: provider.modelsFile(
      { ok: 'ok?chunks=8' },
      {
        provider: { usage: undefined, output_limit_member: 'max_tokens' },
        model: { rates, max_output_tokens: 100, modalities: ['text', 'stream', 'openai'] },
        providers: [
          ...providerIds.map((id) => ({ id, kind: 'openai-compatible', base_url: `${provider.url}/${id}` })),
          { id: 'silent', kind: 'openai-compatible', base_url: `${provider.url}/silent`, usage: 'none' },
        ],
        models: [...providerIds, 'silent'].map((id) => ({
          id: `${id}/m`,
          provider: id,
          upstream_model: `refuses-usage?as=${id === 'hub' || id === 'twice' ? 'message' : id}`,
          rates,
          max_output_tokens: 100,
        })),
      },
    ),
    env: { ACME_API_KEY: 'x' },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => {
  world.ledger.reset();
  provider.reset();
});

const streamChat = (model: string) =>
  world.post('/v1/ai/chat/completions', { model, messages, stream: true, max_tokens: 50 });
/** For each call, whether it requests usage. */
const requestsForUsage = () =>
  provider.calls.map(({ body }) => Object.hasOwn(JSON.parse(body.toString()) as object, 'stream_options'));

describe('a streamed call of a provider without the setting usage', () => {
  test('is charged by the usage of the provider', async () => {
    const events = await eventsOf(await streamChat('acme/ok'));
    expect(events.at(-1)).toBe('[DONE]');
    expect(await world.ledger.until(1)).toMatchObject({
      charged: 18n,
      facts: { tokens: { input: 10, output: 8 }, estimated: false },
    });
  });

  test('passes its usage to the AI SDK', async () => {
    const { parts } = await partsOf(await world.post('/v1/ai/stream', { model: 'acme/ok', prompt }));
    expect(parts.at(-1)).toMatchObject({ usage: { inputTokens: { total: 10 }, outputTokens: { total: 8 } } });
    expect((await world.ledger.until(1)).facts.estimated).toBe(false);
  });
});

test('a provider with usage: none gets no request for usage', async () => {
  await eventsOf(await streamChat('silent/m'));
  expect(requestsForUsage()).toEqual([false]);
});

describe('a provider that refuses stream_options', () => {
  test.each(['message', 'param', 'location'])(
    'is called again without it when the refusal names it: %s',
    async (providerId) => {
      const events = await eventsOf(await streamChat(`${providerId}/m`));
      expect(events.at(-1)).toBe('[DONE]');
      expect(requestsForUsage()).toEqual([true, false]);
      expect((await world.ledger.until(1)).facts).toMatchObject({ outcome: 'completed', estimated: true });
    },
  );

  test('is called again for the AI SDK', async () => {
    const { done } = await partsOf(await world.post('/v1/ai/stream', { model: 'hub/m', prompt }));
    expect(done).toBe(true);
    expect(requestsForUsage()).toEqual([true, false]);
  });

  test('gets no request for usage in the next call', async () => {
    await eventsOf(await streamChat('twice/m'));
    await eventsOf(await streamChat('twice/m'));
    await partsOf(await world.post('/v1/ai/stream', { model: 'twice/m', prompt }));
    expect(requestsForUsage()).toEqual([true, false, false, false]);
  });

  test('is not called again after another refusal', async () => {
    const response = await streamChat('nothing/m');
    expect(response.status).toBe(400);
    expect(await errorOf(response)).toMatchObject({ code: 'upstream_refused' });
    expect(requestsForUsage()).toEqual([true]);
  });

  test('is not called again for a caller that requests usage', async () => {
    const response = await world.post('/v1/ai/chat/completions', {
      model: 'message/m',
      messages,
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(response.status).toBe(400);
    expect(requestsForUsage()).toEqual([true]);
  });
});

describe('createUsageRequests', () => {
  const refusal = new Problem('bad_request', 'upstream_refused', 'no', { cause: { refusesUsage: true } });
  const request = (url: string): UpstreamRequest & UsageRequest => ({
    url,
    apiKey: undefined,
    body: 'with',
    bodyWithoutUsage: () => 'without',
    streams: true,
    firstMs: 1_000,
    signal: new AbortController().signal,
  });
  function start() {
    const state = { nowMs: 0, requests: [] as UpstreamRequest[], isAlwaysRefused: false };
    const requests = createUsageRequests({
      clock: { monotonicMs: () => state.nowMs },
      log: { warn: () => {} },
    });
    const send = (url: string) =>
      requests.send(request(url), async (request) => {
        state.requests.push(request);
        state.nowMs += 100;
        if (state.isAlwaysRefused || request.body === 'with') throw refusal;
        return 'answer';
      });
    return { state, send, bodies: () => state.requests.map(({ body }) => body) };
  }

  test('forgets a refusal after an hour', async () => {
    const { state, send, bodies } = start();
    await send('http://a/v1');
    state.nowMs += 3_600_000;
    await send('http://a/v1');
    expect(bodies()).toEqual(['with', 'without', 'with', 'without']);
  });

  test('forgets the oldest of more than 1,000 endpoints', async () => {
    const { state, send, bodies } = start();
    for (let index = 0; index <= 1_000; index += 1) await send(`http://a/${index}`);
    state.requests.length = 0;
    await send('http://a/1');
    await send('http://a/0');
    expect(bodies()).toEqual(['without', 'with', 'without']);
  });

  test('does not cache a refusal that has another cause', async () => {
    const { state, send, bodies } = start();
    state.isAlwaysRefused = true;
    await expect(send('http://a/v1')).rejects.toBe(refusal);
    await expect(send('http://a/v1')).rejects.toBe(refusal);
    expect(bodies()).toEqual(['with', 'without', 'with', 'without']);
  });

  test('sends the second request with the remaining time', async () => {
    const { state, send } = start();
    await send('http://a/v1');
    expect(state.requests.map(({ firstMs }) => firstMs)).toEqual([1_000, 900]);
  });
});
