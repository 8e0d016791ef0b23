// The messages format on local models, with raw requests and Anthropic's client.
import Anthropic from '@anthropic-ai/sdk';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { errorOf, eventsOf, startAi, userToken, type World } from '../world.ts';

const user = (content: unknown) => [{ role: 'user', content }];
const tools = [{ name: 'get_weather', input_schema: { type: 'object' as const } }];

let world: World;
beforeAll(async () => {
  world = await startAi();
});
afterAll(() => world.close());

const post = (body: object) =>
  world.post('/v1/ai/messages', { model: 'local/echo', max_tokens: 100, ...body });
const client = () => new Anthropic({ baseURL: `${world.url}/v1/ai`, authToken: userToken, maxRetries: 0 });

describe('ai.createMessage with a local model', () => {
  test('answers with a whole message', async () => {
    const response = await post({ messages: user('Good morning') });
    expect(await response.json()).toEqual({
      id: expect.stringMatching(/^msg_[0-9a-z]{26}$/),
      type: 'message',
      role: 'assistant',
      model: 'local/echo',
      content: [{ type: 'text', text: 'Good morning' }],
      stop_reason: 'end_turn',
      stop_sequence: null,
      usage: {
        input_tokens: 2,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 0,
        output_tokens: 2,
        output_tokens_details: { thinking_tokens: 0 },
      },
    });
    expect(response.headers.get('x-townhall-credits')).toBe('0');
    expect(response.headers.get('x-townhall-model')).toBe('local/echo');
  });

  test('streams the events of a text in order', async () => {
    const response = await post({ messages: user('a b'), stream: true });
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    const text = await response.text();
    expect([...text.matchAll(/^event: (.+)$/gm)].map(([, name]) => name)).toEqual([
      'message_start',
      'ping',
      'content_block_start',
      'content_block_delta',
      'content_block_delta',
      'content_block_stop',
      'message_delta',
      'message_stop',
    ]);
    const events = [...text.matchAll(/^data: (.+)$/gm)].map(
      ([, data]) => JSON.parse(data ?? '') as Record<string, unknown>,
    );
    expect(events.slice(2)).toEqual([
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'a' } },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: ' b' } },
      { type: 'content_block_stop', index: 0 },
      {
        type: 'message_delta',
        delta: { stop_reason: 'end_turn', stop_sequence: null },
        usage: expect.objectContaining({ input_tokens: 2, output_tokens: 2 }),
      },
      { type: 'message_stop' },
    ]);
  });

  test('streams thinking and parallel tools that the SDK assembles', async () => {
    const finalMessage = await client()
      .messages.stream({
        model: 'local/echo',
        max_tokens: 100,
        messages: [{ role: 'user', content: '@reasoning hm\n@tool a {"x":[1,2]}\n@tool b\nHold on' }],
      })
      .finalMessage();
    expect(finalMessage).toMatchObject({
      content: [
        { type: 'thinking', thinking: 'hm', signature: expect.stringMatching(/^townhall\.1\./) },
        { type: 'text', text: 'Hold on' },
        { type: 'tool_use', id: 'call_1', name: 'a', input: { x: [1, 2] } },
        { type: 'tool_use', id: 'call_2', name: 'b', input: {} },
      ],
      stop_reason: 'tool_use',
    });
    expect(finalMessage.usage.output_tokens).toBeGreaterThan(0);
  });

  test('answers with the result of a tool over two turns', async () => {
    const question = { role: 'user' as const, content: '@tool get_weather {"city":"Oslo"}' };
    const request = { model: 'local/echo', max_tokens: 100, tools };
    const firstMessage = await client().messages.create({ ...request, messages: [question] });
    expect(firstMessage.stop_reason).toBe('tool_use');
    const secondMessage = await client().messages.create({
      ...request,
      messages: [
        question,
        { role: 'assistant', content: firstMessage.content },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'call_1', content: [{ type: 'text', text: 'It rains.' }] },
          ],
        },
      ],
    });
    expect(secondMessage.content).toEqual([{ type: 'text', text: 'It rains.' }]);
  });
});

describe('ai.createMessage with settings', () => {
  test.each([
    [{ max_tokens: 2 }, 'a b', 'max_tokens'],
    [{ stop_sequences: ['z', 'b'] }, 'a ', 'end_turn'],
  ])('ends the text at a limit or stop sequence: %j', async (members, text, reason) => {
    expect(await (await post({ messages: user('a b c'), ...members })).json()).toMatchObject({
      content: [{ type: 'text', text }],
      stop_reason: reason,
    });
  });

  const format = {
    type: 'json_schema',
    schema: { type: 'object', required: ['n'], properties: { n: { type: 'integer' } } },
  };
  test.each([
    ['output_config', { output_config: { format } }],
    ['output_format', { output_format: format }],
  ])('follows a schema in %s', async (_name, members) => {
    expect(await (await post({ messages: user('x'), ...members })).json()).toMatchObject({
      content: [{ type: 'text', text: '{"n":0}' }],
    });
  });
});

describe('ai.createMessage in case of an error', () => {
  test('ends a stream that fails midway with one error event', async () => {
    const events = await eventsOf(await post({ messages: user('@fail-after 1\na b c'), stream: true }));
    expect(JSON.parse(events.at(-1) ?? '')).toEqual({
      type: 'error',
      error: expect.objectContaining({ type: 'api_error', code: 'upstream_failed' }),
    });
  });

  test("makes Anthropic's client throw for a failure midway", async () => {
    await expect(
      client()
        .messages.stream({
          model: 'local/echo',
          max_tokens: 10,
          messages: [{ role: 'user', content: '@fail-after 1\na b' }],
        })
        .finalMessage(),
    ).rejects.toThrow('The model failed because of an @fail directive.');
  });

  test.each([false, true])(
    'answers a failure before the first content with an error status, streamed: %s',
    async (stream) => {
      const response = await post({ messages: user('@fail'), stream });
      expect(response.status).toBe(502);
      expect(await response.json()).toMatchObject({ type: 'error', error: { type: 'api_error' } });
    },
  );
});

describe('ai.createMessage with a member that the model lacks', () => {
  test.each(['low', 'high'])('does not warn about the effort %s, which the model has', async (effort) => {
    const response = await post({ messages: user('x'), output_config: { effort } });
    expect([response.status, response.headers.get('x-townhall-warnings')]).toEqual([200, null]);
  });

  test.each<[string, object, string]>([
    [
      'medium',
      { output_config: { effort: 'medium' } },
      'output_config.effort: local/echo has no effort medium, so it runs at low',
    ],
    [
      'max',
      { output_config: { effort: 'max' } },
      'output_config.effort: local/echo has no effort max, so it runs at high',
    ],
    [
      'disabled thinking',
      { thinking: { type: 'disabled' } },
      'thinking: local/echo has no effort none, so it runs at low',
    ],
    [
      'a budget of thinking',
      { thinking: { type: 'enabled', budget_tokens: 20_000 } },
      'thinking.budget_tokens: is sent as the nearest effort',
    ],
  ])('maps %s to the nearest effort with a warning', async (_name, members, warning) => {
    const response = await post({ messages: user('x'), ...members });
    expect(response.status).toBe(200);
    expect(response.headers.get('x-townhall-warnings')).toBe(warning);
  });

  test('warns about an effort for a model without efforts', async () => {
    const response = await post({
      model: 'local/guide',
      messages: user('How do I log in?'),
      output_config: { effort: 'high' },
    });
    expect(response.status).toBe(200);
    expect(response.headers.get('x-townhall-warnings')).toBe(
      'output_config.effort: local/guide has no reasoning efforts',
    );
  });

  test('warns about labels and cache marks', async () => {
    const cacheMark = { cache_control: { type: 'ephemeral' } };
    const response = await post({
      system: [{ type: 'text', text: 'Be brief.', ...cacheMark }],
      messages: user([{ type: 'text', text: 'x', ...cacheMark }]),
      metadata: { user_id: 'u' },
      context_management: { edits: [] },
    });
    expect(response.status).toBe(200);
    expect(
      response.headers
        .get('x-townhall-warnings')
        ?.split('; ')
        .map((line) => line.split(':')[0]),
    ).toEqual(['metadata', 'context_management', 'cache_control']);
  });

  test('warns about the members of a document that a text lacks', async () => {
    const document = {
      type: 'document',
      source: { type: 'text', data: 'A boat sails.' },
      title: 'Boats',
      context: 'From a book.',
    };
    const warnings = async (citations: object) => {
      const response = await post({ messages: user([{ ...document, citations }]) });
      expect(response.status).toBe(200);
      return response.headers.get('x-townhall-warnings')?.split('; ');
    };
    const dropped = (member: string) => `${member}: is not sent to this model with a document`;
    expect(await warnings({ enabled: true })).toEqual(['citations', 'context', 'title'].map(dropped));
    expect(await warnings({ enabled: false })).toEqual(['context', 'title'].map(dropped));
  });

  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } };
  test.each<[string, object, number, string, string]>([
    ['an image', { messages: user([image]) }, 422, 'unsupported_by_model', 'messages[0].content[0]'],
    [
      'an effort that no model has',
      { messages: user('x'), output_config: { effort: 'huge' } },
      422,
      'unsupported_reasoning_effort',
      'output_config.effort',
    ],
    [
      'a tool of the provider',
      { messages: user('x'), tools: [{ type: 'bash_20250124', name: 'bash' }] },
      422,
      'unsupported_by_model',
      'tools[0].type',
    ],
    ['a container', { messages: user('x'), container: 'c' }, 422, 'unsupported_by_model', 'container'],
    [
      'an unsupported service tier',
      { messages: user('x'), service_tier: 'priority' },
      422,
      'unsupported_by_model',
      'service_tier',
    ],
    [
      'a limit of one tool call per turn',
      { messages: user('x'), tools, tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
      422,
      'unsupported_by_model',
      'tool_choice.disable_parallel_tool_use',
    ],
    [
      'an unknown block',
      { messages: user([{ type: 'search_result' }]) },
      422,
      'unsupported_by_model',
      'messages[0].content[0].type',
    ],
    [
      'a stored file',
      { messages: user([{ type: 'document', source: { type: 'file', file_id: 'f' } }]) },
      422,
      'unsupported_by_model',
      'messages[0].content[0].source.file_id',
    ],
    [
      'a result without its call',
      { messages: user([{ type: 'tool_result', tool_use_id: 'a' }]) },
      400,
      'invalid_request',
      'messages[0].content[0].tool_use_id',
    ],
    [
      'an unknown role',
      { messages: [{ role: 'tool', content: 'x' }] },
      400,
      'invalid_request',
      'messages[0].role',
    ],
    [
      'a temperature of the wrong type',
      { messages: user('x'), temperature: 'hot' },
      400,
      'invalid_request',
      'temperature',
    ],
    [
      'a base URL',
      { messages: user('x'), base_url: 'http://attacker.example' },
      400,
      'invalid_request',
      'base_url',
    ],
  ])('refuses %s and names the member', async (_name, body, status, code, param) => {
    const response = await post(body);
    expect(response.status).toBe(status);
    expect(await errorOf(response)).toMatchObject({ code, param });
  });
});

describe('ai.getMessageTokens', () => {
  test('estimates the tokens of a request at both paths', async () => {
    // 2,000 bytes are about 500 tokens.
    const text = 'word '.repeat(400);
    const { input_tokens: tokens } = await client().messages.countTokens({
      model: 'local/echo',
      messages: [{ role: 'user', content: text }],
    });
    expect(tokens).toBeGreaterThan(400);
    expect(tokens).toBeLessThan(600);
    const body = { model: 'local/echo', messages: user(text) };
    const response = await world.post('/v1/ai/messages/count_tokens', body);
    expect(await response.json()).toEqual({ input_tokens: tokens });
  });

  test('refuses an unknown model', async () => {
    const body = { model: 'local/none', messages: user('x') };
    const response = await world.post('/v1/ai/messages/count_tokens', body);
    expect(response.status).toBe(404);
    expect(await response.json()).toMatchObject({
      type: 'error',
      error: { type: 'not_found_error', code: 'model_not_found' },
    });
  });

  test('requires a token', async () => {
    const body = { model: 'local/echo', messages: user('x') };
    expect((await world.post('/v1/ai/messages/count_tokens', body, { token: null })).status).toBe(401);
  });
});
