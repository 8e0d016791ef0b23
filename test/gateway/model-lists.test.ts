// The models that a user may call: the intersection of the key's list and the Bureau's list.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({ withAdmin: true });
});
afterAll(() => world?.close());

const listModelIds = async (token: string): Promise<string[]> =>
  (await world.as(token).ai.listModels()).items.map(({ id }) => id);
const call = (token: string, model: string) => world.as(token).ai.generateText({ model, prompt: 'Hello' });

describe('the models of a user', () => {
  test('are only those of the key', async () => {
    const { user_token } = await world.user.accounts.createKey({ name: 'echo only', models: ['local/echo'] });
    expect(await listModelIds(user_token)).toEqual(['local/echo']);
    await expect(call(user_token, 'local/echo')).resolves.toMatchObject({ role: 'assistant' });
    await expect(call(user_token, 'local/guide')).rejects.toMatchObject({
      status: 404,
      code: 'model_not_found',
    });
    await expect(world.as(user_token).ai.getModel({ model_id: 'local/guide' })).rejects.toMatchObject({
      status: 404,
    });
    await expect(
      world.as(user_token).ai.createImage({ model: 'local/shapes', prompt: 'A house' }),
    ).rejects.toMatchObject({ status: 404 });
  });

  test('are listed for the AI SDK’s provider', async () => {
    const { user_token } = await world.user.accounts.createKey({ name: 'echo only', models: ['local/echo'] });
    const { models } = await world.as(user_token).ai.getConfig();
    expect(models.map(({ id }) => id)).toEqual(['local/echo']);
  });

  test('are those that both the Bureau and the key allow', async () => {
    const { bureau_id } = await world.admin.bureaus.createBureau({
      server_url: 'https://product.example',
      models: ['local/guide', 'local/shapes'],
    });
    const { user_token } = await world.admin.accounts.issueToken({ bureau_id, external_id: 'anna' });
    expect((await listModelIds(user_token)).toSorted()).toEqual(['local/guide', 'local/shapes']);
    const key = await world
      .as(user_token)
      .accounts.createKey({ name: 'both', models: ['local/echo', 'local/guide'] });
    expect(await listModelIds(key.user_token)).toEqual(['local/guide']);
    await world.admin.bureaus.updateBureau({ bureau_id, models: ['local/echo'] });
    expect(await listModelIds(user_token)).toEqual(['local/echo']);
    await expect(call(key.user_token, 'local/guide')).rejects.toMatchObject({ status: 404 });
  });

  test('are not limited for an administrator', async () => {
    // The local models and all curated models, although no key of a provider is set here.
    expect((await world.admin.ai.listModels()).items.length).toBeGreaterThan(20);
  });
});
