// Cloud providers with an API key, and the access tokens of cloud providers with credentials.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { cloudEnvironment, cloudProviders } from '../../../support/cloud-providers.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startTokenEndpoint, type TokenEndpoint } from '../../../support/token-endpoint.ts';
import { errorOf, startAi, testResilience, type World } from '../world.ts';

const key = 'CANARY-3f7a-api-key';
// The token endpoint counts its tokens.
const firstToken = 'token-1';
const messages = [{ role: 'user', content: 'hi' }];

let provider: ScriptedProvider;
let tokens: TokenEndpoint;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
});
afterAll(() => provider.close());
beforeEach(() => provider.reset());

const modelsOf = (kinds: string[], members: object = {}) =>
  kinds.flatMap((kind) =>
    ['ok', 'reasoning', 'status?code=401', `status?code=401&message=no ${firstToken}`].map((script) => ({
      id: `${kind}/${script.replace(/\W+/g, '-')}`,
      provider: kind,
      upstream_model: script,
      rates: null,
      max_output_tokens: 1_000,
      ...members,
    })),
  );
const chat = (model: string) => world.post('/v1/ai/chat/completions', { model, messages });

describe('an API key', () => {
  beforeAll(async () => {
    world = await startAi({
      models: JSON.stringify({
        providers: [
          { id: 'azure', kind: 'azure', base_url: provider.url, api_key_env: 'CLOUD_KEY' },
          {
            id: 'bedrock',
            kind: 'bedrock',
            region: 'us-east-1',
            base_url: provider.url,
            api_key_env: 'CLOUD_KEY',
          },
        ],
        models: modelsOf(['azure', 'bedrock'], { modalities: ['text', 'stream', 'openai', 'embedding'] }),
      }),
      env: { CLOUD_KEY: key },
    });
  });
  afterAll(() => world.close());

  test('is sent to Azure OpenAI in the header api-key in every format', async () => {
    const calls: [string, object][] = [
      ['/v1/ai/chat/completions', { messages }],
      ['/v1/ai/responses', { input: 'hi' }],
      ['/v1/ai/embeddings', { input: 'hi' }],
      ['/v1/ai/messages', { max_tokens: 10, messages }],
    ];
    for (const [path, body] of calls) {
      const response = await world.post(path, { model: 'azure/ok', ...body });
      expect(response.status, await response.text()).toBe(200);
      expect(provider.lastCall().headers).toMatchObject({ 'api-key': key });
      expect(provider.lastCall().headers).not.toHaveProperty('authorization');
    }
    expect(provider.calls.map(({ path }) => path)).toEqual([
      '/v1/chat/completions',
      '/v1/responses',
      '/v1/embeddings',
      '/v1/chat/completions',
    ]);
  });

  test('is sent to Amazon Bedrock as a bearer token', async () => {
    expect((await chat('bedrock/ok')).status).toBe(200);
    expect(provider.lastCall().headers).toMatchObject({ authorization: `Bearer ${key}` });
    expect(provider.lastCall().headers).not.toHaveProperty('x-amz-date');
  });
});

describe('tokens of a provider', () => {
  beforeEach(async () => {
    tokens = await startTokenEndpoint();
    world = await startAi({
      models: JSON.stringify({
        providers: cloudProviders(provider.url, tokens),
        models: modelsOf(['azure', 'vertex']).map((model) => ({
          ...model,
          upstream_model: model.upstream_model.replace('?', '~'),
        })),
      }),
      env: cloudEnvironment(tokens),
      resilience: testResilience,
    });
    return async () => {
      await world.close();
      await tokens.close();
    };
  });

  test('are requested once for concurrent calls', async () => {
    const responses = await Promise.all(Array.from({ length: 5 }, () => chat('azure/ok')));
    expect(responses.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    expect((await chat('azure/ok')).status).toBe(200);
    expect(tokens.requests.map((form) => Object.fromEntries(form))).toEqual([
      {
        grant_type: 'client_credentials',
        client_id: 'client-1',
        client_secret: expect.any(String),
        scope: 'https://cognitiveservices.azure.com/.default',
      },
    ]);
  });

  test('are requested again once they have expired', async () => {
    tokens.answers.push({ status: 200, body: '{"access_token":"short","expires_in":0}' });
    await (await chat('vertex/ok')).text();
    expect(provider.lastCall().headers.authorization).toBe('Bearer short');
    await (await chat('vertex/ok')).text();
    expect(provider.lastCall().headers.authorization).toBe('Bearer token-2');
  });

  test('are requested again after the provider has refused one', async () => {
    expect((await chat('azure/status-code-401')).status).toBe(502);
    expect((await chat('azure/ok')).status).toBe(200);
    expect(tokens.requests).toHaveLength(2);
  });

  test('are not logged when the refusal of the provider quotes one', async () => {
    expect((await chat('azure/status-code-401-message-no-token-1')).status).toBe(502);
    expect(provider.lastCall().headers.authorization).toBe(`Bearer ${firstToken}`);
    const failureLine = world.logged.find((line) => line.includes('model provider failed'));
    expect(failureLine).toContain('no [redacted]');
    expect(failureLine).not.toContain(firstToken);
  });

  test('are requested again for another secret', async () => {
    expect((await chat('azure/ok')).status).toBe(200);
    world.env.set('AZURE_SECRET', 'wrong');
    const response = await chat('azure/ok');
    expect([response.status, (await errorOf(response)).code]).toEqual([502, 'provider_credentials']);
  });

  test.each([
    ['provider_credentials', { status: 400, body: '{"error":"invalid_client","error_description":"bad"}' }],
    ['provider_credentials', { status: 401, body: '{"error":"invalid_client"}' }],
    ['upstream_failed', { status: 503, body: 'busy' }],
    ['upstream_failed', { status: 200, body: '{"access_token":"a b"}' }],
    ['upstream_failed', { status: 200, body: '<html>' }],
  ])('fail a call before it is sent: %s %#', async (code, answer) => {
    tokens.answers.push(...Array.from({ length: 5 }, () => answer));
    const response = await chat('vertex/ok');
    expect([response.status, (await errorOf(response)).code]).toEqual([502, code]);
    expect(provider.calls).toEqual([]);
  });

  test('are not awaited for a caller that has disconnected', async () => {
    tokens.answers.push({ status: 503, body: '', delayMs: 600_000 });
    const clientAbort = new AbortController();
    const call = world.post(
      '/v1/ai/text',
      { model: 'azure/ok', prompt: 'hi' },
      { signal: clientAbort.signal },
    );
    await expect.poll(() => tokens.requests.length).toBe(1);
    clientAbort.abort();
    await expect(call).rejects.toThrow('aborted');
    await world.ledger.until(1);
    expect(provider.calls).toEqual([]);
  });

  test.each([
    'no JSON',
    '{}',
    '{"client_email":"a@b","private_key":"no key"}',
    '{"client_email":"a@b","private_key":"no key","token_uri":"file:///etc/passwd"}',
  ])('are not requested with an unusable key file: %s', async (file) => {
    world.env.set('GOOGLE_KEY_FILE', file);
    const response = await chat('vertex/ok');
    const error = await errorOf(response);
    expect([response.status, error.code]).toEqual([502, 'provider_credentials']);
    expect(tokens.requests).toEqual([]);
  });
});
