// The first calls of a new user to a whole gateway, on both databases.
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({ withAdmin: true });
});
afterAll(() => world?.close());

describe('the gateway as a whole', () => {
  test('names its services in /health, whatever the credential', async () => {
    const { ok, services } = await world.guest.directory.getHealth();
    expect(ok).toBe(true);
    expect(services).toEqual([
      'env',
      'cities',
      'bureaus',
      'accounts',
      'ai',
      'admin',
      'credits',
      'usage',
      'audit',
      'payments',
    ]);
    const answer = await fetch(`${world.url}/health`, { headers: { authorization: 'Bearer nonsense' } });
    expect(answer.status).toBe(200);
  });

  test('is ready while its database answers', async () => {
    await expect(world.guest.directory.getReadiness()).resolves.toEqual({ ready: true });
  });

  test('shows a user their account', async () => {
    const me = await world.user.accounts.getMe();
    expect(me.bureau).toMatchObject({ bureau_id: 'local', state: 'active' });
    expect(me.user.display_name).toBe('Local user');
  });

  test('lists the same models for the OpenAI client', async () => {
    const openai = new OpenAI({ baseURL: `${world.url}/v1/ai`, apiKey: world.userToken });
    const openaiIds: string[] = [];
    for await (const model of openai.models.list()) openaiIds.push(model.id);
    const modelList = await world.user.ai.listModels();
    expect(openaiIds).toEqual(modelList.items.map(({ id }) => id));
    expect(openaiIds).toContain('local/guide');
    await expect(openai.models.retrieve('local/echo')).resolves.toMatchObject({
      id: 'local/echo',
      object: 'model',
    });
  });

  test('answers the OpenAI client’s documented calls', async () => {
    const openai = new OpenAI({ baseURL: `${world.url}/v1/ai`, apiKey: world.userToken });
    const messages = [{ role: 'user' as const, content: 'How do I add a model provider?' }];
    const completion = await openai.chat.completions.create({ model: 'local/guide', messages });
    const text = completion.choices[0]?.message.content ?? '';
    expect(text).toContain('MODELS_FILE');
    let streamedText = '';
    for await (const chunk of await openai.chat.completions.create({
      model: 'local/guide',
      messages,
      stream: true,
    })) {
      streamedText += chunk.choices[0]?.delta.content ?? '';
    }
    expect(streamedText).toBe(text);
  });

  test('lists every model and its requirements for an administrator', async () => {
    const { items } = await world.admin.ai.listModels();
    expect(items.length).toBeGreaterThan(0);
    // Only the list for a user has reasoning levels.
    const wrongItems = items.filter(
      (item) => item.env_requirements === undefined || item.reasoning !== undefined,
    );
    expect(wrongItems).toEqual([]);
  });

  test('logs no token', () => {
    const log = world.logLines.join('');
    expect(log).toContain('directory.getHealth');
    expect(log).not.toContain(world.userToken);
    expect(log).not.toContain(world.adminToken);
  });
});
