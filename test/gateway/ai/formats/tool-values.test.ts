// The limit on tool values in a translated conversation, which the packages of providers serialize twice.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ScriptedProvider, startProvider } from '../../../support/provider.ts';
import { errorOf, startAi, type World } from '../world.ts';

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({
    models: JSON.stringify({
      providers: [
        { id: 'gemini', kind: 'google', name: 'gemini', base_url: provider.url, formats: [] },
        { id: 'acme', kind: 'openai-compatible', name: 'acme', base_url: provider.url, formats: ['chat'] },
      ],
      models: ['gemini', 'acme'].map((id) => ({
        id: `${id}/ok`,
        provider: id,
        upstream_model: 'ok',
        rates: { input: 1, output: 1 },
        max_output_tokens: 1_000,
      })),
    }),
    env: {},
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});

const user = { role: 'user', content: [{ type: 'text', text: 'hi' }] };
const chatBody = (text: string, result = 'x') => ({
  messages: [
    { role: 'user', content: 'hi' },
    {
      role: 'assistant',
      content: null,
      tool_calls: [
        { id: 'call_1', type: 'function', function: { name: 'f', arguments: JSON.stringify({ text }) } },
      ],
    },
    { role: 'tool', tool_call_id: 'call_1', content: result },
  ],
});
const responsesBody = (text: string) => ({
  input: [
    { role: 'user', content: 'hi' },
    { type: 'function_call', call_id: 'call_1', name: 'f', arguments: JSON.stringify({ text }) },
    { type: 'function_call_output', call_id: 'call_1', output: 'x' },
  ],
});
const messagesBody = (text: string) => ({
  max_tokens: 16,
  messages: [
    { role: 'user', content: 'hi' },
    { role: 'assistant', content: [{ type: 'tool_use', id: 'call_1', name: 'f', input: { text } }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1', content: 'x' }] },
  ],
});
const toolCall = { toolCallId: 'call_1', toolName: 'f' };
const streamBody = (input: object, output: object) => ({
  prompt: [
    user,
    { role: 'assistant', content: [{ type: 'tool-call', ...toolCall, input }] },
    { role: 'tool', content: [{ type: 'tool-result', ...toolCall, output }] },
  ],
});
const textBody = (text: string) => ({
  messages: [
    user,
    {
      role: 'assistant',
      content: [{ type: 'tool-call', tool_call_id: 'call_1', tool_name: 'f', input: { text } }],
    },
    { role: 'tool', content: [{ type: 'tool-result', tool_call_id: 'call_1', output: 'x' }] },
  ],
});

// A quote takes two characters in JSON.
const quotes = '"'.repeat(1_100_000);
const letters = 'x'.repeat(1_100_000);
// 350,000 characters of three bytes each: two such texts exceed the limit only by their bytes.
const ideographs = '\u6587'.repeat(350_000);
const textOutput = { type: 'text', value: 'x' };

describe('more than 2 MiB of tool inputs and JSON results', () => {
  test.each<[string, object, string]>([
    ['chat/completions', chatBody(quotes), 'messages'],
    ['responses', responsesBody(quotes), 'input'],
    ['messages', messagesBody(quotes), 'messages'],
    ['text', textBody(quotes), 'messages'],
    ['stream', streamBody({ text: quotes }, textOutput), 'prompt'],
    ['stream', streamBody({ text: letters }, { type: 'json', value: [letters] }), 'prompt'],
    ['stream', streamBody({ text: ideographs }, { type: 'json', value: [ideographs] }), 'prompt'],
    ['stream', streamBody({ text: letters }, { type: 'error-json', value: [letters] }), 'prompt'],
  ])('is 413 in %s', async (path, body, param) => {
    const response = await world.post(`/v1/ai/${path}`, { model: 'gemini/ok', ...body });
    expect(response.status).toBe(413);
    const error = await errorOf(response);
    expect(error).toMatchObject({ code: 'request_too_large', param });
    expect(error.message).toContain('of the call call_1 of the tool f');
  });

  test('passes through in the format of the provider', async () => {
    const response = await world.post('/v1/ai/chat/completions', { model: 'acme/ok', ...chatBody(quotes) });
    expect(response.status).toBe(200);
  });
});

test('tool results that are text are translated at any length', async () => {
  const response = await world.post('/v1/ai/chat/completions', {
    model: 'gemini/ok',
    ...chatBody(letters, quotes + quotes),
  });
  expect(response.status, await response.text()).toBe(200);
  // The result contains the quotes twice, and each takes two characters in JSON.
  expect(provider.lastCall().body.length).toBeGreaterThan(2 * 2 * quotes.length);
});

test('a tool name of more than 128 characters is 400 in stream', async () => {
  const toolName = 'f'.repeat(129);
  const body = {
    model: 'gemini/ok',
    prompt: [
      user,
      { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'call_1', toolName, input: {} }] },
    ],
  };
  const response = await world.post('/v1/ai/stream', body);
  expect(response.status).toBe(400);
  expect(await errorOf(response)).toMatchObject({ param: 'prompt[1].content[0].toolName' });
});
