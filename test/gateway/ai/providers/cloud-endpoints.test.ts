// Cloud providers with several keys or endpoints, with API keys and with credentials.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { cloudEnvironment } from '../../../support/cloud-providers.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startTokenEndpoint, type TokenEndpoint } from '../../../support/token-endpoint.ts';
import { adminToken, errorOf, startAi, testResilience, type World } from '../world.ts';

const messages = [{ role: 'user', content: 'hi' }];
// The random ports of the endpoints decide which of them a session reaches. With 24 sessions it is practically
// certain that both are reached.
const sessionCount = 24;

let firstProvider: ScriptedProvider;
let secondProvider: ScriptedProvider;
let spareProvider: ScriptedProvider;
let tokens: TokenEndpoint;
let world: World;
beforeAll(async () => {
  [firstProvider, secondProvider, spareProvider] = await Promise.all([
    startProvider(),
    startProvider(),
    startProvider(),
  ]);
});
afterAll(() => Promise.all([firstProvider.close(), secondProvider.close(), spareProvider.close()]));
beforeEach(async () => {
  for (const provider of [firstProvider, secondProvider, spareProvider]) provider.reset();
  tokens = await startTokenEndpoint();
});
afterEach(async () => {
  await world.close();
  await tokens.close();
});

async function startClouds(env: Record<string, string> = {}): Promise<void> {
  const endpoints = [{ base_url: firstProvider.url }, { base_url: secondProvider.url }];
  const keys = [{ env: 'A_KEY' }, { env: 'B_KEY' }];
  const credentials = {
    type: 'entra_id',
    tenant_id: 'tenant-1',
    client_id: 'client-1',
    client_secret_env: 'AZURE_SECRET',
    token_url: tokens.url,
  };
  const model = { upstream_model: 'ok', rates: null, max_output_tokens: 1_000 };
  world = await startAi({
    models: JSON.stringify({
      providers: [
        { id: 'azure', kind: 'azure', endpoints, credentials },
        { id: 'keyed', kind: 'azure', base_url: firstProvider.url, keys },
        { id: 'bedrock', kind: 'bedrock', region: 'us-east-1', endpoints, keys: keys.slice(0, 1) },
        { id: 'spare', kind: 'openai-compatible', base_url: spareProvider.url },
      ],
      models: [
        { id: 'azure/ok', provider: 'azure', ...model },
        { id: 'azure/backed', provider: 'azure', ...model, fallbacks: ['spare/ok'] },
        { id: 'keyed/ok', provider: 'keyed', ...model },
        { id: 'bedrock/ok', provider: 'bedrock', ...model },
        { id: 'spare/ok', provider: 'spare', ...model },
      ],
    }),
    env: { ...cloudEnvironment(tokens), A_KEY: 'value-a', B_KEY: 'value-b', ...env },
    resilience: testResilience,
  });
}

const chat = (model: string, session = 'session 1') =>
  world.post('/v1/ai/chat/completions', { model, messages }, { headers: { 'x-session-id': session } });

/** Sends one call for each session; every call must succeed. */
async function callForEachSession(model: string): Promise<void> {
  for (let index = 0; index < sessionCount; index += 1)
    expect((await chat(model, `${index}`)).status).toBe(200);
}

async function keysOf(providerId: string): Promise<Record<string, unknown>[]> {
  const response = await world.get('/v1/ai/providers', { token: adminToken });
  const { items } = (await response.json()) as { items: { id: string; keys: Record<string, unknown>[] }[] };
  return items.find(({ id }) => id === providerId)?.keys ?? [];
}

describe('endpoints with credentials', () => {
  test('get the same token', async () => {
    await startClouds();
    await callForEachSession('azure/ok');
    const authorizations = [...firstProvider.calls, ...secondProvider.calls].map(
      ({ headers }) => headers.authorization,
    );
    expect(authorizations).toEqual(Array.from({ length: sessionCount }, () => 'Bearer token-1'));
    expect([firstProvider.calls.length, secondProvider.calls.length]).not.toContain(0);
  });

  test('leave all calls to the second endpoint while the first limits requests', async () => {
    await startClouds();
    firstProvider.answerKey('token-1', { status: 429, retryAfter: 30 });
    await callForEachSession('azure/ok');
    expect(await keysOf('azure')).toMatchObject([
      { env: 'AZURE_SECRET', base_url: firstProvider.url, state: 'rate_limited' },
      { env: 'AZURE_SECRET', base_url: secondProvider.url, state: 'ready' },
    ]);
    expect(secondProvider.calls).toHaveLength(sessionCount);
  });

  test.each([
    [401, 'key_refused'],
    [402, 'payment_required'],
  ])('are all skipped for the fallback after a %d', async (status, state) => {
    await startClouds();
    for (const provider of [firstProvider, secondProvider]) provider.answerKey('token-1', { status });
    for (let call = 0; call < 3; call += 1) expect((await chat('azure/backed')).status).toBe(200);
    // Both endpoints have the same credentials, so the first refusal disables both.
    expect([firstProvider.calls.length + secondProvider.calls.length, spareProvider.calls.length]).toEqual([
      1, 3,
    ]);
    expect((await keysOf('azure')).map((key) => key['state'])).toEqual([state, state]);
  });

  test('get a new token after the provider has refused the old one', async () => {
    await startClouds();
    for (const provider of [firstProvider, secondProvider]) provider.answerKey('token-1', { status: 401 });
    expect((await chat('azure/ok')).status).toBe(502);
    expect((await chat('azure/ok')).status).toBe(200);
    expect(tokens.requests).toHaveLength(2);
  });

  test('are skipped for the fallback while no token is issued', async () => {
    await startClouds({ AZURE_SECRET: 'wrong' });
    for (let call = 0; call < 3; call += 1) expect((await chat('azure/backed')).status).toBe(200);
    expect([tokens.requests.length, spareProvider.calls.length]).toEqual([1, 3]);
    expect((await keysOf('azure')).map(({ state }) => state)).toEqual(['key_refused', 'key_refused']);
    world.env.set('AZURE_SECRET', cloudEnvironment(tokens)['AZURE_SECRET'] ?? '');
    expect((await chat('azure/backed')).status).toBe(200);
    expect(spareProvider.calls).toHaveLength(3);
  });

  test('fail a call without a fallback when their secret is refused', async () => {
    await startClouds({ AZURE_SECRET: 'wrong' });
    const response = await chat('azure/ok');
    expect([response.status, (await errorOf(response)).code]).toEqual([502, 'provider_credentials']);
  });

  test('show the variable of a missing secret', async () => {
    await startClouds({ AZURE_SECRET: '' });
    expect(await keysOf('azure')).toMatchObject([
      { env: 'AZURE_SECRET', state: 'missing' },
      { env: 'AZURE_SECRET', state: 'missing' },
    ]);
    expect((await chat('azure/ok')).status).toBe(404);
  });
});

describe('several API keys', () => {
  test('of Azure OpenAI share the sessions in the header api-key', async () => {
    await startClouds();
    await callForEachSession('keyed/ok');
    const apiKeys = firstProvider.calls.map(({ headers }) => headers['api-key']);
    expect(new Set(apiKeys)).toEqual(new Set(['value-a', 'value-b']));
  });

  test('of Amazon Bedrock are sent to each endpoint', async () => {
    await startClouds();
    firstProvider.answerKey('value-a', { status: 429, retryAfter: 30 });
    await callForEachSession('bedrock/ok');
    expect(secondProvider.calls.map(({ headers }) => headers.authorization)).toEqual(
      Array.from({ length: sessionCount }, () => 'Bearer value-a'),
    );
  });
});
