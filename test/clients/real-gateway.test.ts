// The gateway client and the official packages against a real gateway, without a provider key or a
// network.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount, jsonSchema, Output, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createGatewayClient, type GatewayClient, GatewayError } from '../../clients/gateway/src/index.ts';
import { type GatewayWorld, startGateway } from '../support/gateway.ts';
import { readAll } from './scripted-server.ts';

let world: GatewayWorld;
let client: GatewayClient;

beforeAll(async () => {
  world = await startGateway();
  client = createGatewayClient({ baseUrl: world.url, token: world.userToken });
});
afterAll(() => world?.close());

const say = (text: string) => ({
  model: 'local/echo',
  prompt: [{ role: 'user' as const, content: [{ type: 'text' as const, text }] }],
});

describe('the client', () => {
  test('reads the health and the models', async () => {
    expect((await client.directory.getHealth()).ok).toBe(true);
    const ids = (await client.ai.listModels()).items.map(({ id }) => id);
    expect(ids).toContain('local/echo');
  });

  test('reads a model whose id has a slash', async () => {
    expect((await client.ai.getModel({ model_id: 'local/echo' })).id).toBe('local/echo');
  });

  test('gets a whole answer', async () => {
    const { parts, metadata } = await client.ai.generateText({ model: 'local/echo', prompt: 'Good morning' });
    expect(parts).toEqual([{ type: 'text', text: 'Good morning' }]);
    expect(metadata.finish_reason).toBe('stop');
  });

  test('gets an answer as a stream', async () => {
    const parts = await readAll(client.ai.streamText(say('Good morning')));
    expect(parts.map((part) => (part.type === 'text-delta' ? part.delta : '')).join('')).toBe('Good morning');
    expect(parts[0]?.type).toBe('stream-start');
    expect(parts.at(-1)?.type).toBe('finish');
  });

  const messages = [{ role: 'user' as const, content: 'Good morning' }];

  test('gets a whole chat completion', async () => {
    const completion = await client.ai.createChatCompletion({ model: 'local/echo', messages });
    expect(completion.choices[0]?.message.content).toBe('Good morning');
  });

  test('gets a chat completion as a stream', async () => {
    const chunks = await readAll(
      client.ai.createChatCompletion({ model: 'local/echo', messages, stream: true }),
    );
    expect(
      chunks
        .flatMap(({ choices }) =>
          typeof choices[0]?.delta['content'] === 'string' ? choices[0].delta['content'] : [],
        )
        .join(''),
    ).toBe('Good morning');
  });

  test('throws the error of a chat completion that fails midway', async () => {
    const failingCall = client.ai.createChatCompletion({
      model: 'local/echo',
      messages: [{ role: 'user', content: '@fail-after 1\nGood morning' }],
      stream: true,
    });
    await expect(readAll(failingCall)).rejects.toMatchObject({
      name: 'GatewayError',
      status: 200,
      type: 'upstream_error',
      retryable: false,
    });
  });

  test('throws an error with the id of the request', async () => {
    await expect(client.ai.getModel({ model_id: 'acme/unknown' })).rejects.toMatchObject({
      status: 404,
      code: 'model_not_found',
      requestId: expect.stringMatching(/^req_/),
    });
  });

  test('throws a 401 without a token', async () => {
    await expect(createGatewayClient({ baseUrl: world.url }).ai.listModels()).rejects.toMatchObject({
      status: 401,
      code: 'authentication_required',
      retryable: false,
    });
  });

  test('throws the error of a refused stream', async () => {
    const error: unknown = await readAll(
      createGatewayClient({ baseUrl: world.url, token: 'th_usr_wrong' }).ai.streamText(say('Hi')),
    ).catch((cause: unknown) => cause);
    expect(GatewayError.isInstance(error) && error.code).toBe('invalid_token');
  });

  test('throws an error that names the wrong member', async () => {
    await expect(client.ai.generateText({ model: 'local/echo', prompt: '' })).rejects.toMatchObject({
      status: 400,
      code: 'invalid_request',
      param: 'prompt',
    });
  });
});

describe('the AI SDK with client.model', () => {
  test('calls tools over several steps', async () => {
    const inputs: unknown[] = [];
    const weather = tool({
      description: 'The weather of a city.',
      inputSchema: jsonSchema<{ city: string }>({
        type: 'object',
        properties: { city: { type: 'string' } },
        required: ['city'],
      }),
      execute: (input) => {
        inputs.push(input);
        return 'It snows.';
      },
    });
    const result = await generateText({
      model: client.model('local/echo'),
      prompt: '@tool weather {"city":"Oslo"}',
      tools: { weather },
      stopWhen: isStepCount(3),
    });
    expect(inputs).toEqual([{ city: 'Oslo' }]);
    expect(result.steps).toHaveLength(2);
    expect(result.text).toContain('It snows.');
  });

  test('gets an object by a schema', async () => {
    const schema = jsonSchema<{ city: string }>({
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
      additionalProperties: false,
    });
    const { output } = await generateText({
      model: client.model('local/echo'),
      prompt: 'Where?',
      output: Output.object({ schema }),
    });
    expect(output).toEqual({ city: expect.any(String) });
  });

  test('gets the reasoning and the metadata of an answer', async () => {
    const { finalStep, text, usage } = await generateText({
      model: client.model('local/echo'),
      prompt: '@reasoning They greet me.\nGood morning',
    });
    expect({ reasoning: finalStep.reasoningText, text }).toEqual({
      reasoning: 'They greet me.',
      text: 'Good morning',
    });
    expect(usage.totalTokens).toBeGreaterThan(0);
    expect(finalStep.response.timestamp).toBeInstanceOf(Date);
  });

  test('streams a text in several deltas', async () => {
    const deltas = await readAll(
      streamText({ model: client.model('local/echo'), prompt: 'one two three' }).textStream,
    );
    expect(deltas.join('')).toBe('one two three');
    expect(deltas.length).toBeGreaterThan(1);
  });

  test('reports a failure midway to onError', async () => {
    const errors: unknown[] = [];
    await streamText({
      model: client.model('local/echo'),
      prompt: '@fail-after 1\none two three',
      onError: ({ error }) => void errors.push(error),
    }).consumeStream();
    expect(errors.map((error) => GatewayError.isInstance(error))).toEqual([true]);
  });

  test('does not repeat a refused call', async () => {
    const lineCount = world.logLines.length;
    await expect(generateText({ model: client.model('acme/unknown'), prompt: 'Hi' })).rejects.toMatchObject({
      status: 404,
      code: 'model_not_found',
    });
    // The model streams the answer of generateText as well.
    const requestLines = () =>
      world.logLines.slice(lineCount).filter((line) => line.includes('"ai.streamText"'));
    // The server may log the request after its answer.
    await expect.poll(requestLines).toHaveLength(1);
  });

  test('stops a slow answer at once when aborted', async () => {
    const abort = new AbortController();
    const result = streamText({
      model: client.model('local/echo'),
      prompt: '@delay 20000\none two',
      abortSignal: abort.signal,
    });
    const types: string[] = [];
    let startedMs = Infinity;
    for await (const { type } of result.stream) {
      types.push(type);
      if (type !== 'start-step') continue;
      startedMs = performance.now();
      abort.abort();
    }
    expect(types.at(-1)).toBe('abort');
    // The two words would take another 40 seconds.
    expect(performance.now() - startedMs).toBeLessThan(10_000);
  });
});

describe('the official packages', () => {
  test('openai lists models, answers and streams', async () => {
    const openai = new OpenAI({ baseURL: `${world.url}/v1/ai`, apiKey: world.userToken, maxRetries: 0 });
    expect((await openai.models.list()).data.map(({ id }) => id)).toContain('local/guide');
    const messages = [{ role: 'user' as const, content: 'Good morning' }];
    const completion = await openai.chat.completions.create({ model: 'local/echo', messages });
    expect(completion.choices[0]?.message.content).toBe('Good morning');
    const chunks = await readAll(
      await openai.chat.completions.create({ model: 'local/echo', messages, stream: true }),
    );
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('')).toBe('Good morning');
  });

  test('@ai-sdk/openai-compatible answers and streams', async () => {
    const compatibleProvider = createOpenAICompatible({
      name: 'townhall',
      baseURL: `${world.url}/v1/ai`,
      apiKey: world.userToken,
    });
    const call = { model: compatibleProvider('local/echo'), prompt: 'Good morning' };
    expect((await generateText(call)).text).toBe('Good morning');
    expect((await readAll(streamText(call).textStream)).join('')).toBe('Good morning');
  });
});
