// The AI SDK in two versions, with our client's models, its gateway provider and its provider for
// OpenAI-compatible servers.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { createGatewayClient } from '@townhall/gateway';
import * as ai7 from 'ai';
import { createGateway as createGateway3 } from 'ai-gateway3';
import { createGateway as createGateway4 } from 'ai-gateway4';
import { createOpenAICompatible as createOpenAICompatible2 } from 'ai-openai-compatible2';
import * as ai6 from 'ai6';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startAi, userToken, type World } from '../world.ts';

type Sdk = typeof ai7;
type Model = Parameters<Sdk['generateText']>[0]['model'];

const pixel = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
const toolPrompt = '@reasoning They ask.\n@tool get_weather {"city":"Oslo"}\nI look it up';

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const scripts = {
    ok: 'ok',
    slow: 'ok?chunks=500&gap=20',
    limited: 'status?code=429&retry_after=0',
    refused: 'status?code=400&error_code=bad_thing',
    cut: 'reset?chunks=2',
  };
  world = await startAi({
    models: provider.modelsFile(scripts),
    resilience: { retry: { retries: 0 }, breaker: { consecutiveFailures: 1_000, windowCalls: 1_000 } },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => provider.reset());

const settings = (apiKey = userToken) => ({ baseURL: `${world.url}/v1/ai`, apiKey });
const compatibleSettings = () => ({
  name: 'townhall',
  includeUsage: true,
  supportsStructuredOutputs: true,
  ...settings(),
});
const ourClient = (id: string) => createGatewayClient({ baseUrl: world.url, token: userToken }).model(id);

// Both versions have the same functions with nearly the same types; the tests use the newer
// version's.
const variants: [string, Sdk, (id: string) => Model][] = [
  ['ai 7, the model of our client', ai7, (id) => ourClient(id)],
  ['ai 6, the model of our client', ai6 as unknown as Sdk, (id) => ourClient(id)],
  ['ai 7, @ai-sdk/gateway 4', ai7, (id) => createGateway4(settings())(id) as Model],
  ['ai 6, @ai-sdk/gateway 3', ai6 as unknown as Sdk, (id) => createGateway3(settings())(id) as Model],
  ['ai 7, openai-compatible 3', ai7, (id) => createOpenAICompatible(compatibleSettings())(id)],
  [
    'ai 6, openai-compatible 2',
    ai6 as unknown as Sdk,
    (id) => createOpenAICompatible2(compatibleSettings())(id) as Model,
  ],
];

describe.each(variants)('%s', (_name, sdk, model) => {
  const weather = () =>
    sdk.tool({
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => `It rains in ${city}.`,
    });

  test('generates text with its usage', async () => {
    const { text, usage, finishReason } = await sdk.generateText({
      model: model('local/echo'),
      prompt: 'Good morning',
    });
    expect([text, finishReason, usage.inputTokens, usage.outputTokens]).toEqual([
      'Good morning',
      'stop',
      2,
      2,
    ]);
  });

  test('streams text', async () => {
    const result = sdk.streamText({ model: model('acme/ok'), prompt: 'hi' });
    let streamedText = '';
    for await (const piece of result.textStream) streamedText += piece;
    expect(streamedText).toBe('tok0 tok1 tok2 tok3 tok4 ');
    expect((await result.usage).outputTokens).toBe(5);
  });

  const toolCall = () => ({
    model: model('local/echo'),
    prompt: toolPrompt,
    tools: { get_weather: weather() },
    stopWhen: sdk.stepCountIs(3),
  });

  test('runs tools over several steps', async () => {
    const { text, steps } = await sdk.generateText(toolCall());
    expect([text, steps.length]).toEqual(['It rains in Oslo.', 2]);
  });

  test('runs tools over several steps of a stream', async () => {
    const stream = sdk.streamText(toolCall());
    expect(await stream.text).toBe('It rains in Oslo.');
    expect(await stream.steps).toHaveLength(2);
  });

  test('receives the reasoning of a step', async () => {
    const { steps } = await sdk.generateText(toolCall());
    expect(steps[0]?.reasoningText).toBe('They ask.');
  });

  test('generates objects of a schema', async () => {
    const schema = z.object({ city: z.string().min(2), days: z.array(z.number()).min(1) });
    const { output } = await sdk.generateText({
      model: model('local/echo'),
      prompt: 'x',
      output: sdk.Output.object({ schema }),
    });
    expect(schema.safeParse(output).success).toBe(true);
  });

  test('sends pictures', async () => {
    const content = [
      { type: 'text' as const, text: 'What is this?' },
      { type: 'image' as const, image: pixel, mediaType: 'image/png' },
    ];
    await sdk.generateText({ model: model('acme/ok'), messages: [{ role: 'user', content }] });
    expect(provider.lastCall().body.toString()).toContain(pixel.toString('base64'));
  });

  test('aborts the call to the provider when it aborts its own', async () => {
    const caller = new AbortController();
    const result = sdk.streamText({
      model: model('acme/slow'),
      prompt: 'hi',
      abortSignal: caller.signal,
      onError: () => {},
    });
    for await (const _piece of result.textStream) caller.abort();
    await provider.until((calls) => calls[0]?.abortedAt !== undefined);
    expect(provider.lastCall().tokens).toBeLessThan(500);
  });

  test('retries only transient errors', async () => {
    await expect(
      sdk.generateText({ model: model('acme/limited'), prompt: 'hi', maxRetries: 1 }),
    ).rejects.toThrow('limiting requests');
    expect(provider.calls).toHaveLength(2);
    provider.reset();
    await expect(
      sdk.generateText({ model: model('acme/refused'), prompt: 'hi', maxRetries: 1 }),
    ).rejects.toThrow('scripted 400');
    expect(provider.calls).toHaveLength(1);
  });

  test('reports a stream that breaks off', async () => {
    const errors: unknown[] = [];
    const result = sdk.streamText({
      model: model('acme/cut'),
      prompt: 'hi',
      maxRetries: 0,
      onError: ({ error }) => void errors.push(error),
    });
    await result.consumeStream({ onError: () => {} });
    expect(errors).toMatchObject([
      { message: expect.stringContaining('closed the connection before its answer') },
    ]);
  });
});

describe("the AI SDK's gateway provider", () => {
  test('lists the models', async () => {
    for (const gateway of [createGateway3(settings()), createGateway4(settings())]) {
      const { models } = await gateway.getAvailableModels();
      expect(models.map((model) => model.id)).toEqual(expect.arrayContaining(['local/echo', 'acme/ok']));
    }
  });

  test('maps errors to their classes', async () => {
    const gateway = createGateway4(settings());
    await expect(
      ai7.generateText({ model: gateway('acme/none'), prompt: 'x', maxRetries: 0 }),
    ).rejects.toMatchObject({ statusCode: 404 });
    const unauthorizedGateway = createGateway4(settings('wrong'));
    await expect(
      ai7.generateText({ model: unauthorizedGateway('local/echo'), prompt: 'x', maxRetries: 0 }),
    ).rejects.toMatchObject({ name: 'GatewayAuthenticationError' });
  });

  test("reads the effort from version 7's common reasoning option", async () => {
    const gateway = createGateway4(settings());
    await expect(
      ai7.generateText({ model: gateway('local/echo'), prompt: 'x', reasoning: 'max', maxRetries: 0 }),
    ).rejects.toThrow('allowed are low, high');
    expect(
      (await ai7.generateText({ model: gateway('local/echo'), prompt: 'x', reasoning: 'high' })).text,
    ).toBe('x');
  });
});
