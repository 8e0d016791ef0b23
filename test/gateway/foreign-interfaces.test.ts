// Clients of other interfaces expect more than their request and response formats: unknown query parameters
// are ignored, and errors have the types of these clients' own classes. The official clients call a real
// gateway.
import Anthropic from '@anthropic-ai/sdk';
import { createGateway as createGateway3, GatewayError as GatewayError3 } from 'ai-gateway3';
import { createGateway as createGateway4, GatewayError as GatewayError4 } from 'ai-gateway4';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway();
});
afterAll(() => world?.close());

const post = (path: string, body: object, token = world.userToken) =>
  fetch(world.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
const message = {
  model: 'local/nothing',
  max_tokens: 5,
  messages: [{ role: 'user' as const, content: 'x' }],
};
const prompt = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'x' }] }];

describe('an unknown query parameter', () => {
  test.each([
    ['/v1/ai/chat/completions', { model: 'local/nothing', messages: [{ role: 'user', content: 'x' }] }],
    ['/v1/ai/responses', { model: 'local/nothing', input: 'x' }],
    ['/v1/ai/messages', message],
    ['/v1/ai/v1/messages', message],
    ['/v1/ai/embeddings', { model: 'local/nothing', input: 'x' }],
    ['/v1/ai/rerank', { model: 'local/nothing', query: 'q', documents: ['a'] }],
    ['/v1/ai/language-model', { model: 'local/nothing', prompt }],
  ])('is ignored at %s', async (path, body) => {
    const response = await post(`${path}?api-version=1&beta=true&unknown=a&unknown=b`, body);
    expect(response.status).toBe(404);
    // The model is looked up, so the query was not refused.
    expect(await response.text()).toContain('local/nothing');
  });

  const authorized = () => ({ headers: { authorization: `Bearer ${world.userToken}` } });

  test('is ignored at /v1/ai/config', async () => {
    expect((await fetch(`${world.url}/v1/ai/config?beta=true`, authorized())).status).toBe(200);
  });

  test('is refused by an operation of Townhall itself', async () => {
    expect((await fetch(`${world.url}/v1/ai/models?beta=true`, authorized())).status).toBe(400);
  });
});

describe('an error of the messages format', () => {
  const client = (token = world.userToken) =>
    new Anthropic({ baseURL: `${world.url}/v1/ai`, authToken: token, apiKey: null, maxRetries: 0 });

  test.each([
    ['an unknown model', () => client().messages.create(message), Anthropic.NotFoundError, 'not_found_error'],
    [
      'a wrong credential',
      () => client('nonsense').messages.create(message),
      Anthropic.AuthenticationError,
      'authentication_error',
    ],
    [
      'a malformed body',
      () => client().messages.create({ ...message, messages: 'x' as never }),
      Anthropic.BadRequestError,
      'invalid_request_error',
    ],
  ])('for %s gets its own class in the Anthropic client', async (_name, call, errorClass, type) => {
    const error = await call().then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(errorClass);
    expect(error).toMatchObject({ error: { type: 'error', error: { type } } });
  });

  test('is request_too_large for a body over the limit', async () => {
    const response = await post('/v1/ai/messages', {
      ...message,
      metadata: { text: 'x'.repeat(11 * 1024 * 1024) },
    });
    expect([response.status, await response.json()]).toMatchObject([
      413,
      { type: 'error', error: { type: 'request_too_large' } },
    ]);
  });
});

describe('the AI SDK’s gateway provider', () => {
  test.each([
    ['3', createGateway3, GatewayError3],
    ['4', createGateway4, GatewayError4],
  ])('has its own error class in version %s', async (_version, create, errorClass) => {
    const call = async (apiKey: string, model: string) => {
      const gateway = create({ baseURL: `${world.url}/v1/ai`, apiKey });
      return gateway(model)
        .doGenerate({ prompt } as never)
        .then(
          () => undefined,
          (reason: unknown) => reason,
        );
    };
    const error = await call(world.userToken, 'local/nothing');
    expect(errorClass.isInstance(error)).toBe(true);
    expect(error).toMatchObject({ type: 'model_not_found', statusCode: 404 });
    expect(await call('nonsense', 'local/echo')).toMatchObject({
      type: 'authentication_error',
      statusCode: 401,
    });
  });

  test('gets a list of models that caches keep apart by user agent', async () => {
    const response = await fetch(`${world.url}/v1/ai/config`, {
      headers: { authorization: `Bearer ${world.userToken}`, 'user-agent': 'ai-sdk/gateway/4.0.0' },
    });
    expect(response.headers.get('vary')).toBe('User-Agent');
    expect(await response.json()).toMatchObject({
      models: expect.arrayContaining([
        expect.objectContaining({ specification: expect.objectContaining({ specificationVersion: 'v4' }) }),
      ]),
    });
  });
});
