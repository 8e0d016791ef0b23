// Large requests through the provider packages: each is serialized once, and in several turns of the
// event loop.
import { setImmediate } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { serializeInTurns } from '../../../../src/gateway/ai/providers/sdk-transport.ts';
import { cloudEnvironment, cloudKinds, cloudProviders } from '../../../support/cloud-providers.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startTokenEndpoint, type TokenEndpoint } from '../../../support/token-endpoint.ts';
import { startAi, type World } from '../world.ts';

const longText = 'a line of text\n'.repeat(300_000);

describe('a request of several megabytes', () => {
  let provider: ScriptedProvider;
  let tokens: TokenEndpoint;
  let world: World;
  const keyProviders = [
    { id: 'acme', kind: 'openai-compatible' },
    { id: 'openai', kind: 'openai' },
    { id: 'claude', kind: 'anthropic' },
    { id: 'gemini', kind: 'google' },
  ];
  const providerIds = [...keyProviders.map(({ id }) => id), ...cloudKinds];
  beforeAll(async () => {
    provider = await startProvider();
    tokens = await startTokenEndpoint();
    world = await startAi({
      models: JSON.stringify({
        providers: [
          ...keyProviders.map((entry) => ({ ...entry, base_url: provider.url })),
          ...cloudProviders(provider.url, tokens),
        ],
        models: providerIds.map((id) => ({
          id: `${id}/ok`,
          provider: id,
          upstream_model: 'ok',
          rates: null,
        })),
      }),
      env: cloudEnvironment(tokens),
    });
  });
  afterAll(async () => {
    await world.close();
    await provider.close();
    await tokens.close();
  });

  test.each(providerIds)('is serialized once for %s', async (providerId) => {
    const body = JSON.stringify({ model: `${providerId}/ok`, prompt: longText });
    const stringify = vi.spyOn(JSON, 'stringify');
    try {
      const response = await world.post('/v1/ai/text', body);
      expect(response.status).toBe(200);
      const largeResults = stringify.mock.results.filter(
        ({ value }) => typeof value === 'string' && value.length >= longText.length,
      );
      expect(largeResults).toHaveLength(1);
    } finally {
      stringify.mockRestore();
    }
    expect(provider.lastCall().body.toString()).toContain(JSON.stringify(longText).slice(1, -1));
  });
});

describe('serializeInTurns', () => {
  test('writes the same bytes as JSON.stringify', async () => {
    const body = {
      text: 'é"\n',
      none: undefined,
      list: [1, undefined, null, { a: undefined, b: [2, [3]] }, new Date(0), 'x'],
      nested: { list: [1], when: new Date(0) },
      empty: [],
      limit: 5,
    };
    expect(await serializeInTurns(body)).toBe(JSON.stringify(body));
    expect(await serializeInTurns({})).toBe('{}');
  });

  test('yields to the event loop between messages of a large request', async () => {
    let turns = 0;
    let isDone = false;
    const count = (async () => {
      for (; !isDone; turns += 1) await setImmediate();
    })();
    // One turn before each message but the first.
    await serializeInTurns({ messages: Array.from({ length: 8 }, () => ({ content: longText })) });
    isDone = true;
    await count;
    expect(turns).toBeGreaterThanOrEqual(7);
  });
});
