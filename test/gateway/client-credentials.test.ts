// The headers in which clients of other interfaces send a key. Here, the key is a user token.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { GatewayWorld } from '../support/gateway.ts';
import type { ScriptedProvider } from '../support/provider.ts';
import { rawRequest } from '../support/raw-http.ts';
import { startProviderWorld, type ProviderWorld } from './provider-world.ts';

let servers: ProviderWorld;
let world: GatewayWorld;
let provider: ScriptedProvider;
beforeAll(async () => {
  servers = await startProviderWorld(
    (scripted) => scripted.modelsFile({ ok: 'ok', slow: 'ok?chunks=100000&gap=20' }),
    { withAdmin: true },
  );
  ({ world, provider } = servers);
});
afterAll(() => servers?.close());

const keyHeaders = ['x-api-key', 'api-key', 'x-goog-api-key'];

const get = (path: string, headers: Record<string, string>) => fetch(world.url + path, { headers });
const completeChat = (headers: Record<string, string>, model = 'acme/ok') =>
  fetch(`${world.url}/v1/ai/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({
      model,
      stream: model === 'acme/slow',
      messages: [{ role: 'user', content: 'Hello' }],
    }),
  });

async function statusAndError(response: Response): Promise<unknown[]> {
  const { error } = (await response.json()) as { error?: { code: string; param: string | null } };
  return [response.status, error?.code, error?.param];
}

describe.each(keyHeaders)('a token in %s', (name) => {
  test('authenticates the user', async () => {
    const response = await get('/v1/ai/models', { [name]: world.userToken });
    expect(response.status).toBe(200);
  });

  test('is accepted beside the same bearer token', async () => {
    const bothHeaders = { [name]: world.userToken, authorization: `Bearer ${world.userToken}` };
    expect((await get('/v1/ai/models', bothHeaders)).status).toBe(200);
  });

  test('is refused beside a different bearer token', async () => {
    const bothHeaders = { [name]: world.userToken, authorization: `Bearer ${world.adminToken}` };
    expect(await statusAndError(await get('/v1/ai/models', bothHeaders))).toEqual([
      400,
      'invalid_request',
      name,
    ]);
  });

  test('does not authenticate an administrator', async () => {
    const response = await get('/v1/ai/models', { [name]: world.adminToken });
    expect(await statusAndError(response)).toEqual([403, 'forbidden_for_identity', null]);
  });

  test('is refused when it is unknown', async () => {
    const response = await get('/v1/ai/models', { [name]: 'nonsense' });
    expect(await statusAndError(response)).toEqual([401, 'invalid_token', null]);
  });

  test('is ignored by operations outside of the service ai', async () => {
    const response = await get('/v1/credits/me', { [name]: world.userToken });
    expect(await statusAndError(response)).toEqual([401, 'authentication_required', null]);
  });

  test('reaches neither the provider nor the log', async () => {
    provider.reset();
    world.logLines.length = 0;
    expect((await completeChat({ [name]: world.userToken })).status).toBe(200);
    const request = JSON.stringify(provider.lastCall().headers);
    expect(request).not.toContain(world.userToken);
    expect(request).toContain('a key for tests');
    expect(world.logLines.join('\n')).toContain('ai.createChatCompletion');
    expect(world.logLines.join('\n')).not.toContain(world.userToken);
  });
});

describe('two key headers', () => {
  test('with the same token are one credential', async () => {
    const headers = { 'x-api-key': world.userToken, 'x-goog-api-key': world.userToken };
    expect((await get('/v1/ai/models', headers)).status).toBe(200);
  });

  test('with different tokens are refused with 400', async () => {
    const headers = { 'x-api-key': world.userToken, 'api-key': 'another' };
    expect(await statusAndError(await get('/v1/ai/models', headers))).toEqual([
      400,
      'invalid_request',
      'api-key',
    ]);
  });

  test('of the same name are refused with 400', async () => {
    const { status } = await rawRequest(world.url, 'GET', '/v1/ai/models', [
      ['host', new URL(world.url).host],
      ['x-api-key', world.userToken],
      ['x-api-key', 'another'],
    ]);
    expect(status).toBe(400);
  });
});

test('a stream ends when the key of its call is revoked', async () => {
  const { user_token: key, token_id: keyId } = await world.user.accounts.createKey({ name: 'for a stream' });
  const response = await completeChat({ 'x-api-key': key }, 'acme/slow');
  expect(response.status).toBe(200);
  const text = response.text();
  await world.user.accounts.revokeKey({ token_id: keyId });
  expect(await text).toContain('invalid_token');
});
