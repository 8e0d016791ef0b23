// A whole gateway with models from a file, called with third-party clients.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';

describe('a gateway with a provider of MODELS_FILE', () => {
  let provider: ScriptedProvider;
  let world: GatewayWorld;
  let folder: string;
  beforeAll(async () => {
    provider = await startProvider();
    folder = await mkdtemp(join(tmpdir(), 'townhall-models-'));
    const modelsFile = join(folder, 'models.json');
    await writeFile(modelsFile, provider.modelsFile({ fast: 'ok', cut: 'reset?chunks=2' }));
    world = await startGateway({
      env: { MODELS_FILE: modelsFile, ACME_API_KEY: 'CANARY-key-of-acme' },
      withAdmin: true,
    });
  });
  afterAll(async () => {
    await world.close();
    await provider.close();
    await rm(folder, { recursive: true });
  });

  const openai = (token = world.userToken) =>
    new OpenAI({ baseURL: `${world.url}/v1/ai`, apiKey: token, maxRetries: 0 });
  const prompt = 'How do I log in?';

  describe.each([
    ['local/guide', /documentation/],
    ['acme/fast', /Hello from the provider|tok0 tok1/],
  ])('with the model %s', (model, expected) => {
    test("answers OpenAI's client", async () => {
      const messages = [{ role: 'user' as const, content: prompt }];
      const { choices } = await openai().chat.completions.create({ model, messages });
      expect(choices[0]?.message.content).toMatch(expected);
      let streamedText = '';
      for await (const chunk of await openai().chat.completions.create({ model, messages, stream: true }))
        streamedText += chunk.choices[0]?.delta.content ?? '';
      expect(streamedText).toMatch(expected);
    });

    test('answers the AI SDK', async () => {
      const sdk = createOpenAICompatible({
        name: 'townhall',
        baseURL: `${world.url}/v1/ai`,
        apiKey: world.userToken,
      })(model);
      expect((await generateText({ model: sdk, prompt })).text).toMatch(expected);
      expect(await streamText({ model: sdk, prompt }).text).toMatch(expected);
    });
  });

  test('shows the model with its env_requirements to an administrator', async () => {
    expect(await openai(world.adminToken).models.retrieve('acme/fast')).toMatchObject({
      env_requirements: [{ key: 'ACME_API_KEY' }],
    });
  });

  test('lists the model for a user', async () => {
    expect((await world.user.ai.listModels()).items.map((item) => item.id)).toContain('acme/fast');
  });

  test('logs no API key when a stream is cut off', async () => {
    await expect(async () => {
      for await (const _chunk of await openai().chat.completions.create({
        model: 'acme/cut',
        messages: [{ role: 'user', content: 'x' }],
        stream: true,
      }));
    }).rejects.toBeInstanceOf(OpenAI.APIError);
    expect(world.logLines.join('')).toContain('acme/cut');
    expect(world.logLines.join('')).not.toContain('CANARY');
  });
});
