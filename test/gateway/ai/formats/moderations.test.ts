// OpenAI's moderations with its client, unmodified.
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startAi, testResilience, userToken, type World } from '../world.ts';

let provider: ScriptedProvider;
let world: World;
let bareWorld: World;
beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({
    models: provider.modelsFile(
      {},
      {
        provider: { formats: ['chat', 'moderations'] },
        models: [
          {
            id: 'acme/guard',
            provider: 'acme',
            upstream_model: 'ok',
            rates: { input: 1_000_000 },
            modalities: ['moderation'],
          },
        ],
      },
    ),
    resilience: testResilience,
  });
  bareWorld = await startAi({ resilience: testResilience });
});
afterAll(async () => {
  await world?.close();
  await bareWorld?.close();
  await provider?.close();
});

const client = (base = '/v1', { url } = world) =>
  new OpenAI({ baseURL: url + base, apiKey: userToken, maxRetries: 0 });

describe.each(['/v1', '/v1/ai'])("OpenAI's client at %s", (base) => {
  test('checks texts', async () => {
    const answer = await client(base).moderations.create({ model: 'acme/guard', input: ['hello', 'harm'] });
    expect(answer.model).toBe('acme/guard');
    expect(answer.results.map(({ flagged }) => flagged)).toEqual([false, true]);
  });
});

describe('ai.moderateContent', () => {
  test('sends the request as it is', async () => {
    await world.post('/v1/moderations', '{"model":"acme/guard", "input":"hi","extra":1}');
    expect(provider.lastCall()).toMatchObject({ path: '/v1/moderations' });
    expect(provider.lastCall().body.toString()).toBe('{"model":"ok", "input":"hi","extra":1}');
  });

  test('calls the first moderation model if the request names no model', async () => {
    const answer = await client().moderations.create({ input: 'hi' });
    expect(answer.model).toBe('acme/guard');
    expect(JSON.parse(provider.lastCall().body.toString())).toEqual({ input: 'hi', model: 'ok' });
  });

  test('is 404 if there is no moderation model', async () => {
    await expect(client('/v1', bareWorld).moderations.create({ input: 'hi' })).rejects.toMatchObject({
      status: 404,
      code: 'model_not_found',
    });
  });

  test('is 422 for a model that answers in text', async () => {
    await expect(client().moderations.create({ model: 'local/echo', input: 'hi' })).rejects.toMatchObject({
      status: 422,
      code: 'unsupported_by_model',
    });
  });

  test('refuses members that choose another model', async () => {
    const answer = await world.post('/v1/ai/moderations', {
      model: 'acme/guard',
      input: 'hi',
      models: ['x'],
    });
    expect([answer.status, await answer.json()]).toMatchObject([422, { error: { code: 'unpriced_member' } }]);
  });

  test('charges an estimate, because providers report no usage', async () => {
    const answer = await world.post('/v1/moderations', { model: 'acme/guard', input: 'hello there' });
    expect(Number(answer.headers.get('x-townhall-credits'))).toBeGreaterThan(0);
  });

  test('shows its model with the type moderation', async () => {
    const model = await client().models.retrieve('acme/guard');
    expect(model).toMatchObject({ type: 'moderation' });
    const answer = await world.get('/v1/ai/models/acme%2Fguard');
    expect(await answer.json()).toMatchObject({ id: 'acme/guard', modalities: [] });
  });
});
