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

  test.each([
    ['local/guide', /documentation/],
    ['acme/fast', /Hello from the provider|tok0 tok1/],
  ])("answers OpenAI's client and the AI SDK, whole and streamed (%s)", async (model, expected) => {
    const openai = new OpenAI({ baseURL: `${world.url}/v1/ai`, apiKey: world.userToken, maxRetries: 0 });
    const messages = [{ role: 'user' as const, content: 'How do I log in?' }];
    expect((await openai.chat.completions.create({ model, messages })).choices[0]?.message.content).toMatch(
      expected,
    );
    let streamedText = '';
    for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true }))
      streamedText += chunk.choices[0]?.delta.content ?? '';
    expect(streamedText).toMatch(expected);

    const sdk = createOpenAICompatible({
      name: 'townhall',
      baseURL: `${world.url}/v1/ai`,
      apiKey: world.userToken,
    })(model);
    expect((await generateText({ model: sdk, prompt: 'How do I log in?' })).text).toMatch(expected);
    expect(await streamText({ model: sdk, prompt: 'How do I log in?' }).text).toMatch(expected);
  });

  test('shows the model to users and administrators with their own members', async () => {
    const openai = new OpenAI({ baseURL: `${world.url}/v1/ai`, apiKey: world.adminToken, maxRetries: 0 });
    expect(await openai.models.retrieve('acme/fast')).toMatchObject({
      env_requirements: [{ key: 'ACME_API_KEY' }],
    });
    expect((await world.user.ai.listModels()).items.map((item) => item.id)).toContain('acme/fast');
  });

  test('logs no key of a cut stream', async () => {
    const openai = new OpenAI({ baseURL: `${world.url}/v1/ai`, apiKey: world.userToken, maxRetries: 0 });
    await expect(async () => {
      for await (const _chunk of await openai.chat.completions.create({
        model: 'acme/cut',
        messages: [{ role: 'user', content: 'x' }],
        stream: true,
      }));
    }).rejects.toBeInstanceOf(OpenAI.APIError);
    expect(world.logLines.join('')).not.toContain('CANARY');
  });
});
