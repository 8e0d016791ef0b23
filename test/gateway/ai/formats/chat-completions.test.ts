// Chat completions on local models, with raw requests and OpenAI's client.
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { serializeChunks } from '../../../../src/gateway/ai/formats/chat-completions/answer.ts';
import { type StreamPart, unknownUsage } from '../../../../src/gateway/ai/hub/language-model.ts';
import { chunkOf, errorOf, eventsOf, startAi, type World } from '../world.ts';

const user = (content: unknown) => [{ role: 'user', content }];
const chat = '/v1/ai/chat/completions';

let world: World;
beforeAll(async () => {
  world = await startAi();
});
afterAll(() => world.close());
const post = (body: object) => world.post(chat, { model: 'local/echo', ...body });

describe('an answer of ai.createChatCompletion', () => {
  test('answers with a whole completion', async () => {
    expect(await (await post({ messages: user('Good morning') })).json()).toEqual({
      id: expect.stringMatching(/^chatcmpl-[0-9a-z]{26}$/),
      object: 'chat.completion',
      created: expect.any(Number),
      model: 'local/echo',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'Good morning', refusal: null },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
      usage: {
        prompt_tokens: 2,
        completion_tokens: 2,
        total_tokens: 4,
        prompt_tokens_details: { cached_tokens: 0 },
        completion_tokens_details: { reasoning_tokens: 0 },
      },
    });
  });

  test('streams role, content, finish reason and [DONE] without usage', async () => {
    const events = await eventsOf(await post({ messages: user('a b'), stream: true }));
    expect(events.at(-1)).toBe('[DONE]');
    const chunks = events.slice(0, -1).map(chunkOf);
    expect(chunks.map((chunk) => chunk.choices[0]?.delta)).toEqual([
      { role: 'assistant', refusal: null, content: '' },
      { content: 'a' },
      { content: ' b' },
      {},
    ]);
    expect(chunks.map((chunk) => chunk.choices[0]?.finish_reason)).toEqual([null, null, null, 'stop']);
    expect(new Set(chunks.map((chunk) => chunk.id)).size).toBe(1);
    expect(chunks.every((chunk) => !('usage' in chunk))).toBe(true);
  });

  test('streams null usage until the last chunk with include_usage', async () => {
    const events = (
      await eventsOf(
        await post({ messages: user('a b'), stream: true, stream_options: { include_usage: true } }),
      )
    )
      .slice(0, -1)
      .map(chunkOf);
    expect(events.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true);
    expect(events.at(-1)).toMatchObject({
      choices: [],
      usage: { prompt_tokens: 2, completion_tokens: 2, total_tokens: 4 },
    });
  });

  test('answers with the result of a called tool', async () => {
    const tools = [{ type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } }];
    const firstCompletion = (await (
      await post({ messages: user('@tool get_weather {"city":"Oslo"}'), tools })
    ).json()) as { choices: { message: Record<string, unknown>; finish_reason: string }[] };
    expect(firstCompletion.choices[0]).toMatchObject({
      message: {
        content: null,
        tool_calls: [
          { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Oslo"}' } },
        ],
      },
      finish_reason: 'tool_calls',
    });
    const messages = [
      ...user('@tool get_weather {"city":"Oslo"}'),
      firstCompletion.choices[0]?.message,
      { role: 'tool', tool_call_id: 'call_1', content: 'It rains.' },
    ];
    expect(await (await post({ messages, tools })).json()).toMatchObject({
      choices: [{ message: { content: 'It rains.' }, finish_reason: 'stop' }],
    });
  });

  test("streams a tool call that OpenAI's client assembles", async () => {
    const stream = world.openai().chat.completions.stream({
      model: 'local/echo',
      messages: [{ role: 'user', content: '@reasoning hm\n@tool a {"x":[1,2]}\n@tool b\nHold on' }],
    });
    const { choices } = await stream.finalChatCompletion();
    expect(choices[0]?.message.content).toBe('Hold on');
    expect(
      choices[0]?.message.tool_calls?.map(
        (call) => call.type === 'function' && [call.function.name, call.function.arguments],
      ),
    ).toEqual([
      ['a', '{"x":[1,2]}'],
      ['b', '{}'],
    ]);
    expect(choices[0]?.finish_reason).toBe('tool_calls');
  });

  test('returns reasoning as reasoning_content, whole and streamed', async () => {
    const messages = user('@reasoning I think\nso');
    expect(await (await post({ messages })).json()).toMatchObject({
      choices: [{ message: { content: 'so', reasoning_content: 'I think' } }],
      usage: { completion_tokens: 3, completion_tokens_details: { reasoning_tokens: 2 } },
    });
    const text = (await eventsOf(await post({ messages, stream: true })))
      .slice(0, -1)
      .map((event) => (chunkOf(event).choices[0]?.delta.reasoning_content as string | undefined) ?? '')
      .join('');
    expect(text).toBe('I think');
  });

  test('follows the structure of a JSON schema', async () => {
    const schema = {
      type: 'object',
      required: ['city', 'days'],
      properties: {
        city: { type: 'string', minLength: 2 },
        days: { type: 'array', minItems: 2, items: { type: 'integer', minimum: 1 } },
        note: { type: 'string' },
      },
    };
    const { choices } = await world.openai().chat.completions.create({
      model: 'local/echo',
      messages: [{ role: 'user', content: 'x' }],
      response_format: { type: 'json_schema', json_schema: { name: 'n', schema } },
    });
    expect(new Ajv2020().validate(schema, JSON.parse(choices[0]?.message.content ?? ''))).toBe(true);
  });

  test('answers in JSON without a schema', async () => {
    expect(
      await (await post({ messages: user('x'), response_format: { type: 'json_object' } })).json(),
    ).toMatchObject({ choices: [{ message: { content: '{"text":"x"}' } }] });
  });

  test.each([
    [{ max_tokens: 2 }, 'a b', 'length'],
    [{ max_completion_tokens: 1, max_tokens: null }, 'a', 'length'],
    [{ stop: 'c' }, 'a b ', 'stop'],
    [{ stop: ['z', 'b'] }, 'a ', 'stop'],
  ])('ends the text at a limit or stop sequence: %j', async (members, content, reason) => {
    expect(await (await post({ messages: user('a b c'), ...members })).json()).toMatchObject({
      choices: [{ message: { content }, finish_reason: reason }],
    });
  });
});

describe('a failure of ai.createChatCompletion', () => {
  test('ends a stream that fails midway with an error instead of [DONE]', async () => {
    const events = await eventsOf(await post({ messages: user('@fail-after 1\na b c'), stream: true }));
    expect(events).not.toContain('[DONE]');
    expect(JSON.parse(events.at(-1) ?? '')).toMatchObject({ error: { code: 'upstream_failed' } });
  });

  test("makes OpenAI's client throw for a failure midway", async () => {
    await expect(async () => {
      for await (const _chunk of await world.openai().chat.completions.create({
        model: 'local/echo',
        messages: [{ role: 'user', content: '@fail-after 1\na b' }],
        stream: true,
      }));
    }).rejects.toThrow('The model failed because of an @fail directive.');
  });

  test('answers a failure before the first word with an error status', async () => {
    expect((await post({ messages: user('@fail') })).status).toBe(502);
    expect((await post({ messages: user('@fail'), stream: true })).status).toBe(502);
  });
});

describe('a request of ai.createChatCompletion', () => {
  test.each(['developer', 'system'])(
    'accepts text parts in a %s message and a user message',
    async (role) => {
      const messages = [
        { role, content: [{ type: 'text', text: 'Be brief.' }] },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a' },
            { type: 'text', text: 'b' },
          ],
        },
      ];
      expect(await (await post({ messages })).json()).toMatchObject({
        choices: [{ message: { content: 'a\nb' } }],
        usage: { prompt_tokens: 4 },
      });
    },
  );

  test.each<[string, object, number, string, string]>([
    [
      'an image',
      { messages: user([{ type: 'image_url', image_url: { url: 'https://x.example/a.png' } }]) },
      422,
      'unsupported_by_model',
      'messages[0].content[0]',
    ],
    ['several choices', { messages: user('x'), n: 2 }, 422, 'unsupported_by_model', 'n'],
    ['log probabilities', { messages: user('x'), logprobs: true }, 422, 'unsupported_by_model', 'logprobs'],
    ['audio output', { messages: user('x'), audio: { voice: 'a' } }, 422, 'unsupported_by_model', 'audio'],
    [
      'an effort that it lacks',
      { messages: user('x'), reasoning_effort: 'huge' },
      422,
      'unsupported_reasoning_effort',
      'reasoning_effort',
    ],
    [
      'a base URL',
      { messages: user('x'), base_url: 'http://attacker.example' },
      400,
      'invalid_request',
      'base_url',
    ],
    [
      'a tool result without its call',
      { messages: [...user('x'), { role: 'tool', tool_call_id: 'c', content: 'y' }] },
      400,
      'invalid_request',
      'messages[1].tool_call_id',
    ],
    ['content of the wrong type', { messages: user(7) }, 400, 'invalid_request', 'messages[0].content'],
    ['a stop of the wrong type', { messages: user('x'), stop: { a: 1 } }, 400, 'invalid_request', 'stop'],
    [
      'a tool without its function',
      { messages: user('x'), tools: [{ type: 'function' }] },
      400,
      'invalid_request',
      'tools[0].function',
    ],
  ])('refuses %s and names the member', async (_name, body, status, code, param) => {
    const response = await post(body);
    expect(response.status).toBe(status);
    expect(await errorOf(response)).toMatchObject({ code, param });
  });

  test('answers 404 for an unknown model', async () => {
    await expect(
      world
        .openai()
        .chat.completions.create({ model: 'acme/none', messages: [{ role: 'user', content: 'x' }] }),
    ).rejects.toMatchObject({ status: 404, code: 'model_not_found' });
  });
});

/** The deltas of the chunks in which a stream of these parts is sent. */
async function serializeDeltas(...content: StreamPart[]) {
  async function* parts(): AsyncGenerator<StreamPart> {
    yield* content;
    yield { type: 'finish', finishReason: { unified: 'stop', raw: undefined }, usage: unknownUsage() };
  }
  const deltas = [];
  for await (const { choices } of serializeChunks(parts(), {
    modelId: 'acme/ok',
    completionId: 'chatcmpl-1',
    createdSeconds: 0,
    includeUsage: false,
    onWarnings: () => {},
  }))
    deltas.push(...choices.map(({ delta }) => delta));
  return deltas;
}

test('a tool input whose call never began is not added to another call', async () => {
  const deltas = await serializeDeltas(
    { type: 'tool-input-start', id: 'a', toolName: 'look' },
    { type: 'tool-input-delta', id: 'a', delta: '{}' },
    { type: 'tool-input-delta', id: 'b', delta: '{"x":1}' },
  );
  const calls = deltas.flatMap((delta) => delta.tool_calls ?? []);
  expect(calls.map((call) => call.function?.arguments ?? '').join('')).toBe('{}');
});

test('reasoning details of a stream have an index, by which clients join them', async () => {
  const reasoning = (id: string): StreamPart[] => [
    { type: 'reasoning-start', id },
    { type: 'reasoning-delta', id, delta: id },
    { type: 'reasoning-end', id, providerMetadata: { anthropic: { signature: id } } },
  ];
  const deltas = await serializeDeltas(...reasoning('a'), ...reasoning('b'));
  expect(deltas.flatMap((delta) => delta.reasoning_details ?? [])).toMatchObject([
    { index: 0, text: 'a' },
    { index: 1, text: 'b' },
  ]);
});
