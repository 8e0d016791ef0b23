// Messages, responses and chat completions for models whose providers have other formats: each
// provider's request, and the caller's answer, whole and streamed.
import Anthropic from '@anthropic-ai/sdk';
import type OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { testResilience, startAi, userToken, type World } from '../world.ts';

type Json = Record<string, unknown>;

const kinds = {
  acme: { kind: 'openai-compatible', formats: ['chat'] },
  openai: { kind: 'openai', formats: ['chat'] },
  claude: { kind: 'anthropic', formats: [] },
  gemini: { kind: 'google', formats: [], name: 'Google' },
};
type Owner = keyof typeof kinds;
const owners = Object.keys(kinds) as Owner[];
const isChat = (owner: Owner) => owner === 'acme' || owner === 'openai';
const scripts = ['ok', 'tools', 'reasoning', 'signed', 'encrypted', 'cut', 'error'];

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({
    models: JSON.stringify({
      providers: owners.map((id) => ({
        id,
        name: id,
        base_url: provider.url,
        output_limit_member: 'max_tokens',
        ...kinds[id],
      })),
      models: owners.flatMap((id) =>
        scripts.map((script) => ({
          id: `${id}/${script}`,
          provider: id,
          // Servers of chat completions have their own scripts.
          upstream_model: script === 'cut' && isChat(id) ? 'reset?chunks=2' : script,
          rates: { input: 1_000_000, output: 2_000_000 },
          max_output_tokens: 1_000,
          context_window: 1_000_000,
          reasoning: {
            efforts: [
              { id: 'low', name: 'Low' },
              { id: 'high', name: 'High' },
            ],
            default_effort: 'low',
          },
        })),
      ),
    }),
    env: {},
    resilience: { ...testResilience, retry: { ...testResilience.retry, retries: 0 } },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => {
  provider.reset();
  world.ledger.reset();
});

const lastRequest = () => JSON.parse(provider.lastCall().body.toString()) as Json;
const claude = () => new Anthropic({ baseURL: `${world.url}/v1/ai`, authToken: userToken, maxRetries: 0 });
const openai = () => world.openai();
const schema = { type: 'object' as const, properties: { city: { type: 'string' } } };
const messageTools = [{ name: 'get_weather', description: 'Weather', input_schema: schema }];
const responseTools = [{ type: 'function' as const, name: 'get_weather', parameters: schema, strict: false }];
const question = { role: 'user' as const, content: 'The weather?' };

/** A message, whole or streamed by the SDK's helper. */
function createMessage(
  streams: boolean,
  body: Omit<Anthropic.MessageCreateParamsNonStreaming, 'max_tokens'>,
) {
  const request = { max_tokens: 100, ...body };
  return streams ? claude().messages.stream(request).finalMessage() : claude().messages.create(request);
}

/** A response, whole or streamed by the SDK's helper. */
function createResponse(streams: boolean, body: OpenAI.Responses.ResponseCreateParamsNonStreaming) {
  return streams
    ? openai()
        .responses.stream(body as never)
        .finalResponse()
    : openai().responses.create(body);
}

function functionCallOf({ output }: OpenAI.Responses.Response) {
  return output.flatMap((item) => (item.type === 'function_call' ? [item] : []))[0];
}

describe.each([false, true])('messages, streamed: %s', (streams) => {
  test.each(owners)('answer with the text of %s', async (owner) => {
    const message = await createMessage(streams, { model: `${owner}/ok`, messages: [question] });
    expect(message).toMatchObject({ role: 'assistant', model: `${owner}/ok`, stop_reason: 'end_turn' });
    expect(message.content[0]).toMatchObject({
      type: 'text',
      text: expect.stringMatching(/^(?:Hello|tok0)/),
    });
    expect(message.usage.output_tokens).toBeGreaterThan(0);
    const charge = await world.ledger.until(1);
    expect(charge).toMatchObject({ overrun: 0n, facts: { outcome: 'completed', estimated: false } });
    expect(charge.charged).toBeGreaterThan(0n);
    expect(charge.facts.action).toBe('messages');
  });

  test.each(owners)('call a tool of %s and return its result', async (owner) => {
    const request = { model: `${owner}/tools`, tools: messageTools };
    const message = await createMessage(streams, { ...request, messages: [question] });
    expect(message.stop_reason).toBe('tool_use');
    const call = message.content.find((block) => block.type === 'tool_use');
    expect(call).toMatchObject({ name: 'get_weather', input: { city: 'Oslo' } });
    const result = { type: 'tool_result' as const, tool_use_id: call?.id ?? '', content: 'It rains.' };
    await createMessage(streams, {
      ...request,
      messages: [
        question,
        { role: 'assistant', content: message.content },
        { role: 'user', content: [result, { type: 'text', text: 'And now?' }] },
      ],
    });
    expect(provider.lastCall().body.toString()).toContain('It rains.');
    expect(provider.lastCall().body.toString()).toContain('And now?');
  });

  test('keep a signature of Gemini on the call of a tool', async () => {
    const request = { model: 'gemini/signed', tools: messageTools };
    const message = await createMessage(streams, { ...request, messages: [question] });
    const call = message.content.find((block) => block.type === 'tool_use');
    await createMessage(streams, {
      ...request,
      messages: [
        question,
        { role: 'assistant', content: message.content },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: call?.id ?? '', content: 'Rain.' }] },
      ],
    });
    const { contents } = lastRequest() as { contents: { role: string; parts: Json[] }[] };
    expect(contents[1]?.parts.find((part) => 'functionCall' in part)).toMatchObject({
      thoughtSignature: 'gemini-signature',
    });
  });

  test("keep Anthropic's signature on the thinking", async () => {
    const request = { model: 'claude/reasoning' };
    const message = await createMessage(streams, { ...request, messages: [question] });
    await createMessage(streams, {
      ...request,
      messages: [question, { role: 'assistant', content: message.content }, question],
    });
    expect(lastRequest()).toMatchObject({
      messages: [
        {},
        { content: [{ type: 'thinking', thinking: 'Let me think.', signature: 'sig' }, { type: 'text' }] },
        {},
      ],
    });
  });

  test("keep OpenAI's encrypted reasoning", async () => {
    const request = {
      model: 'openai/encrypted',
      thinking: { type: 'enabled' as const, budget_tokens: 1_024 },
    };
    const message = await createMessage(streams, { ...request, messages: [question] });
    expect(message.content[0]).toMatchObject({ type: 'thinking', thinking: 'Let me think.' });
    await createMessage(streams, {
      ...request,
      messages: [question, { role: 'assistant', content: message.content }, question],
    });
    expect(lastRequest()).toMatchObject({
      store: false,
      input: expect.arrayContaining([
        expect.objectContaining({ type: 'reasoning', encrypted_content: 'openai-encrypted' }),
      ]),
    });
  });

  test('send reasoning back to a server of chat completions', async () => {
    await createMessage(streams, {
      model: 'acme/ok',
      messages: [
        question,
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'Hm.', signature: '' },
            { type: 'text', text: 'Rain.' },
          ],
        },
        question,
      ],
    });
    expect(lastRequest()).toMatchObject({
      messages: [{}, { reasoning_content: 'Hm.', content: 'Rain.' }, {}],
    });
  });
});

describe.each([false, true])('responses, streamed: %s', (streams) => {
  test.each(owners)('answer with the text of %s', async (owner) => {
    const response = await createResponse(streams, { model: `${owner}/ok`, input: 'hi' });
    expect(response).toMatchObject({ status: 'completed', model: `${owner}/ok` });
    expect(response.output_text).toMatch(/^(?:Hello|tok0)/);
    expect(response.usage?.output_tokens).toBeGreaterThan(0);
    const charge = await world.ledger.until(1);
    expect(charge).toMatchObject({ overrun: 0n, facts: { outcome: 'completed', estimated: false } });
    expect(charge.facts.action).toBe('responses');
  });

  test.each(owners)('call a tool of %s and return its result', async (owner) => {
    const request = { model: `${owner}/tools`, tools: responseTools };
    const response = await createResponse(streams, { ...request, input: [question] });
    const call = functionCallOf(response);
    expect(JSON.parse(call?.arguments ?? '')).toEqual({ city: 'Oslo' });
    await createResponse(streams, {
      ...request,
      input: [
        question,
        ...(response.output as OpenAI.Responses.ResponseInputItem[]),
        { type: 'function_call_output', call_id: call?.call_id ?? '', output: 'It rains.' },
      ],
    });
    expect(provider.lastCall().body.toString()).toContain('It rains.');
  });

  test('keep a signature of Gemini on the call of a tool', async () => {
    const request = { model: 'gemini/signed', tools: responseTools };
    const response = await createResponse(streams, { ...request, input: [question] });
    const call = functionCallOf(response);
    await createResponse(streams, {
      ...request,
      input: [
        question,
        ...(response.output as OpenAI.Responses.ResponseInputItem[]),
        { type: 'function_call_output', call_id: call?.call_id ?? '', output: 'Rain.' },
      ],
    });
    const { contents } = lastRequest() as { contents: { role: string; parts: Json[] }[] };
    expect(contents[1]?.parts.find((part) => 'functionCall' in part)).toMatchObject({
      thoughtSignature: 'gemini-signature',
    });
  });

  test.each([
    ['claude/reasoning', { messages: [{}, { content: [{ type: 'thinking', signature: 'sig' }, {}] }, {}] }],
    [
      'openai/encrypted',
      {
        input: expect.arrayContaining([
          expect.objectContaining({ type: 'reasoning', encrypted_content: 'openai-encrypted' }),
        ]),
      },
    ],
  ])('return the replay metadata of %s with its reasoning', async (model, expected) => {
    const request = { model, include: ['reasoning.encrypted_content' as const] };
    const response = await createResponse(streams, { ...request, input: [question] });
    expect(response.output[0]).toMatchObject({ type: 'reasoning', summary: [{ text: 'Let me think.' }] });
    await createResponse(streams, {
      ...request,
      input: [question, ...(response.output as OpenAI.Responses.ResponseInputItem[]), question],
    });
    expect(lastRequest()).toMatchObject(expected);
  });
});

describe.each([false, true])('chat completions, streamed: %s', (streams) => {
  async function createMessageOf(model: string): Promise<Json> {
    const body = { model, messages: [question], tools: chatTools };
    if (!streams) return (await openai().chat.completions.create(body)).choices[0]?.message as never;
    const message: Json = { role: 'assistant', tool_calls: [], reasoning_details: [] };
    let content = '';
    for await (const { choices } of await openai().chat.completions.create({ ...body, stream: true })) {
      const delta = choices[0]?.delta as Json | undefined;
      content += typeof delta?.['content'] === 'string' ? delta['content'] : '';
      for (const name of ['tool_calls', 'reasoning_details'])
        (message[name] as unknown[]).push(...((delta?.[name] as unknown[] | undefined) ?? []));
    }
    return { ...message, content };
  }
  const chatTools = [{ type: 'function' as const, function: { name: 'get_weather', parameters: schema } }];
  const continueWith = (model: string, message: Json, ...members: Json[]) =>
    world.post('/v1/ai/chat/completions', {
      model,
      messages: [question, message, ...members],
      tools: chatTools,
    });

  test("keep Anthropic's signature on the thinking", async () => {
    // The list of calls that was assembled from a stream is empty; a whole answer has none.
    const { tool_calls: _none, ...message } = await createMessageOf('claude/reasoning');
    expect((await continueWith('claude/reasoning', message, question)).status).toBe(200);
    expect(lastRequest()).toMatchObject({
      messages: [
        {},
        { content: [{ type: 'thinking', thinking: 'Let me think.', signature: 'sig' }, { type: 'text' }] },
        {},
      ],
    });
  });

  test('keep a signature of Gemini on the call of a tool', async () => {
    const message = await createMessageOf('gemini/signed');
    const [call] = message['tool_calls'] as { id: string }[];
    const result = { role: 'tool', tool_call_id: call?.id, content: 'Rain.' };
    const response = await continueWith('gemini/signed', { ...message, tool_calls: [call] }, result);
    expect(response.status).toBe(200);
    const { contents } = lastRequest() as { contents: { parts: Json[] }[] };
    expect(contents[1]?.parts.find((part) => 'functionCall' in part)).toMatchObject({
      thoughtSignature: 'gemini-signature',
    });
  });
});

/** The number of cache marks in the provider's request, and whether a warning names them. */
function cacheMarks(response: Response): { count: number; hasWarning: boolean } {
  return {
    count: provider.lastCall().body.toString().split('"cache_control":{"type":"ephemeral"}').length - 1,
    hasWarning: response.headers.get('x-townhall-warnings')?.includes('cache_control') === true,
  };
}

test.each([
  ['claude', { count: 2, hasWarning: false }],
  ['gemini', { count: 0, hasWarning: true }],
])('chat completions send cache marks only to Anthropic: %s', async (owner, expected) => {
  const text = { type: 'text', text: 'hi', cache_control: { type: 'ephemeral' } };
  const response = await world.post('/v1/ai/chat/completions', {
    model: `${owner}/ok`,
    messages: [
      { role: 'system', content: [text] },
      { role: 'user', content: [text] },
    ],
  });
  expect(cacheMarks(response)).toEqual(expected);
});

test.each([
  ['claude', { count: 1, hasWarning: false }],
  ['gemini', { count: 0, hasWarning: true }],
])('messages send the cache mark in a tool result only to Anthropic: %s', async (owner, expected) => {
  const text = { type: 'text', text: 'Rain.' };
  const content = [{ ...text, cache_control: { type: 'ephemeral' } }, text];
  const response = await world.post('/v1/ai/messages', {
    model: `${owner}/ok`,
    max_tokens: 100,
    tools: messageTools,
    messages: [
      question,
      { role: 'assistant', content: [{ type: 'tool_use', id: 'call_1', name: 'get_weather', input: {} }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1', content }] },
    ],
  });
  expect(cacheMarks(response)).toEqual(expected);
});

const cases = owners.flatMap((owner) =>
  (['messages', 'responses'] as const).map((path): [Owner, 'messages' | 'responses'] => [owner, path]),
);

describe('a translated stream', () => {
  const paths = {
    messages: { max_tokens: 50, messages: [question] },
    responses: { input: 'hi' },
  };
  test.each(cases)(
    'of %s in %s ends with an error event when the provider breaks off',
    async (owner, path) => {
      const script = owner === 'gemini' ? 'error' : 'cut';
      const response = await world.post(`/v1/ai/${path}`, {
        model: `${owner}/${script}`,
        stream: true,
        ...paths[path],
      });
      const text = await response.text();
      expect(response.status).toBe(200);
      expect(text).toContain('event: error\n');
      expect(text).not.toMatch(/message_stop|response\.completed/);
      expect(await world.ledger.until(1)).toMatchObject({ facts: { outcome: 'upstream_failed' } });
    },
  );
});

describe('a translated request', () => {
  const data = 'iVBORw0KGgo=';
  const pdf = 'JVBERg==';
  const contents = {
    messages: {
      max_tokens: 50,
      system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data } },
            {
              type: 'document',
              title: 'a.pdf',
              source: { type: 'base64', media_type: 'application/pdf', data: pdf },
            },
          ],
        },
      ],
      output_config: { format: { type: 'json_schema', schema } },
    },
    responses: {
      instructions: 'Be brief.',
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_image', image_url: `data:image/png;base64,${data}` },
            { type: 'input_file', filename: 'a.pdf', file_data: `data:application/pdf;base64,${pdf}` },
          ],
        },
      ],
      text: { format: { type: 'json_schema', name: 'a', schema, strict: true } },
    },
  };

  test.each(cases)('to %s in %s carries images, files and schemas', async (owner, path) => {
    const response = await world.post(`/v1/ai/${path}`, { model: `${owner}/ok`, ...contents[path] });
    expect(response.status).toBe(200);
    const requestText = provider.lastCall().body.toString();
    for (const piece of [data, pdf, 'Be brief.', 'city']) expect(requestText).toContain(piece);
  });

  test.each<[Owner, { count: number; hasWarning: boolean }]>([
    ['acme', { count: 0, hasWarning: true }],
    ['openai', { count: 0, hasWarning: true }],
    ['claude', { count: 1, hasWarning: false }],
    ['gemini', { count: 0, hasWarning: true }],
  ])('of messages sends cache marks only to Anthropic: %s', async (owner, expected) => {
    const response = await world.post('/v1/ai/messages', { model: `${owner}/ok`, ...contents.messages });
    expect(cacheMarks(response)).toEqual(expected);
  });

  test('of json_object is refused for Anthropic', async () => {
    const response = await world.post('/v1/ai/responses', {
      model: 'claude/ok',
      input: 'x',
      text: { format: { type: 'json_object' } },
    });
    expect(response.status).toBe(422);
    expect(await response.json()).toMatchObject({ error: { param: 'text.format' } });
  });
});
