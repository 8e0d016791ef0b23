// Error codes of the contract that no test of a feature provokes. `npm run lint:observed-codes` lists the
// codes that no test sees.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { GatewayWorld } from '../support/gateway.ts';
import type { ScriptedProvider } from '../support/provider.ts';
import { startMailbox, type Mailbox } from './accounts/mailbox.ts';
import { startProviderWorld, type ProviderWorld } from './provider-world.ts';

let mailbox: Mailbox;
let servers: ProviderWorld;
let world: GatewayWorld;
beforeAll(async () => {
  mailbox = await startMailbox();
  servers = await startProviderWorld(modelsFileOf, {
    withAdmin: true,
    env: { SMTP_URL: mailbox.url, MAIL_FROM: 'login@shop.example' },
  });
  ({ world } = servers);
});
afterAll(async () => {
  await servers?.close();
  await mailbox?.close();
});

const modelsFileOf = (provider: ScriptedProvider) =>
  provider.modelsFile(
    { ok: 'ok' },
    {
      provider: { unpriced_members: ['quality'] },
      models: [
        {
          id: 'acme/painter',
          provider: 'acme',
          upstream_model: 'images',
          rates: null,
          modalities: ['image'],
        },
      ],
    },
  );

test('an e-mail account of an unknown Bureau is 404', async () => {
  const request = { bureau_id: 'none', email: 'ada@example.com' };
  const refusal = { status: 404, code: 'bureau_not_found', param: 'bureau_id' };
  await expect(
    world.guest.accounts.register({ ...request, password: 'correct horse battery staple' }),
  ).rejects.toMatchObject(refusal);
  await expect(world.guest.accounts.requestPasswordReset(request)).rejects.toMatchObject(refusal);
});

test('credits of an unknown user cannot be deducted', async () => {
  await expect(
    world.admin.credits.deductCredits({
      user_id: 'usr_01jd6zv0c5e9fsr8m2w4x1k7qa',
      credits: 1,
      reason: 'by mistake',
    }),
  ).rejects.toMatchObject({ status: 404, code: 'user_not_found' });
});

describe("a call in Google's format", () => {
  const send = async (path: string, members: object = {}) => {
    const response = await fetch(`${world.url}/v1beta/models/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-goog-api-key': world.userToken },
      body: JSON.stringify({ contents: [{ parts: [{ text: 'Hello' }] }], ...members }),
    });
    const body = (await response.json()) as { error: { details: { reason: string }[] } };
    return [response.status, body.error.details[0]?.reason];
  };

  test('counts no tokens for an unknown model', async () => {
    expect(await send('acme/none:countTokens')).toEqual([404, 'model_not_found']);
  });

  test('counts no tokens for a model of images', async () => {
    expect(await send('local/shapes:countTokens')).toEqual([422, 'unsupported_by_model']);
  });

  test('refuses an effort that the model lacks', async () => {
    const effort = { generationConfig: { thinkingConfig: { thinkingLevel: 'HIGH' } } };
    expect(await send('acme/ok:streamGenerateContent?alt=sse', effort)).toEqual([
      422,
      'unsupported_reasoning_effort',
    ]);
  });
});

test('a language-model call with an option of unknown price is 422', async () => {
  const response = await fetch(`${world.url}/v1/ai/language-model`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${world.userToken}`,
      'content-type': 'application/json',
      'ai-language-model-specification-version': '3',
      'ai-language-model-id': 'acme/ok',
      'ai-language-model-streaming': 'false',
    },
    body: JSON.stringify({
      prompt: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }],
      providerOptions: { acme: { quality: 'high' } },
    }),
  });
  expect([response.status, await response.json()]).toMatchObject([
    422,
    { error: { code: 'unpriced_member' } },
  ]);
});

describe('an image with an option of unknown price', () => {
  const refusal = [422, { error: { code: 'unpriced_member', param: 'quality' } }];
  const authorization = () => ({ authorization: `Bearer ${world.userToken}` });

  test('is refused as JSON', async () => {
    const response = await fetch(`${world.url}/v1/images/generations`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...authorization() },
      body: JSON.stringify({ model: 'acme/painter', prompt: 'A boat', quality: 'high' }),
    });
    expect([response.status, await response.json()]).toMatchObject(refusal);
  });

  test('is refused as a form', async () => {
    const form = new FormData();
    for (const [name, value] of Object.entries({ model: 'acme/painter', prompt: 'A boat', quality: 'high' }))
      form.set(name, value);
    const png =
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
    form.set('image', new Blob([Buffer.from(png, 'base64')], { type: 'image/png' }), 'boat.png');
    const response = await fetch(`${world.url}/v1/images/edits`, {
      method: 'POST',
      headers: authorization(),
      body: form,
    });
    expect([response.status, await response.json()]).toMatchObject(refusal);
  });
});

test('a path that cannot be decoded is 400', async () => {
  const response = await fetch(`${world.url}/v1/ai/models/%ff`);
  expect([response.status, await response.json()]).toMatchObject([400, { error: { code: 'invalid_path' } }]);
});

describe('stored responses under /v1/ai', () => {
  const missingId = 'resp_01jd6zv0c5e9fsr8m2w4x1k7qe';

  async function request(method: string, path: string, body?: object) {
    const response = await fetch(`${world.url}/v1/ai/responses${path}`, {
      method,
      headers: { 'content-type': 'application/json', authorization: `Bearer ${world.userToken}` },
      ...(body && { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as { id: string } };
  }

  const store = async (input: object) =>
    (await request('POST', '', { model: 'local/echo', input: 'Hello', store: true, ...input })).body.id;

  test('refuse to continue a response that does not exist', async () => {
    const body = { model: 'local/echo', input: 'Hello', previous_response_id: missingId };
    expect(await request('POST', '', body)).toMatchObject({
      status: 400,
      body: { error: { code: 'previous_response_not_found', param: 'previous_response_id' } },
    });
  });

  test('refuse to list the items of a conversation without its beginning', async () => {
    const firstResponseId = await store({});
    const secondResponseId = await store({ previous_response_id: firstResponseId });
    await request('DELETE', `/${firstResponseId}`);
    expect(await request('GET', `/${secondResponseId}/input_items`)).toMatchObject({
      status: 400,
      body: { error: { code: 'previous_response_not_found' } },
    });
  });

  test('refuse to count the tokens of an unknown model', async () => {
    expect(await request('POST', '/input_tokens', { model: 'no/model', input: 'Hello' })).toMatchObject({
      status: 404,
      body: { error: { code: 'model_not_found', param: 'model' } },
    });
  });

  test('refuse to count the tokens of a conversation of the provider', async () => {
    const body = { model: 'local/echo', input: 'Hello', conversation: 'conv_1' };
    expect(await request('POST', '/input_tokens', body)).toMatchObject({
      status: 422,
      body: { error: { code: 'unsupported_by_model', param: 'conversation' } },
    });
  });
});
