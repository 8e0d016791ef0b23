// The official clients, unmodified, with each base URL and credential that they support.
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { adminToken, startAi, userToken, type World } from '../world.ts';

const chat = { model: 'acme/ok', messages: [{ role: 'user' as const, content: 'Hello' }] };
const message = { model: 'anthropic/ok', max_tokens: 20, messages: chat.messages };

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const vectors = { provider: 'acme', upstream_model: 'ok', rates: { input: 1_000_000 } };
  world = await startAi({
    models: provider.modelsFile(
      { ok: 'ok', other: 'ok' },
      {
        model: { rates: { input: 1_000_000, output: 1_000_000 }, created: 1_767_225_600 },
        providers: [
          { id: 'anthropic', kind: 'anthropic', base_url: provider.url, api_key_env: 'ACME_API_KEY' },
        ],
        models: [
          { id: 'acme/vectors', ...vectors, modalities: ['embedding'] },
          { id: 'anthropic/ok', provider: 'anthropic', upstream_model: 'ok', rates: null },
        ],
      },
    ),
  });
});
afterAll(async () => {
  await world?.close();
  await provider?.close();
});

describe.each(['/v1', '/v1/', '/v1/ai', '/v1/ai/'])("OpenAI's client at %s", (base) => {
  const client = () => new OpenAI({ baseURL: world.url + base, apiKey: userToken, maxRetries: 0 });

  test('chats', async () => {
    const { choices } = await client().chat.completions.create(chat);
    expect(choices[0]?.message.content).toBe('Hello from the provider.');
  });

  test('embeds', async () => {
    const { data } = await client().embeddings.create({ model: 'acme/vectors', input: 'a' });
    expect(data[0]?.embedding).toEqual([0.5, -0.25, 1]);
  });

  test('lists models with their types', async () => {
    const types = new Map<string, unknown>();
    for await (const model of client().models.list()) types.set(model.id, (model as { type?: unknown }).type);
    expect(types.get('acme/ok')).toBe('chat');
    expect(types.get('acme/vectors')).toBe('embedding');
    expect(types.get('local/shapes')).toBe('image');
    expect(types.get('local/flite')).toBe('speech');
  });

  test('reads a model whose id has a slash', async () => {
    expect(await client().models.retrieve('acme/ok')).toMatchObject({
      id: 'acme/ok',
      object: 'model',
      created: 1_767_225_600,
      owned_by: 'acme',
    });
  });

  test('maps an unknown model to its own error', async () => {
    await expect(client().models.retrieve('acme/none')).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });
});

describe.each(['', '/', '/v1/ai', '/v1/ai/'])("Anthropic's client with an API key at %s", (base) => {
  const client = (apiKey = userToken) =>
    new Anthropic({ baseURL: world.url + base, apiKey, authToken: null, maxRetries: 0 });

  test('creates a message', async () => {
    const { content } = await client().messages.create(message);
    expect(content).toMatchObject([{ type: 'text', text: 'Hello from the provider.' }]);
  });

  test('pages through the models for chat', async () => {
    const ids: string[] = [];
    for await (const model of client().models.list({ limit: 2 })) ids.push(model.id);
    expect(ids).toEqual(expect.arrayContaining(['acme/ok', 'acme/other', 'anthropic/ok', 'local/echo']));
    expect(ids).not.toContain('acme/vectors');
    expect(new Set(ids).size).toBe(ids.length);
  });

  test('reads a model', async () => {
    expect(await client().models.retrieve('acme/ok')).toMatchObject({
      id: 'acme/ok',
      type: 'model',
      created_at: '2026-01-01T00:00:00.000Z',
    });
  });

  test('maps a wrong key to its own error', async () => {
    await expect(client('nonsense').messages.create(message)).rejects.toBeInstanceOf(
      Anthropic.AuthenticationError,
    );
  });

  test('maps an unknown model to its own error', async () => {
    await expect(client().models.retrieve('acme/none')).rejects.toBeInstanceOf(Anthropic.NotFoundError);
  });
});

describe("Anthropic's list of models", () => {
  const list = async (query: string) => {
    const response = await fetch(`${world.url}/v1/models?${query}`, {
      headers: { 'x-api-key': userToken, 'anthropic-version': '2023-06-01' },
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  const idsOf = ({ body }: { body: Record<string, unknown> }) =>
    (body['data'] as { id: string }[]).map(({ id }) => id);

  test('ends a page before the model of before_id', async () => {
    const ids = idsOf(await list('limit=1000'));
    const page = await list(`limit=1&before_id=${ids[2] ?? ''}`);
    expect(idsOf(page)).toEqual([ids[1]]);
    expect(page.body).toMatchObject({ has_more: true, first_id: ids[1], last_id: ids[1] });
  });

  test('refuses a page after an unknown model', async () => {
    expect(await list('after_id=acme/none')).toMatchObject({
      status: 400,
      body: {
        type: 'error',
        error: {
          type: 'invalid_request_error',
          param: 'after_id',
          message: expect.stringContaining('use first_id or last_id of another page') as string,
        },
      },
    });
  });
});

describe('an error at a path of a client', () => {
  const ask = async (method: string, path: string, headers: Record<string, string> = {}) => {
    const response = await fetch(world.url + path, { method, headers });
    return [response.status, await response.json()];
  };

  test.each([
    ['another method', 'GET', '/v1/messages', 405],
    ['a path below', 'POST', '/v1/messages/none', 404],
    ['no credential', 'POST', '/v1/messages', 401],
  ])("has Anthropic's shape for %s of messages", async (_name, method, path, status) => {
    expect(await ask(method, path)).toMatchObject([
      status,
      { type: 'error', error: { type: expect.stringMatching(/_error$/) } },
    ]);
  });

  test("has OpenAI's shape for the list of models without a version", async () => {
    const [status, body] = await ask('GET', '/v1/models');
    expect([status, body]).toMatchObject([401, { error: { code: 'authentication_required' } }]);
    expect(body).not.toHaveProperty('type');
  });

  test("has Anthropic's shape for the list of models with a version", async () => {
    expect(await ask('GET', '/v1/models', { 'anthropic-version': '2023-06-01' })).toMatchObject([
      401,
      { type: 'error', error: { type: 'authentication_error' } },
    ]);
  });
});

describe('a call at an alias', () => {
  test('costs the same as at the original path', async () => {
    const charge = async (path: string) => (await world.post(path, chat)).headers.get('x-townhall-credits');
    const originalCharge = await charge('/v1/ai/chat/completions');
    expect(Number(originalCharge)).toBeGreaterThan(0);
    expect(await charge('/v1/chat/completions')).toBe(originalCharge);
  });

  test('is logged as the operation of its handler, with its path', async () => {
    world.logged.length = 0;
    await world.post('/v1/embeddings', { model: 'acme/vectors', input: 'a' });
    // The contract names the operation of this path ai.embedTextAtV1Embeddings.
    expect(world.logged.join('\n')).not.toContain('AtV1');
    const line = world.logged.find((text) => text.includes('"msg":"request"'));
    expect(JSON.parse(line ?? '{}')).toMatchObject({ operationId: 'ai.embedText', path: '/v1/embeddings' });
  });
});

test('an administrator may list the models', async () => {
  const response = await world.get('/v1/models', { token: adminToken });
  expect(response.status).toBe(200);
});
