// The responses format on local models, with raw requests and OpenAI's client.
import type OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { errorOf, eventsOf, startAi, type World } from '../world.ts';

type Json = Record<string, unknown>;

const weather = {
  type: 'function' as const,
  name: 'get_weather',
  parameters: { type: 'object', properties: { city: { type: 'string' } } },
  strict: false,
};

let world: World;
beforeAll(async () => {
  world = await startAi();
});
afterAll(() => world.close());

const post = (body: object) => world.post('/v1/ai/responses', { model: 'local/echo', ...body });
const stream = async (body: object) =>
  (await eventsOf(await post({ stream: true, ...body }))).map((event) => JSON.parse(event) as Json);
const client = () => world.openai();

describe('ai.createResponse with a local model', () => {
  test('answers with a whole response', async () => {
    const response = await post({ input: 'Good morning', instructions: 'Be brief.', temperature: 0.5 });
    expect(await response.json()).toMatchObject({
      id: expect.stringMatching(/^resp_[0-9a-z]{26}$/),
      object: 'response',
      status: 'completed',
      model: 'local/echo',
      instructions: 'Be brief.',
      temperature: 0.5,
      store: false,
      error: null,
      incomplete_details: null,
      output: [
        {
          type: 'message',
          id: expect.stringMatching(/^msg_/),
          status: 'completed',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'Good morning', annotations: [] }],
        },
      ],
      usage: {
        input_tokens: 4,
        input_tokens_details: { cached_tokens: 0 },
        output_tokens: 2,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: 6,
      },
    });
    expect(response.headers.get('x-townhall-credits')).toBe('0');
  });

  test('streams the events of a text in order', async () => {
    const events = await stream({ input: 'a b' });
    expect(events.map(({ type }) => type)).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.delta',
      'response.output_text.delta',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.completed',
    ]);
    expect(events.map((event) => event['sequence_number'])).toEqual(events.map((_, index) => index));
    const addedEvent = events[2] as { item: { id: string } };
    expect(events[4]).toMatchObject({
      item_id: addedEvent.item.id,
      output_index: 0,
      content_index: 0,
      delta: 'a',
    });
    expect(events.at(-1)).toMatchObject({
      response: { status: 'completed', output: [{ id: addedEvent.item.id, content: [{ text: 'a b' }] }] },
    });
  });

  test('streams reasoning as a summary with its replay metadata', async () => {
    const events = await stream({ input: '@reasoning I think\nso' });
    expect(events.slice(2, 10).map(({ type, output_index: index }) => [type, index])).toEqual([
      ['response.output_item.added', 0],
      ['response.reasoning_summary_part.added', 0],
      ['response.reasoning_summary_text.delta', 0],
      ['response.reasoning_summary_text.delta', 0],
      ['response.reasoning_summary_text.done', 0],
      ['response.reasoning_summary_part.done', 0],
      ['response.output_item.done', 0],
      ['response.output_item.added', 1],
    ]);
    expect(events[8]).toMatchObject({
      item: {
        type: 'reasoning',
        summary: [{ type: 'summary_text', text: 'I think' }],
        encrypted_content: expect.stringMatching(/^townhall\.1\./),
      },
    });
  });
});

describe('ai.createResponse with tools', () => {
  test('streams parallel calls that the SDK assembles', async () => {
    const finalResponse = await client()
      .responses.stream({ model: 'local/echo', input: '@tool a {"x":[1,2]}\n@tool b\nHold on' })
      .finalResponse();
    expect(finalResponse.output_text).toBe('Hold on');
    expect(finalResponse.output.slice(1)).toMatchObject([
      { type: 'function_call', call_id: 'call_1', name: 'a', arguments: '{"x":[1,2]}', status: 'completed' },
      { type: 'function_call', call_id: 'call_2', name: 'b', arguments: '{}' },
    ]);
  });

  test('answers with the result of a tool over two turns', async () => {
    const question = { role: 'user' as const, content: '@reasoning hm\n@tool get_weather {"city":"Oslo"}' };
    const request = { model: 'local/echo', tools: [weather] };
    const firstResponse = await client().responses.create({ ...request, input: [question] });
    const secondResponse = await client().responses.create({
      ...request,
      input: [
        question,
        ...(firstResponse.output as OpenAI.Responses.ResponseInputItem[]),
        { type: 'function_call_output', call_id: 'call_1', output: 'It rains.' },
      ],
    });
    expect(secondResponse.output_text).toBe('It rains.');
  });

  const customToolRequest = {
    input: '@tool shout {"input":"Hey \\"you\\""}',
    tools: [{ type: 'custom', name: 'shout' }],
  };
  const customToolCall = { type: 'custom_tool_call', call_id: 'call_1', name: 'shout', input: 'Hey "you"' };

  test('returns the plain text of a custom tool call', async () => {
    expect(await (await post(customToolRequest)).json()).toMatchObject({ output: [customToolCall] });
  });

  test('streams the plain text of a custom tool call', async () => {
    const events = await stream(customToolRequest);
    expect(events.map(({ type }) => type).slice(2, -1)).toEqual([
      'response.output_item.added',
      'response.custom_tool_call_input.delta',
      'response.custom_tool_call_input.done',
      'response.output_item.done',
    ]);
    expect(events.at(-1)).toMatchObject({ response: { output: [customToolCall] } });
  });

  test('answers with the result of a custom tool', async () => {
    const answer = await post({
      ...customToolRequest,
      input: [
        { role: 'user', content: 'x' },
        customToolCall,
        { type: 'custom_tool_call_output', call_id: 'call_1', output: 'Louder.' },
      ],
    });
    expect(await answer.json()).toMatchObject({ output: [{ content: [{ text: 'Louder.' }] }] });
  });

  describe('with a namespace of tools', () => {
    const namespace = (name: string, ...names: string[]) => ({
      type: 'namespace',
      name,
      description: 'Some tools.',
      tools: names.map((tool) => ({ type: 'function', name: tool, parameters: { type: 'object' } })),
    });

    test('names the namespace of a call, whole and streamed', async () => {
      const body = {
        input: '@tool mcp__crm__find {"id":1}\n@tool find',
        tools: [namespace('mcp__crm__', 'find'), { type: 'function', name: 'find' }],
      };
      const calls = [
        { type: 'function_call', namespace: 'mcp__crm__', name: 'find', arguments: '{"id":1}' },
        { type: 'function_call', name: 'find', arguments: '{}' },
      ];
      const response = await post(body);
      expect(response.headers.get('x-townhall-warnings')).toContain('description: of a namespace');
      const { output } = (await response.json()) as { output: Json[] };
      expect(output).toMatchObject(calls);
      expect(output[1]).not.toHaveProperty('namespace');
      expect((await stream(body)).at(-1)).toMatchObject({ response: { output: calls } });
    });

    test('reads a call of an earlier turn and its result', async () => {
      const call = { type: 'function_call', namespace: 'crm', name: 'find', call_id: 'a', arguments: '{}' };
      const answer = await post({
        input: [
          { role: 'user', content: 'x' },
          call,
          { type: 'function_call_output', call_id: 'a', output: 'Found.' },
        ],
        tools: [namespace('crm', 'find')],
        tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'namespace', name: 'crm' }] },
      });
      expect(await answer.json()).toMatchObject({ output: [{ content: [{ text: 'Found.' }] }] });
    });

    test('requires a tool of the namespace by name', async () => {
      const { output } = (await (
        await post({
          input: 'x',
          tools: [namespace('crm', 'find', 'add')],
          tool_choice: { type: 'function', namespace: 'crm', name: 'add' },
        })
      ).json()) as { output: Json[] };
      expect(output.at(-1)).toMatchObject({ type: 'function_call', namespace: 'crm', name: 'add' });
    });
  });
});

describe('ai.createResponse with settings', () => {
  test('is incomplete at the output limit', async () => {
    const body = { input: 'a b c', max_output_tokens: 2 };
    const incompleteDetails = {
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      output: [{ content: [{ text: 'a b' }] }],
    };
    expect(await (await post(body)).json()).toMatchObject(incompleteDetails);
    expect((await stream(body)).at(-1)).toMatchObject({
      type: 'response.incomplete',
      response: incompleteDetails,
    });
  });

  test('follows a schema', async () => {
    const schema = { type: 'object', required: ['n'], properties: { n: { type: 'integer' } } };
    const text = { format: { type: 'json_schema', name: 'a', schema } };
    expect(await (await post({ input: 'x', text })).json()).toMatchObject({
      output: [{ content: [{ text: '{"n":0}' }] }],
      text,
    });
  });

  test('answers in JSON without a schema', async () => {
    const text = { format: { type: 'json_object' } };
    expect(await (await post({ input: 'x', text })).json()).toMatchObject({
      output: [{ content: [{ text: '{"text":"x"}' }] }],
    });
  });

  test('accepts a list of allowed tools', async () => {
    const tool_choice = {
      type: 'allowed_tools',
      mode: 'auto',
      tools: [{ type: 'function', name: 'get_weather' }],
    };
    expect((await post({ input: 'x', tools: [weather], tool_choice })).status).toBe(200);
  });

  test('does not repeat a long request in its events', async () => {
    const events = await stream({ input: 'x', instructions: 'y'.repeat(20_000) });
    expect(events[0]).toMatchObject({ response: { instructions: null } });
  });
});

describe('ai.createResponse in case of an error', () => {
  test('ends a stream that fails midway with one error event', async () => {
    const events = await stream({ input: '@fail-after 1\na b c' });
    expect(events.at(-1)).toMatchObject({
      type: 'error',
      code: 'upstream_failed',
      sequence_number: events.length - 1,
    });
  });

  test("makes OpenAI's client throw for a failure midway", async () => {
    const input = '@fail-after 1\na b';
    const events = await client().responses.create({ model: 'local/echo', input, stream: true });
    await expect(async () => {
      for await (const _event of events);
    }).rejects.toThrow('@fail');
  });

  test.each([false, true])(
    'answers a failure before the first content with an error status, streamed: %s',
    async (streams) => {
      expect((await post({ input: '@fail', stream: streams })).status).toBe(502);
    },
  );
});

describe('ai.createResponse with a member that the model lacks', () => {
  test('names labels and hints in the warnings', async () => {
    const response = await post({
      input: 'x',
      metadata: { a: 'b' },
      prompt_cache_key: 'k',
      text: { verbosity: 'low' },
      include: ['web_search_call.action.sources'],
    });
    expect(response.status).toBe(200);
    expect(
      response.headers
        .get('x-townhall-warnings')
        ?.split('; ')
        .map((line) => line.split(':')[0]),
    ).toEqual(['metadata', 'prompt_cache_key', 'include[0]', 'text.verbosity']);
  });

  const image = { type: 'input_image', image_url: 'https://x.example/a.png' };
  const unsupportedCode = 'unsupported_by_model';
  test.each<[string, object, number, string, string]>([
    ['a conversation', { input: 'x', conversation: 'conv_1' }, 422, unsupportedCode, 'conversation'],
    ['a stored prompt', { prompt: { id: 'p' } }, 422, unsupportedCode, 'prompt'],
    [
      'an item reference',
      { input: [{ type: 'item_reference', id: 'msg_1' }] },
      422,
      unsupportedCode,
      'input[0]',
    ],
    [
      'an image',
      { input: [{ role: 'user', content: [image] }] },
      422,
      unsupportedCode,
      'input[0].content[0].image_url',
    ],
    [
      'a tool of the provider',
      { input: 'x', tools: [{ type: 'local_shell' }] },
      422,
      unsupportedCode,
      'tools[0].type',
    ],
    [
      'a grammar',
      { input: 'x', tools: [{ type: 'custom', name: 'a', format: { type: 'grammar' } }] },
      422,
      unsupportedCode,
      'tools[0].format',
    ],
    ['log probabilities', { input: 'x', top_logprobs: 2 }, 422, unsupportedCode, 'top_logprobs'],
    [
      'a limit of one tool call per turn',
      { input: 'x', tools: [weather], parallel_tool_calls: false },
      422,
      unsupportedCode,
      'parallel_tool_calls',
    ],
    [
      'an effort that it lacks',
      { input: 'x', reasoning: { effort: 'medium' } },
      422,
      'unsupported_reasoning_effort',
      'reasoning.effort',
    ],
    ['no input', {}, 400, 'invalid_request', 'input'],
    [
      'a result without its call',
      { input: [{ type: 'function_call_output', call_id: 'a', output: 'x' }] },
      400,
      'invalid_request',
      'input[0].call_id',
    ],
    [
      'a format of the wrong type',
      { input: 'x', text: { format: 7 } },
      400,
      'invalid_request',
      'text.format',
    ],
  ])('refuses %s and names the member', async (_name, body, status, code, param) => {
    const response = await post(body);
    expect(response.status).toBe(status);
    expect(await errorOf(response)).toMatchObject({ code, param });
  });
});
