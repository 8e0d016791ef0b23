// Chats, tools and errors with OpenAI's client, LangChain and OpenAI's agents, all unmodified.
import { Agent, OpenAIProvider, Runner, tool as agentTool } from '@openai/agents';
import { HumanMessage, type ToolMessage } from '@langchain/core/messages';
import { tool as chainTool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startAi, userToken, type World } from '../world.ts';

const toolPrompt = '@tool get_weather {"city":"Oslo"}\nI look it up';
const user = (content: string) => [{ role: 'user' as const, content }];

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const scripts = {
    ok: 'ok',
    tools: 'tools',
    slow: 'ok?chunks=500&gap=20',
    limited: 'status?code=429&retry_after=0',
    refused: 'status?code=400&error_code=context_length_exceeded',
    cut: 'reset?chunks=2',
  };
  const embedding = {
    id: 'acme/vectors',
    provider: 'acme',
    upstream_model: 'ok',
    rates: null,
    modalities: ['embedding'],
  };
  world = await startAi({
    models: provider.modelsFile(scripts, { models: [embedding] }),
    resilience: { retry: { retries: 0 }, breaker: { consecutiveFailures: 1_000, windowCalls: 1_000 } },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => provider.reset());

describe("OpenAI's client", () => {
  const client = (maxRetries = 0) =>
    new OpenAI({ baseURL: `${world.url}/v1/ai`, apiKey: userToken, maxRetries });

  test('chats, whole and streamed', async () => {
    expect(
      (await client().chat.completions.create({ model: 'acme/ok', messages: user('hi') })).choices[0]?.message
        .content,
    ).toBe('Hello from the provider.');
    let streamedText = '';
    for await (const chunk of await client().chat.completions.create({
      model: 'acme/ok',
      messages: user('hi'),
      stream: true,
    }))
      streamedText += chunk.choices[0]?.delta.content ?? '';
    expect(streamedText).toBe('tok0 tok1 tok2 tok3 tok4 ');
  });

  test('runs tools, whole and streamed', async () => {
    const tools = [
      {
        type: 'function' as const,
        function: {
          name: 'get_weather',
          description: 'Weather',
          parameters: { type: 'object', properties: { city: { type: 'string' } } },
          parse: (text: string) => JSON.parse(text) as { city: string },
          function: async ({ city }: { city: string }) => `It rains in ${city}.`,
        },
      },
    ];
    expect(
      await client()
        .chat.completions.runTools({ model: 'local/echo', messages: user(toolPrompt), tools })
        .finalContent(),
    ).toBe('It rains in Oslo.');
    expect(
      await client()
        .chat.completions.runTools({ model: 'local/echo', messages: user(toolPrompt), tools, stream: true })
        .finalContent(),
    ).toBe('It rains in Oslo.');
  });

  test('receives a tool call from a provider', async () => {
    expect(
      (await client().chat.completions.create({ model: 'acme/tools', messages: user('hi') })).choices[0]
        ?.message.tool_calls,
    ).toHaveLength(1);
  });

  test('lists and retrieves models', async () => {
    const ids: string[] = [];
    for await (const model of client().models.list()) ids.push(model.id);
    expect(ids).toEqual(expect.arrayContaining(['local/echo', 'acme/ok', 'acme/vectors']));
    expect((await client().models.retrieve('acme/ok')).owned_by).toBe('acme');
  });

  test('makes embeddings', async () => {
    expect(
      (await client().embeddings.create({ model: 'acme/vectors', input: 'a' })).data[0]?.embedding,
    ).toEqual([0.5, -0.25, 1]);
  });

  test('maps errors to their classes', async () => {
    await expect(
      client().chat.completions.create({ model: 'acme/none', messages: user('x') }),
    ).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(
      client().chat.completions.create({ model: 'acme/refused', messages: user('x') }),
    ).rejects.toMatchObject({ status: 400, code: 'context_length_exceeded' });
    await expect(
      new OpenAI({ baseURL: `${world.url}/v1/ai`, apiKey: 'wrong', maxRetries: 0 }).models.list(),
    ).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
  });

  test('retries only transient errors', async () => {
    await expect(
      client(1).chat.completions.create({ model: 'acme/limited', messages: user('x') }),
    ).rejects.toBeInstanceOf(OpenAI.RateLimitError);
    expect(provider.calls).toHaveLength(2);
    provider.reset();
    await expect(
      client(2).chat.completions.create({ model: 'acme/refused', messages: user('x') }),
    ).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    expect(provider.calls).toHaveLength(1);
  });

  test('aborts the call to the provider when it aborts its own', async () => {
    const stream = await client().chat.completions.create({
      model: 'acme/slow',
      messages: user('x'),
      stream: true,
    });
    for await (const _chunk of stream) stream.controller.abort();
    await provider.until((calls) => calls[0]?.abortedAt !== undefined);
    expect(provider.lastCall().tokens).toBeLessThan(500);
  });

  test('throws for a stream that breaks off', async () => {
    await expect(
      client()
        .chat.completions.stream({ model: 'acme/cut', messages: user('x') })
        .finalContent(),
    ).rejects.toBeInstanceOf(OpenAI.APIError);
  });
});

describe('LangChain', () => {
  const chat = (model: string) =>
    new ChatOpenAI({
      model,
      apiKey: userToken,
      maxRetries: 0,
      configuration: { baseURL: `${world.url}/v1/ai` },
    });

  test('answers whole and streamed', async () => {
    expect((await chat('acme/ok').invoke('hi')).content).toBe('Hello from the provider.');
    let streamedText = '';
    for await (const chunk of await chat('acme/ok').stream('hi')) streamedText += chunk.text;
    expect(streamedText).toBe('tok0 tok1 tok2 tok3 tok4 ');
  });

  test('calls tools', async () => {
    const weather = chainTool(async ({ city }) => `It rains in ${city}.`, {
      name: 'get_weather',
      description: 'Weather',
      schema: z.object({ city: z.string() }),
    });
    const modelWithTool = chat('local/echo').bindTools([weather]);
    const question = new HumanMessage(toolPrompt);
    const toolCall = await modelWithTool.invoke([question]);
    expect(toolCall.tool_calls).toMatchObject([{ name: 'get_weather', args: { city: 'Oslo' } }]);
    const [call] = toolCall.tool_calls ?? [];
    if (call === undefined) throw new Error('The model called no tool.');
    const result: ToolMessage = await weather.invoke({ ...call, type: 'tool_call' });
    expect((await modelWithTool.invoke([question, toolCall, result])).content).toBe('It rains in Oslo.');
  });

  test('makes embeddings', async () => {
    const vectors = new OpenAIEmbeddings({
      model: 'acme/vectors',
      apiKey: userToken,
      configuration: { baseURL: `${world.url}/v1/ai` },
    });
    expect(await vectors.embedQuery('a')).toEqual([0.5, -0.25, 1]);
  });

  test('throws for an unknown model', async () => {
    await expect(chat('acme/none').invoke('hi')).rejects.toThrow(/There is no model/);
  });
});

describe("OpenAI's agents", () => {
  test('run a tool and answer, whole and streamed', async () => {
    const modelProvider = new OpenAIProvider({
      openAIClient: new OpenAI({ baseURL: `${world.url}/v1/ai`, apiKey: userToken, maxRetries: 0 }),
      useResponses: false,
    });
    const runner = new Runner({ modelProvider, tracingDisabled: true });
    const weather = agentTool({
      name: 'get_weather',
      description: 'Weather',
      parameters: z.object({ city: z.string() }),
      execute: async ({ city }) => `It rains in ${city}.`,
    });
    const agent = new Agent({ name: 'Clerk', model: 'local/echo', tools: [weather] });
    expect((await runner.run(agent, toolPrompt)).finalOutput).toBe('It rains in Oslo.');
    const stream = await runner.run(agent, toolPrompt, { stream: true });
    await stream.completed;
    expect(stream.finalOutput).toBe('It rains in Oslo.');
  });
});
