// Tool names are measured as often as the provider receives them, which may be more often than they occur in
// the request.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sizeOf, type RequestFormat } from '../../../src/gateway/ai/metering/measure.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { errorOf, startAi, type World } from './world.ts';

const toolName = 'n'.repeat(100);
const resultCount = 50;
const repeat = <T>(create: (index: number) => T): T[] =>
  Array.from({ length: resultCount }, (_, index) => create(index));

const chatMessages = (name: string) => [
  { role: 'user', content: 'hi' },
  {
    role: 'assistant',
    content: null,
    tool_calls: [{ id: 'a', type: 'function', function: { name, arguments: '{}' } }],
  },
  ...repeat(() => ({ role: 'tool', tool_call_id: 'a', content: 'x' })),
];
const textMessages = (name: string) => [
  { role: 'user', content: 'hi' },
  {
    role: 'assistant',
    content: [{ type: 'tool-call', tool_call_id: 'a', tool_name: name, input: {} }],
  },
  { role: 'tool', content: repeat(() => ({ type: 'tool-result', tool_call_id: 'a', output: 'x' })) },
];

const responsesBody = {
  input: [
    { type: 'function_call', call_id: 'a', name: toolName, arguments: '{}' },
    ...repeat(() => ({ type: 'function_call_output', call_id: 'a', output: 'x' })),
  ],
};
const messageResults = {
  role: 'user',
  content: repeat(() => ({ type: 'tool_result', tool_use_id: 'a', content: 'x' })),
};
const messagesBody = {
  messages: [
    { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: toolName, input: {} }] },
    messageResults,
  ],
};
const streamBody = {
  prompt: [
    {
      role: 'tool',
      content: repeat(() => ({
        type: 'tool-result',
        toolCallId: 'a',
        toolName,
        output: { type: 'text', value: 'x' },
      })),
    },
  ],
};

// The name counts twice for each result, and once for the call, which the stream body does not have.
const bodies: readonly [RequestFormat, object, number][] = [
  ['chat', { messages: chatMessages(toolName) }, 1 + 2 * resultCount],
  ['text', { messages: textMessages(toolName) }, 1 + 2 * resultCount],
  ['stream', streamBody, 2 * resultCount],
  ['responses', responsesBody, 1 + 2 * resultCount],
  ['messages', messagesBody, 1 + 2 * resultCount],
];

describe('the size of a request', () => {
  test.each(bodies)('counts the name of a tool with each of its results: %s', (format, body, names) => {
    const { textBytes, readText } = sizeOf(body, format);
    expect(textBytes).toBeGreaterThanOrEqual(names * toolName.length);
    const { texts, otherBytes } = readText();
    expect(texts.join('').length + otherBytes).toBeGreaterThanOrEqual(names * toolName.length);
  });
});

test('the size of a request counts a namespace with each of its tools', () => {
  const tools = repeat((index) => ({ type: 'function', name: `f${index}` }));
  const body = { input: 'hi', tools: [{ type: 'namespace', name: toolName, tools }] };
  expect(sizeOf(body, 'responses').textBytes).toBeGreaterThanOrEqual((1 + resultCount) * toolName.length);
});

describe('a member of another format', () => {
  test.each<[string, RequestFormat, object]>([
    [
      'call_id in a call of messages',
      'messages',
      {
        messages: [
          {
            role: 'assistant',
            content: [{ type: 'tool_use', id: 'a', call_id: 'z', name: toolName, input: {} }],
          },
          messageResults,
        ],
      },
    ],
    [
      'id and name in a text',
      'messages',
      {
        messages: [
          {
            role: 'assistant',
            content: [
              { type: 'tool_use', id: 'a', name: toolName, input: {} },
              { type: 'text', text: '', id: 'a', name: 'q' },
            ],
          },
          messageResults,
        ],
      },
    ],
    [
      'tool_use_id in a result of responses',
      'responses',
      {
        input: [
          { type: 'function_call', call_id: 'a', name: toolName, arguments: '{}' },
          ...repeat(() => ({ type: 'function_call_output', call_id: 'a', tool_use_id: 'z', output: 'x' })),
        ],
      },
    ],
  ])('does not hide the name of a tool: %s', (_what, format, body) => {
    expect(sizeOf(body, format).textBytes).toBeGreaterThanOrEqual((1 + 2 * resultCount) * toolName.length);
  });
});

describe('a translated call', () => {
  let provider: ScriptedProvider;
  let world: World;
  beforeAll(async () => {
    provider = await startProvider();
    world = await startAi({
      models: JSON.stringify({
        providers: [{ id: 'gemini', kind: 'google', base_url: provider.url }],
        models: [{ id: 'gemini/ok', provider: 'gemini', upstream_model: 'ok', rates: null }],
      }),
      env: {},
    });
  });
  afterAll(async () => {
    await world.close();
    await provider.close();
  });

  test.each<[string, RequestFormat, object]>([
    ['chat/completions', 'chat', { messages: chatMessages(toolName) }],
    ['text', 'text', { messages: textMessages(toolName) }],
    ['messages', 'messages', { max_tokens: 50, ...messagesBody }],
    ['responses', 'responses', responsesBody],
  ])('sends no more bytes of names than were counted: %s', async (path, format, body) => {
    const response = await world.post(`/v1/ai/${path}`, { model: 'gemini/ok', ...body });
    expect(response.status).toBe(200);
    const nameCount = provider.lastCall().body.toString().split(toolName).length - 1;
    expect(nameCount).toBeGreaterThan(resultCount);
    expect(sizeOf(body, format).textBytes).toBeGreaterThanOrEqual(nameCount * toolName.length);
  });

  test('counts the schemas that are written for custom tools', async () => {
    const customTools = repeat((index) => ({ type: 'custom', name: `f${index}` }));
    const body = { input: 'hi', tools: customTools };
    const response = await world.post('/v1/ai/responses', { model: 'gemini/ok', ...body });
    expect(response.status).toBe(200);
    const { tools } = JSON.parse(provider.lastCall().body.toString()) as { tools: unknown };
    const { textBytes, structureBytes } = sizeOf(body, 'responses');
    expect(textBytes + structureBytes).toBeGreaterThan(JSON.stringify(tools).length);
  });

  test.each([
    ['chat/completions', chatMessages, 'messages[1].tool_calls[0].function.name'],
    ['text', textMessages, 'messages[1].content[0].tool_name'],
  ])('refuses a name of more than 128 characters: %s', async (path, messagesWith, param) => {
    const body = { model: 'gemini/ok', messages: messagesWith('n'.repeat(129)) };
    const response = await world.post(`/v1/ai/${path}`, body);
    expect([response.status, await errorOf(response)]).toMatchObject([400, { param }]);
  });
});
