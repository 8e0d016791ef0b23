// Unmodified clients of the messages and responses formats on models whose providers have other formats.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { Agent, OpenAIProvider, Runner, tool as agentTool } from '@openai/agents';
import { generateText, type LanguageModel, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { cloudEnvironment, cloudKinds, cloudProviders } from '../../../support/cloud-providers.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startTokenEndpoint, type TokenEndpoint } from '../../../support/token-endpoint.ts';
import { startAi, userToken, type World } from '../world.ts';

const toolPrompt = '@reasoning They ask.\n@tool get_weather {"city":"Oslo"}\nI look it up';

let provider: ScriptedProvider;
let tokens: TokenEndpoint;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  tokens = await startTokenEndpoint();
  const entries = [
    { id: 'acme', kind: 'openai-compatible' },
    { id: 'claude', kind: 'anthropic', formats: [] },
    { id: 'gemini', kind: 'google' },
  ];
  world = await startAi({
    models: JSON.stringify({
      providers: [
        ...entries.map((entry) => ({
          name: entry.id,
          base_url: provider.url,
          output_limit_member: 'max_tokens',
          ...entry,
        })),
        ...cloudProviders(provider.url, tokens),
      ],
      models: [...entries.map(({ id }) => id), ...cloudKinds].flatMap((id) =>
        ['ok', 'tools'].map((script) => ({
          id: `${id}/${script}`,
          provider: id,
          upstream_model: script,
          rates: null,
          max_output_tokens: 1_000,
        })),
      ),
    }),
    env: cloudEnvironment(tokens),
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
  await tokens.close();
});
beforeEach(() => provider.reset());

const settings = () => ({ baseURL: `${world.url}/v1/ai` });
const clients: [string, (id: string) => LanguageModel][] = [
  ['@ai-sdk/openai', (id) => createOpenAI({ ...settings(), apiKey: userToken })(id)],
  ['@ai-sdk/anthropic', (id) => createAnthropic({ ...settings(), authToken: userToken })(id)],
];
// By default @ai-sdk/openai refers to stored items in later steps, and answers of
// these models are not stored.
const providerOptions = { openai: { store: false } };
const tools = {
  get_weather: tool({
    description: 'Weather',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `It rains in ${city}.`,
  }),
};

describe.each(clients)('the AI SDK with %s', (_name, model) => {
  const cloudModels = (script: string) => cloudKinds.map((kind) => `${kind}/${script}`);
  test.each(['local/echo', 'acme/ok', 'claude/ok', 'gemini/ok', ...cloudModels('ok')])(
    'generates and streams text: %s',
    async (id) => {
      const options = { model: model(id), prompt: 'Hello', maxRetries: 0, maxOutputTokens: 100 };
      const { text, usage, finishReason } = await generateText(options);
      expect(text).toMatch(/^Hello/);
      expect(finishReason).toBe('stop');
      expect(usage.outputTokens).toBeGreaterThan(0);
      expect(await streamText(options).text).toMatch(/^(?:Hello|tok0)/);
    },
  );

  test.each(['acme/tools', 'claude/tools', 'gemini/tools', ...cloudModels('tools')])(
    'receives the tool call of %s',
    async (id) => {
      const { toolCalls } = await generateText({
        model: model(id),
        prompt: 'Hello',
        tools,
        maxRetries: 0,
        maxOutputTokens: 100,
      });
      expect(toolCalls).toMatchObject([{ toolName: 'get_weather', input: { city: 'Oslo' } }]);
    },
  );

  test('answers with a tool result, whole and streamed', async () => {
    const options = {
      model: model('local/echo'),
      prompt: toolPrompt,
      tools,
      stopWhen: stepCountIs(3),
      maxRetries: 0,
      maxOutputTokens: 100,
      providerOptions,
    };
    expect(await generateText(options)).toMatchObject({ text: 'It rains in Oslo.' });
    expect(await streamText(options).text).toBe('It rains in Oslo.');
  });
});

describe("OpenAI's agents with the responses format", () => {
  const weather = agentTool({
    name: 'get_weather',
    description: 'Weather',
    parameters: z.object({ city: z.string() }),
    execute: async ({ city }) => `It rains in ${city}.`,
  });
  const runner = () =>
    new Runner({
      modelProvider: new OpenAIProvider({
        openAIClient: new OpenAI({ ...settings(), apiKey: userToken, maxRetries: 0 }),
        useResponses: true,
      }),
      tracingDisabled: true,
    });

  test('run a tool and answer, whole and streamed', async () => {
    const agent = new Agent({ name: 'Clerk', model: 'local/echo', tools: [weather] });
    expect((await runner().run(agent, toolPrompt)).finalOutput).toBe('It rains in Oslo.');
    const stream = await runner().run(agent, toolPrompt, { stream: true });
    await stream.completed;
    expect(stream.finalOutput).toBe('It rains in Oslo.');
  });

  test.each(['acme/ok', 'claude/ok', 'gemini/ok'])('answer on %s', async (model) => {
    const agent = new Agent({ name: 'Clerk', model });
    expect((await runner().run(agent, 'Hello')).finalOutput).toBe('Hello from the provider.');
  });
});
