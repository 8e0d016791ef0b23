// Chats of the AI SDK in a browser: its own `Chat` class and its readers, unmodified, with its default
// transport and with the client's, on models of several kinds of providers.
import {
  AbstractChat,
  type ChatInit,
  type ChatState,
  DefaultChatTransport,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithToolCalls,
  readUIMessageStream,
  type UIMessage,
} from 'ai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createGatewayClient, type ChatSettings } from '../../../../clients/gateway/src/index.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { errorOf, partsOf, startAi, testResilience, userToken, type World } from '../world.ts';

type Metadata = { townhall?: { model: string; credits: number; usage: object } };
type Message = UIMessage<Metadata>;

const rates = { input: 1_000_000, output: 1_000_000 };
const tools = [
  { type: 'function' as const, name: 'get_weather', inputSchema: { type: 'object', properties: {} } },
];

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const otherProviders = { claude: 'anthropic', gemini: 'google' };
  world = await startAi({
    models: provider.modelsFile(
      {
        ok: 'ok',
        slow: 'ok?chunks=500&gap=20',
        tools: 'tools',
        reasoning: 'reasoning',
        cut: 'reset?chunks=2',
        failing: 'status?code=500',
      },
      {
        provider: { output_limit_member: 'max_tokens' },
        model: { rates, max_output_tokens: 1_000 },
        providers: Object.entries(otherProviders).map(([id, kind]) => ({
          id,
          kind,
          name: id,
          base_url: provider.url,
          api_key_env: 'ACME_API_KEY',
        })),
        models: Object.keys(otherProviders).flatMap((id) =>
          ['ok', 'reasoning'].map((script) => ({
            id: `${id}/${script}`,
            provider: id,
            upstream_model: script,
            rates,
            max_output_tokens: 1_000,
          })),
        ),
      },
    ),
    resilience: testResilience,
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

/** The state that a user interface keeps for `useChat`. */
class PlainState implements ChatState<Message> {
  status: ChatState<Message>['status'] = 'ready';
  error: Error | undefined = undefined;
  messages: Message[] = [];
  pushMessage = (message: Message) => void this.messages.push(message);
  popMessage = () => void this.messages.pop();
  replaceMessage = (index: number, message: Message) => void (this.messages[index] = message);
  snapshot = <T>(thing: T): T => structuredClone(thing);
}

class Chat extends AbstractChat<Message> {
  constructor(init: Omit<ChatInit<Message>, 'messages'>) {
    super({ ...init, state: new PlainState() });
  }
}

const defaultTransport = (body: object) =>
  new DefaultChatTransport<Message>({
    api: `${world.url}/v1/ai/ui`,
    headers: { authorization: `Bearer ${userToken}` },
    body,
  });
const clientTransport = (settings: ChatSettings | (() => ChatSettings)) =>
  createGatewayClient({ baseUrl: world.url, token: userToken }).chatTransport(settings);
const post = (body: object) => world.post('/v1/ai/ui', body);
const hello = [{ id: 'm1', role: 'user', parts: [{ type: 'text', text: 'Hello' }] }];
const textOf = (message: Message | undefined) =>
  message?.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('');
const lastRequest = () =>
  JSON.parse(provider.lastCall().body.toString()) as { messages: Record<string, unknown>[] };

describe.each([
  ['the default transport', defaultTransport],
  ["the client's transport", clientTransport],
])('a chat with %s', (_name, transport) => {
  test.each(['local/echo', 'acme/ok', 'claude/ok', 'gemini/ok'])('answers on %s', async (model) => {
    const chat = new Chat({ transport: transport({ model }) });
    await chat.sendMessage({ text: 'Good morning' });
    expect(chat.error).toBeUndefined();
    expect(chat.status).toBe('ready');
    expect(textOf(chat.lastMessage)?.length).toBeGreaterThan(0);
    expect(chat.lastMessage?.metadata?.townhall).toMatchObject({ model, credits: expect.any(Number) });
  });

  test.each(['acme/reasoning', 'claude/reasoning', 'gemini/reasoning'])(
    'shows the reasoning of %s and sends it back',
    async (model) => {
      const chat = new Chat({ transport: transport({ model }) });
      await chat.sendMessage({ text: 'Think' });
      expect(chat.error).toBeUndefined();
      expect(chat.lastMessage?.parts.find(({ type }) => type === 'reasoning')).toMatchObject({
        text: expect.stringContaining('Let me think.'),
      });
      await chat.sendMessage({ text: 'Again' });
      expect(chat.error).toBeUndefined();
      expect(provider.lastCall().body.toString()).toContain('Let me think.');
    },
  );

  test('reports a refused call', async () => {
    const chat = new Chat({ transport: transport({ model: 'acme/none' }) });
    await chat.sendMessage({ text: 'Hello' });
    expect(chat.status).toBe('error');
    expect(chat.error?.message).toContain('acme/none');
  });

  test('reports a failure midway and shows what came before it', async () => {
    const chat = new Chat({ transport: transport({ model: 'acme/cut' }) });
    await chat.sendMessage({ text: 'Hello' });
    expect(chat.status).toBe('error');
    expect(chat.error?.message).toContain('closed the connection');
    expect(textOf(chat.lastMessage)?.length).toBeGreaterThan(0);
  });

  test('aborts the call at the provider when it is stopped', async () => {
    const chat = new Chat({ transport: transport({ model: 'acme/slow' }) });
    const answer = chat.sendMessage({ text: 'Hello' });
    await expect
      .poll(() => chat.lastMessage?.role === 'assistant' && textOf(chat.lastMessage))
      .toContain('tok0');
    await chat.stop();
    await answer;
    await provider.until((calls) => calls[0]?.abortedAt !== undefined);
    expect(chat.status).toBe('ready');
  });
});

describe('a tool in the browser', () => {
  test('is called, and its output continues the message', async () => {
    const models = ['acme/tools', 'acme/ok'];
    const chat: Chat = new Chat({
      transport: clientTransport(() => ({ model: models.shift() ?? 'acme/ok', tools })),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall: ({ toolCall }) => {
        void chat.addToolOutput({
          tool: toolCall.toolName as never,
          toolCallId: toolCall.toolCallId,
          output: { weather: 'rain' } as never,
        });
      },
    });
    await chat.sendMessage({ text: 'What is the weather?' });
    await expect.poll(() => [chat.status, provider.calls.length]).toEqual(['ready', 2]);
    expect(chat.error).toBeUndefined();
    expect(chat.messages).toHaveLength(2);
    expect(chat.lastMessage?.parts.find(isToolUIPart)).toMatchObject({
      type: 'tool-get_weather',
      state: 'output-available',
      output: { weather: 'rain' },
    });
    expect(textOf(chat.lastMessage)).toContain('tok4');
    expect(lastRequest().messages).toMatchObject([
      { role: 'user' },
      { role: 'assistant', tool_calls: [{ function: { name: 'get_weather' } }] },
      { role: 'tool', content: '{"weather":"rain"}' },
    ]);
  });

  test('with an unknown name becomes an error of its call', async () => {
    const { parts } = await partsOf(await post({ model: 'acme/tools', messages: hello }));
    expect(parts.find(({ type }) => type === 'tool-input-error')).toMatchObject({
      toolName: 'get_weather',
      dynamic: true,
      errorText: expect.stringContaining('no tool get_weather'),
    });
  });

  const toolMessages = (part: object) => [
    ...hello,
    {
      id: 'm2',
      role: 'assistant',
      parts: [
        { type: 'step-start' },
        { type: 'text', text: 'I look.' },
        { type: 'tool-get_weather', toolCallId: 'call_1', input: { city: 'Oslo' }, ...part },
      ],
    },
    { id: 'm3', role: 'user', parts: [{ type: 'text', text: 'And now?' }] },
  ];
  const send = (part: object) => post({ model: 'acme/ok', messages: toolMessages(part), tools });

  test.each([
    [{ state: 'output-available', output: 'rain' }, 'rain'],
    [{ state: 'output-available', output: { a: 1 } }, '{"a":1}'],
    [{ state: 'output-available' }, 'null'],
    [{ state: 'output-error', errorText: 'It is down.' }, 'It is down.'],
    [{ state: 'output-denied', approval: { id: 'a', approved: false, reason: 'Not now.' } }, 'Not now.'],
    [{ type: 'dynamic-tool', toolName: 'get_weather', state: 'output-available', output: 'rain' }, 'rain'],
  ])('sends its result to the model: %j', async (part, content) => {
    const response = await send(part);
    expect(response.status).toBe(200);
    await response.text();
    expect(lastRequest().messages[2]).toMatchObject({ role: 'tool', tool_call_id: 'call_1', content });
  });

  test.each(['input-streaming', 'input-available', 'approval-requested'])(
    'without an output is left out with a warning: %s',
    async (state) => {
      const response = await send({ state });
      expect(response.status).toBe(200);
      expect(response.headers.get('x-townhall-warnings')).toContain('tool calls without an output');
      await response.text();
      expect(lastRequest().messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'user']);
    },
  );
});

describe('the stream', () => {
  test('is read by readUIMessageStream', async () => {
    const transport = defaultTransport({ model: 'acme/ok' });
    const stream = await transport.sendMessages({
      chatId: 'chat',
      trigger: 'submit-message',
      messageId: undefined,
      messages: hello as Message[],
      abortSignal: undefined,
    });
    let lastMessage: Message | undefined;
    for await (const message of readUIMessageStream<Message>({ stream })) lastMessage = message;
    expect(textOf(lastMessage)).toBe('tok0 tok1 tok2 tok3 tok4 ');
  });

  test('follows the protocol of UI messages', async () => {
    const response = await post({ model: 'acme/ok', messages: hello });
    expect(response.headers.get('x-vercel-ai-ui-message-stream')).toBe('v1');
    expect(response.headers.get('x-townhall-model')).toBe('acme/ok');
    const { parts, done } = await partsOf(response);
    const types = parts.map(({ type }) => type);
    expect(types.filter((type, index) => type !== types[index - 1])).toEqual([
      'start',
      'start-step',
      'text-start',
      'text-delta',
      'text-end',
      'finish-step',
      'finish',
    ]);
    expect(done).toBe(true);
    const charge = world.ledger.charges.at(-1);
    expect(parts.at(-1)).toMatchObject({
      finishReason: 'stop',
      messageMetadata: { townhall: { credits: Number(charge?.charged) } },
    });
  });

  test('ends with an error and the reason after a failure midway', async () => {
    const { parts, done } = await partsOf(await post({ model: 'acme/cut', messages: hello }));
    expect(parts.slice(-3)).toMatchObject([
      { type: 'error', errorText: expect.any(String), error: { code: 'upstream_truncated' } },
      { type: 'finish-step' },
      { type: 'finish', finishReason: 'error' },
    ]);
    expect(done).toBe(true);
  });

  test('continues the last message of the assistant under its id', async () => {
    const messages = [
      ...hello,
      {
        id: 'answer',
        role: 'assistant',
        parts: [{ type: 'tool-f', toolCallId: 'a', state: 'output-available', input: {}, output: 'x' }],
      },
    ];
    const { parts } = await partsOf(await post({ model: 'acme/ok', messages }));
    expect(parts[0]).toEqual({ type: 'start', messageId: 'answer' });
  });
});

describe('a message', () => {
  const withPart = (part: object, role = 'user') =>
    post({ model: 'claude/ok', messages: [...hello, { id: 'm2', role, parts: [part] }] });

  test.each([
    [
      'a data URL',
      'data:image/png;base64,iVBORw0KGgo=',
      { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' },
    ],
    ['a URL', 'https://example.com/a.png', { type: 'url', url: 'https://example.com/a.png' }],
  ])('carries a file in %s', async (_name, url, source) => {
    const response = await withPart({ type: 'file', mediaType: 'image/png', url });
    expect(response.status).toBe(200);
    await response.text();
    expect(lastRequest().messages).toMatchObject([
      { role: 'user', content: [{ type: 'text' }, { type: 'image', source }] },
    ]);
  });

  test('carries instructions and settings without its data parts', async () => {
    const response = await post({
      model: 'acme/ok',
      system: 'Be brief.',
      messages: [
        { id: 'm0', role: 'system', parts: [{ type: 'text', text: 'Be kind.' }] },
        {
          id: 'm1',
          role: 'user',
          parts: [
            { type: 'data-x', data: 1 },
            { type: 'text', text: 'Hello' },
          ],
        },
      ],
      temperature: 0.5,
      maxOutputTokens: 50,
    });
    expect(response.status).toBe(200);
    await response.text();
    expect(lastRequest()).toMatchObject({
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'system', content: 'Be kind.' },
        { role: 'user', content: 'Hello' },
      ],
      temperature: 0.5,
      max_tokens: 50,
    });
  });

  test.each([
    ['a file of this machine', { type: 'file', mediaType: 'image/png', url: 'file:///etc/passwd' }, 'url'],
    ['reasoning of a user', { type: 'reasoning', text: 'x' }, 'type'],
    ['a tool call of a user', { type: 'tool-f', toolCallId: 'a', state: 'input-available' }, 'type'],
  ])('with %s is refused by name', async (_name, part, member) => {
    const response = await withPart(part);
    expect(response.status).toBe(400);
    expect(await errorOf(response)).toMatchObject({
      code: 'invalid_request',
      param: `messages[1].parts[0].${member}`,
    });
    expect(provider.calls).toHaveLength(0);
  });

  test('beyond the limit of a local model is refused by name', async () => {
    const parts = [{ type: 'text', text: 'x'.repeat(70_000) }];
    const response = await post({ model: 'local/echo', messages: [{ role: 'user', parts }] });
    expect([response.status, await errorOf(response)]).toMatchObject([
      422,
      { code: 'unsupported_by_model', param: 'messages' },
    ]);
  });

  test.each([
    ['no messages', { model: 'acme/ok', messages: [] }, 'messages'],
    [
      'only data parts',
      { model: 'acme/ok', messages: [{ role: 'user', parts: [{ type: 'data-x' }] }] },
      'messages',
    ],
    ['no model', { messages: hello }, 'model'],
  ])('is refused in a request with %s', async (_name, body, param) => {
    const response = await post(body);
    expect([response.status, await errorOf(response)]).toMatchObject([400, { param }]);
  });
});

describe('a setting', () => {
  test.each([
    [
      'that the model lacks',
      { model: 'acme/ok', reasoning_effort: 'high' },
      { code: 'unsupported_reasoning_effort', param: 'reasoning_effort' },
    ],
    [
      'with a price of its own',
      { model: 'claude/ok', providerOptions: { anthropic: { speed: 'fast' } } },
      { code: 'unpriced_member', param: 'providerOptions.anthropic.speed' },
    ],
  ])('%s is refused by name', async (_name, members, error) => {
    const response = await post({ messages: hello, ...members });
    expect([response.status, await errorOf(response)]).toMatchObject([422, error]);
  });
});
