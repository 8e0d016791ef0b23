// Chat completions that pass through: the bytes of a request, the server's answers, and refused members.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { CatalogModel } from '../../../../src/gateway/ai/catalog/catalog.ts';
import { buildProviderRequest } from '../../../../src/gateway/ai/formats/passthrough/request.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { chunkOf, errorOf, eventsOf, providerKey, startAi, type World } from '../world.ts';
import { createDocumentGenerator } from '../generator.ts';

const chat = '/v1/ai/chat/completions';
const messages = [{ role: 'user', content: 'hi' }];

describe('buildProviderRequest for chat completions', () => {
  const model = (
    provider: Partial<CatalogModel['providerEntry']> = {},
    overrides: Partial<CatalogModel> = {},
  ) =>
    ({
      id: 'acme/fast',
      upstream_model: 'fast "1"',
      max_output_tokens: 8192,
      ...overrides,
      providerEntry: { usage: 'none', unpriced_members: [], ...provider },
    }) as CatalogModel;
  const providerRequest = (text: string, target: CatalogModel) =>
    buildProviderRequest(Buffer.from(text), JSON.parse(text), { model: target }).bytes.toString('utf8');

  test('changes only the model', () => {
    const text =
      ' {\n "messages" : [ {"role":"user","content":"\\u0041 \\"model\\": \\"x\\"","model":"inner"} ] ,' +
      '"seed":12345678901234567890123,"temperature":1.50,' +
      '\t"model"\t:\t"acme\\/fast" , "x":{"model":"deep"}, "n":null } ';
    expect(providerRequest(text, model())).toBe(text.replace('"acme\\/fast"', '"fast \\"1\\""'));
  });

  test('finds a member model with an escaped name', () => {
    expect(providerRequest('{"\\u006dodel":"acme/fast","messages":[]}', model())).toBe(
      '{"\\u006dodel":"fast \\"1\\"","messages":[]}',
    );
  });

  test('keeps every other byte of random requests', () => {
    const random = createDocumentGenerator(99);
    for (let round = 0; round < 300; round += 1) {
      const innerText = random.document().text;
      const [head, tail] = [
        `{"metadata":${innerText},`,
        `,"messages":[{"role":"user","content":${JSON.stringify(innerText)}}]}`,
      ];
      expect(providerRequest(`${head}"model":"acme/fast"${tail}`, model())).toBe(
        `${head}"model":"fast \\"1\\""${tail}`,
      );
    }
  });

  test.each([
    [
      'no stream_options',
      '{"model":"m","stream":true}',
      '{"stream_options":{"include_usage":true},"model":"fast \\"1\\"","stream":true}',
    ],
    [
      'stream_options of null',
      '{"model":"m","stream":true,"stream_options":null}',
      '{"model":"fast \\"1\\"","stream":true,"stream_options":{"include_usage":true}}',
    ],
    [
      'empty stream_options',
      '{"model":"m","stream":true,"stream_options":{ }}',
      '{"model":"fast \\"1\\"","stream":true,"stream_options":{"include_usage":true }}',
    ],
    [
      'other stream_options',
      '{"stream_options":{"x":1},"model":"m","stream":true}',
      '{"stream_options":{"include_usage":true,"x":1},"model":"fast \\"1\\"","stream":true}',
    ],
    [
      'include_usage of false',
      '{"model":"m","stream":true,"stream_options":{"include_usage": false}}',
      '{"model":"fast \\"1\\"","stream":true,"stream_options":{"include_usage": true}}',
    ],
    [
      'include_usage of true',
      '{"model":"m","stream":true,"stream_options":{"include_usage":true}}',
      '{"model":"fast \\"1\\"","stream":true,"stream_options":{"include_usage":true}}',
    ],
    ['no stream', '{"model":"m"}', '{"model":"fast \\"1\\""}'],
  ])('requests usage if the provider sends it only on request: %s', (_name, text, expected) => {
    expect(providerRequest(text, model({ usage: 'ask' }))).toBe(expected);
  });

  test('adds an output limit only to requests without one', () => {
    const limitedModel = model({ output_limit_member: 'max_completion_tokens' });
    expect(providerRequest('{"model":"m"}', limitedModel)).toBe(
      '{"max_completion_tokens":8192,"model":"fast \\"1\\""}',
    );
    expect(providerRequest('{"model":"m","max_completion_tokens":null}', limitedModel)).toBe(
      '{"model":"fast \\"1\\"","max_completion_tokens":8192}',
    );
    for (const ownLimit of ['"max_tokens":99999', '"max_completion_tokens":99999']) {
      expect(providerRequest(`{"model":"m",${ownLimit}}`, limitedModel)).toBe(
        `{"model":"fast \\"1\\"",${ownLimit}}`,
      );
    }
    expect(
      providerRequest(
        '{"model":"m"}',
        model({ output_limit_member: 'max_tokens' }, { max_output_tokens: null }),
      ),
    ).toBe('{"model":"fast \\"1\\""}');
  });

  test('adds a limit and requests usage together', () => {
    expect(
      JSON.parse(
        providerRequest(
          '{"model":"m","stream":true}',
          model({ usage: 'ask', output_limit_member: 'max_tokens' }),
        ),
      ),
    ).toEqual({
      model: 'fast "1"',
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 8192,
    });
  });
});

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const scripts = {
    ok: 'ok',
    mirror: 'mirror',
    tools: 'tools',
    reasoning: 'reasoning',
    gzip: 'gzip',
    crlf: 'lines?end=crlf&bom=1',
    cr: 'lines?end=cr',
    split: 'split-utf8',
    forged: 'forged-done',
    late: 'after-done',
    'usage-on-choices': 'usage-on-choices',
    slow: 'ok?chunks=3&gap=120',
    comments: 'comments?count=20&gap=15',
  };
  world = await startAi({
    models: provider.modelsFile(scripts, { provider: { unpriced_members: ['service_tier'] } }),
    heartbeatMs: 40,
  });
});
afterEach(() => provider.reset());
afterAll(async () => {
  await world.close();
  await provider.close();
});
const stream = (model: string, members: object = {}) =>
  world.post(chat, { model, messages, stream: true, ...members });

describe('a request of ai.createChatCompletion through a provider', () => {
  test("sends the original bytes with only the provider's credential", async () => {
    const body =
      '{ "messages":[{"role":"user","content":"h\\u00ed","x":1e2}],' +
      '"model" : "acme/mirror","seed":9007199254740993 }';
    const response = await world.post(chat, body, { headers: { 'x-custom': 'mine', cookie: 'a=b' } });
    const call = provider.lastCall();
    expect(call.body.toString()).toBe(body.replace('acme/mirror', 'mirror'));
    expect(call.headers.authorization).toBe(`Bearer ${providerKey}`);
    expect(JSON.stringify(call.headers)).not.toMatch(/mine|a=b|user-token/);
    expect(
      ((await response.json()) as { choices: { message: { content: string } }[] }).choices[0]?.message
        .content,
    ).toBe(call.body.toString());
  });

  test.each<[string, string]>([
    ['a part of an unknown type', '{"messages":[{"role":"user","content":[{"type":"video_url","x":1}]}]}'],
    [
      'an image URL as a string',
      '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"u"}]}]}',
    ],
    ['a tool without a type', '{"messages":[{"role":"user","content":"x"}],"tools":[{"googleSearch":{}}]}'],
    [
      'tool call arguments as an object',
      '{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":{}}}]}]}',
    ],
    [
      'an unknown response format',
      '{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"grammar"}}',
    ],
  ])('sends %s as it is', async (_name, text) => {
    const body = text.replace('{', '{"model":"acme/ok",');
    expect((await world.post(chat, body)).status).toBe(200);
    expect(provider.lastCall().body.toString('utf8')).toBe(body.replace('acme/ok', 'ok'));
  });

  test.each<[string, object, string]>([
    [
      'a text that is a number',
      { messages: [{ role: 'user', content: [{ type: 'text', text: 5 }] }] },
      'messages[0].content[0].text',
    ],
    ['an unknown role', { messages: [{ role: 'owner', content: 'x' }] }, 'messages[0].role'],
    [
      'a function without a name',
      { messages, tools: [{ type: 'function', function: {} }] },
      'tools[0].function.name',
    ],
    [
      'an invalid schema',
      { messages, response_format: { type: 'json_schema', json_schema: { schema: 'x' } } },
      'response_format.json_schema.schema',
    ],
    ['a temperature in words', { messages, temperature: 'warm' }, 'temperature'],
    ['a stop of numbers', { messages, stop: [1] }, 'stop[0]'],
  ])('refuses %s and names the member', async (_name, members, param) => {
    const response = await world.post(chat, { model: 'acme/ok', ...members });
    expect(response.status).toBe(400);
    expect(await errorOf(response)).toMatchObject({ code: 'invalid_request', param });
    expect(provider.calls).toHaveLength(0);
  });

  test("forwards a provider's own members and null members", async () => {
    const body = {
      model: 'acme/ok',
      messages,
      repetition_penalty: 1.1,
      chat_template_kwargs: { enable_thinking: false },
      guidedChoice: ['a'],
      models: null,
    };
    expect((await world.post(chat, body)).status).toBe(200);
    expect(JSON.parse(provider.lastCall().body.toString())).toMatchObject({
      repetition_penalty: 1.1,
      guidedChoice: ['a'],
    });
  });

  test('refuses an effort that the model lacks', async () => {
    const response = await world.post(chat, { model: 'acme/ok', messages, reasoning_effort: 'high' });
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({ param: 'reasoning_effort' });
    expect(provider.calls).toHaveLength(0);
  });

  test('adds no effort for a model without efforts', async () => {
    await world.post(chat, { model: 'acme/ok', messages });
    expect(provider.lastCall().body.toString()).not.toContain('reasoning_effort');
  });
});

describe('an answer of ai.createChatCompletion through a provider', () => {
  test('changes only the model in the answer', async () => {
    const response = await world.post(chat, { model: 'acme/ok', messages });
    expect(response.headers.get('content-type')).toContain('application/json');
    expect(await response.text()).toBe(
      '{"id":"chatcmpl-scripted","object":"chat.completion","created":1700000000,"model":"acme/ok",' +
        '"choices":[{"index":0,' +
        '"message":{"role":"assistant","content":"Hello from the provider.","refusal":null},' +
        '"logprobs":null,"finish_reason":"stop"}],' +
        '"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14},"service_tier":"default"}',
    );
  });

  test('changes only the model and unrequested usage in chunks', async () => {
    const events = await eventsOf(await stream('acme/ok'));
    expect(events[0]).toBe(
      '{"id":"chatcmpl-scripted","object":"chat.completion.chunk","created":1700000000,"model":"acme/ok",' +
        '"choices":[{"index":0,"delta":{"role":"assistant","content":"tok0 "},' +
        '"logprobs":null,"finish_reason":null}]}',
    );
    expect(events.at(-1)).toBe('[DONE]');
    expect(events).toHaveLength(7);
    expect(events.join()).not.toContain('usage');
    expect(JSON.parse(provider.lastCall().body.toString())).toMatchObject({
      stream_options: { include_usage: true },
    });
  });

  test('keeps the usage chunk that the caller requested', async () => {
    const events = await eventsOf(await stream('acme/ok', { stream_options: { include_usage: true } }));
    expect(JSON.parse(events.at(-2) ?? '')).toMatchObject({
      model: 'acme/ok',
      choices: [],
      usage: { completion_tokens: 5 },
    });
  });

  test('sets unrequested usage to null in a chunk with choices', async () => {
    const events = await eventsOf(await stream('acme/usage-on-choices'));
    expect(JSON.parse(events.at(-2) ?? '')).toMatchObject({
      usage: null,
      choices: [{ finish_reason: 'stop' }],
    });
  });

  test.each([
    ['acme/crlf', '\r\n'],
    ['acme/cr', '\r'],
  ])('keeps the line ends of the provider (%s)', async (model, lineEnd) => {
    const text = await (await stream(model)).text();
    // Seven events, each with a line of data and an empty line.
    expect(text.match(/\r\n|\r|\n/g)).toEqual(Array.from({ length: 14 }, () => lineEnd));
    const data = text.split(lineEnd).filter((line) => line.startsWith('data: '));
    expect(data).toHaveLength(7);
    expect(data.slice(0, -1).every((line) => chunkOf(line.slice(6)).model === model)).toBe(true);
    expect(text).not.toContain('\ufeff');
  });

  test('joins characters that arrive byte by byte', async () => {
    expect(chunkOf((await eventsOf(await stream('acme/split')))[0]).choices[0]?.delta.content).toBe(
      'Grüße, 世界 🌍',
    );
  });

  test('ends only at the real [DONE]', async () => {
    expect(await eventsOf(await stream('acme/forged'))).toHaveLength(3);
    expect((await eventsOf(await stream('acme/late'))).at(-1)).toBe('[DONE]');
  });

  test('reads an answer that was compressed without being requested', async () => {
    expect(await (await world.post(chat, { model: 'acme/gzip', messages })).json()).toMatchObject({
      model: 'acme/gzip',
    });
  });

  test('sends comments between events while the provider is silent', async () => {
    const text = await (await stream('acme/slow')).text();
    expect(text).toContain('\n\n: hb\n\ndata: ');
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
  });

  test("forwards a provider's comments when no content comes for a heartbeat", async () => {
    const text = await (await stream('acme/comments')).text();
    expect(text.startsWith(': still here\n\n')).toBe(true);
    expect(text).toMatch(/data: \{"error":\{"type":"upstream_error","code":"upstream_truncated".*\n\n$/);
  });

  test('keeps the arguments of tool calls', async () => {
    expect(
      (await eventsOf(await stream('acme/tools')))
        .map((event) => event.match(/"arguments":"((?:[^"\\]|\\.)*)"/)?.[1])
        .filter(Boolean)
        .join(''),
    ).toBe('{\\"city\\":\\"Oslo\\"}');
  });

  test('keeps the reasoning', async () => {
    expect((await eventsOf(await stream('acme/reasoning'))).join()).toContain(
      '"reasoning_content":"Let me think. "',
    );
  });
});

describe('ai.createChatCompletion through a provider', () => {
  test.each([
    'api_base',
    'base_url',
    'api_key',
    'headers',
    'extra_headers',
    'Authorization',
    'API-KEY',
    'azure_endpoint',
  ])('refuses the member %s before any call', async (member) => {
    const response = await world.post(chat, {
      model: 'acme/ok',
      messages,
      [member]: 'http://attacker.example',
    });
    expect(response.status).toBe(400);
    expect(await errorOf(response)).toMatchObject({ code: 'invalid_request', param: member });
    expect(provider.calls).toHaveLength(0);
  });

  test('refuses the member api_base inside extra_body', async () => {
    const response = await world.post(chat, {
      model: 'acme/ok',
      messages,
      extra_body: { api_base: 'http://attacker.example' },
    });
    expect(await errorOf(response)).toMatchObject({ param: 'extra_body.api_base' });
  });

  test.each<[string, unknown]>([
    ['Model', 'gpt-5-pro'],
    ['N', 8],
    ['Max_Tokens', 100_000],
    ['maxTokens', 100_000],
    ['\u017ftream', true],
    ['\uff4d\uff4f\uff44\uff45\uff4c', 'gpt-5-pro'],
    ['\u200bn', 8],
    ['Stream_Options', {}],
    ['models', ['openai/gpt-5-pro']],
    ['plugins', [{ id: 'web' }]],
    ['provider', { order: ['a'] }],
    ['fallbacks', ['gpt-5-pro']],
    ['user_config', {}],
    ['model_list', []],
    ['mock_response', 'hi'],
    ['litellm_params', {}],
    ['Model_List', []],
    ['drop_params', true],
    ['best_of', 8],
    ['n_predict', 100_000],
    ['max_output_tokens', 100_000],
    ['Service_Tier', 'priority'],
  ])('refuses the member %s, which a provider may read as a paid member', async (member, value) => {
    const response = await world.post(chat, { model: 'acme/ok', messages, [member]: value });
    expect([response.status, await errorOf(response)]).toMatchObject([
      422,
      { code: 'unpriced_member', param: member },
    ]);
    expect(provider.calls).toHaveLength(0);
  });

  test.each<[object, string]>([
    [{ extra_body: { max_tokens: 100_000 } }, 'extra_body.max_tokens'],
    [{ extra_body: { n_predict: 100_000 } }, 'extra_body.n_predict'],
    [{ extraBody: { extra_body: { Models: ['a'] } } }, 'extraBody.extra_body.Models'],
    [{ stream_options: { Include_Usage: false } }, 'stream_options.Include_Usage'],
    [{ top_k: 1, topK: 2 }, 'topK'],
  ])('refuses members that a server may read as other members: %j', async (members, param) => {
    const response = await world.post(chat, { model: 'acme/ok', messages, ...members });
    expect([response.status, await errorOf(response)]).toMatchObject([
      422,
      { code: 'unpriced_member', param },
    ]);
    expect(provider.calls).toHaveLength(0);
  });

  test('refuses a member without a price', async () => {
    const response = await world.post(chat, { model: 'acme/ok', messages, service_tier: 'priority' });
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({ code: 'unpriced_member', param: 'service_tier' });
    expect(provider.calls).toHaveLength(0);
  });
});

test("OpenAI's client assembles a streamed tool call", async () => {
  const { choices } = await world
    .openai()
    .chat.completions.stream({ model: 'acme/tools', messages: [{ role: 'user', content: 'hi' }] })
    .finalChatCompletion();
  expect(choices[0]?.message.tool_calls?.[0]).toMatchObject({
    id: 'call_1',
    function: { name: 'get_weather', arguments: '{"city":"Oslo"}' },
  });
});
