// Gemini's API with Google's own client, unmodified, on models of three kinds of providers.
import { ApiError, GoogleGenAI, Type } from '@google/genai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { serializeAnswer, serializeChunks } from '../../../../src/gateway/ai/formats/gemini/answer.ts';
import { type Answer, type StreamPart, unknownUsage } from '../../../../src/gateway/ai/hub/language-model.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { eventsOf, testResilience, startAi, userToken, type World } from '../world.ts';

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({
    models: provider.modelsFile(
      { ok: 'ok', tools: 'tools', failing: 'status?code=500', cut: 'reset?chunks=2' },
      {
        model: { rates: { input: 1_000_000, output: 1_000_000 } },
        providers: ['google', 'anthropic'].map((id) => ({
          id,
          kind: id,
          base_url: provider.url,
          api_key_env: 'ACME_API_KEY',
        })),
        models: ['google', 'anthropic'].map((id) => ({
          id: `${id}/ok`,
          provider: id,
          upstream_model: 'ok',
          rates: null,
        })),
      },
    ),
    resilience: testResilience,
  });
});
afterAll(async () => {
  await world?.close();
  await provider?.close();
});
beforeEach(() => provider.reset());

const client = (apiKey = userToken, overrides: { apiVersion?: string } = {}) =>
  new GoogleGenAI({
    apiKey,
    ...overrides,
    httpOptions: { baseUrl: world.url, retryOptions: { attempts: 1 } },
  });
const weather = {
  functionDeclarations: [
    {
      name: 'get_weather',
      description: 'The weather of a city.',
      parameters: {
        type: Type.OBJECT,
        properties: { city: { type: Type.STRING, nullable: true }, days: { type: Type.INTEGER } },
        required: ['city'],
      },
    },
  ],
};
const post = (
  path: string,
  body: object,
  headers: Record<string, string> = { 'x-goog-api-key': userToken },
) =>
  fetch(world.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
const hello = { contents: [{ role: 'user', parts: [{ text: 'Hello' }] }] };
interface ChatRequest {
  messages: { role: string; content: unknown }[];
  tools: { function: { parameters: unknown } }[];
}
const lastRequest = () => JSON.parse(provider.lastCall().body.toString()) as ChatRequest;

describe.each(['local/echo', 'acme/ok', 'google/ok'])("Google's client on %s", (model) => {
  test('gets a whole answer with its usage', async () => {
    const answer = await client().models.generateContent({ model, contents: 'Good morning' });
    expect(answer.text?.length).toBeGreaterThan(0);
    expect(answer.candidates?.[0]?.finishReason).toBe('STOP');
    expect(answer.modelVersion).toBe(model);
    expect(answer.usageMetadata?.totalTokenCount).toBeGreaterThan(0);
  });

  test('gets a stream that ends with its usage', async () => {
    const stream = await client().models.generateContentStream({ model, contents: 'Good morning' });
    let text = '';
    let lastChunk;
    for await (const chunk of stream) {
      text += chunk.text ?? '';
      lastChunk = chunk;
    }
    expect(text.length).toBeGreaterThan(0);
    expect(lastChunk?.candidates?.[0]?.finishReason).toBe('STOP');
    expect(lastChunk?.usageMetadata?.promptTokenCount).toBeGreaterThan(0);
  });

  test('counts tokens', async () => {
    const { totalTokens } = await client().models.countTokens({ model, contents: 'Good morning' });
    expect(totalTokens).toBeGreaterThan(0);
    expect(provider.calls).toHaveLength(0);
  });
});

test.each(['v1', 'v1beta'])("Google's client works with its version %s", async (apiVersion) => {
  const model = 'models/acme/ok';
  const answer = await client(userToken, { apiVersion }).models.generateContent({ model, contents: 'Hello' });
  expect(answer.text).toBe('Hello from the provider.');
});

test("a refused list of models has Google's error format", async () => {
  const response = await fetch(`${world.url}/v1beta/models`, { headers: { 'x-goog-api-key': userToken } });
  expect(await response.json()).toMatchObject({ error: { code: 404, status: 'NOT_FOUND' } });
});

test('members may be in snake case', async () => {
  const image = { inline_data: { mime_type: 'image/png', data: 'iVBORw0KGgo=' } };
  const response = await post('/v1beta/models/acme/ok:generateContent', {
    system_instruction: { parts: [{ text: 'Be brief.' }] },
    contents: [{ parts: [{ text: 'Hello' }, image] }],
    generation_config: { max_output_tokens: 7 },
  });
  expect(response.status).toBe(200);
  const request = lastRequest();
  expect(request).toMatchObject({ max_tokens: 7, messages: [{ role: 'system' }, { role: 'user' }] });
  expect(JSON.stringify(request.messages[1])).toContain('data:image/png;base64,iVBORw0KGgo=');
});

test('a member in both spellings is refused', async () => {
  const generationConfig = { max_output_tokens: 7, maxOutputTokens: 8 };
  const refusal = await post('/v1beta/models/acme/ok:generateContent', { ...hello, generationConfig });
  expect(refusal.status).toBe(400);
  expect(await refusal.text()).toContain('max_output_tokens');
});

describe('a function', () => {
  test('is called, and its result is sent to the provider', async () => {
    const question = { role: 'user', parts: [{ text: 'What is the weather in Oslo?' }] };
    const firstAnswer = await client().models.generateContent({
      model: 'acme/tools',
      contents: [question],
      config: { tools: [weather] },
    });
    const call = firstAnswer.functionCalls?.[0];
    expect(call?.name).toBe('get_weather');
    await client().models.generateContent({
      model: 'acme/ok',
      contents: [
        question,
        { role: 'model', parts: [{ functionCall: { name: 'get_weather', args: { city: 'Oslo' } } }] },
        {
          role: 'user',
          parts: [{ functionResponse: { name: 'get_weather', response: { output: 'Rain.' } } }],
        },
      ],
      config: { tools: [weather] },
    });
    const { messages } = lastRequest();
    expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool']);
    expect(messages[2]).toMatchObject({ tool_call_id: 'call_1', content: '{"output":"Rain."}' });
  });

  test('reaches the provider with its schema as JSON Schema', async () => {
    await client().models.generateContent({
      model: 'acme/ok',
      contents: 'Hello',
      config: { tools: [weather] },
    });
    expect(lastRequest().tools[0]?.function.parameters).toMatchObject({
      type: 'object',
      properties: { city: { type: ['string', 'null'] }, days: { type: 'integer' } },
      required: ['city'],
    });
  });

  // google-genai for Python declares functions in snake case, with the schema of their result.
  test('is declared in snake case too', async () => {
    const parameters = {
      type: 'OBJECT',
      properties: { first_day: { any_of: [{ type: 'STRING', min_length: 1 }], nullable: true } },
      property_ordering: ['first_day'],
    };
    const response = await post('/v1beta/models/acme/ok:generateContent', {
      ...hello,
      tools: [
        {
          function_declarations: [
            { name: 'open_schema', parameters_json_schema: { type: 'object', response_json_schema: 1 } },
            { name: 'google_schema', parameters, response_json_schema: { type: 'string' } },
          ],
        },
      ],
    });
    expect(response.status).toBe(200);
    expect(response.headers.get('x-townhall-warnings')).toContain('tools.functionDeclarations.response');
    expect(lastRequest().tools.map((tool) => tool.function.parameters)).toEqual([
      { type: 'object', response_json_schema: 1 },
      {
        type: 'object',
        properties: { first_day: { anyOf: [{ type: 'string', minLength: 1 }, { type: 'null' }] } },
      },
    ]);
  });

  test('may get null for one of several values', async () => {
    const size = { type: Type.STRING, enum: ['s', 'm'], nullable: true };
    await post('/v1beta/models/acme/ok:generateContent', {
      ...hello,
      tools: [
        {
          functionDeclarations: [{ name: 'order', parameters: { type: Type.OBJECT, properties: { size } } }],
        },
      ],
    });
    expect(lastRequest().tools[0]?.function.parameters).toMatchObject({
      properties: { size: { anyOf: [{ type: 'string', enum: ['s', 'm'] }, { type: 'null' }] } },
    });
  });

  test('is not called in the mode NONE, even if it is the only allowed one', async () => {
    await post('/v1beta/models/acme/ok:generateContent', {
      ...hello,
      tools: [weather],
      toolConfig: { functionCallingConfig: { mode: 'NONE', allowedFunctionNames: ['get_weather'] } },
    });
    expect(lastRequest()).toMatchObject({ tool_choice: 'none' });
  });

  test('is not forced in the mode VALIDATED, which also allows text', async () => {
    const toolConfig = {
      functionCallingConfig: { mode: 'VALIDATED', allowedFunctionNames: ['get_weather'] },
    };
    const request = { ...hello, tools: [weather], toolConfig };
    expect((await post('/v1beta/models/acme/ok:generateContent', request)).status).toBe(200);
    expect(lastRequest()).toMatchObject({ tool_choice: 'auto' });
    const tools = [weather, { functionDeclarations: [{ name: 'get_time' }] }];
    const refusal = await post('/v1beta/models/acme/ok:generateContent', { ...request, tools });
    expect(refusal.status).toBe(422);
    expect(await refusal.text()).toContain('allowedFunctionNames');
  });

  test('result without a call is refused', async () => {
    const contents = [{ role: 'user', parts: [{ functionResponse: { name: 'none', response: {} } }] }];
    const response = await post('/v1beta/models/acme/ok:generateContent', { contents });
    expect([response.status, await response.json()]).toMatchObject([
      400,
      { error: { status: 'INVALID_ARGUMENT', message: expect.stringContaining('answers no call') } },
    ]);
  });
});

describe('a setting', () => {
  test('reaches the provider', async () => {
    await client().models.generateContent({
      model: 'acme/ok',
      contents: 'Hello',
      config: { systemInstruction: 'Be brief.', maxOutputTokens: 50, temperature: 0.5, stopSequences: ['x'] },
    });
    expect(lastRequest()).toMatchObject({
      messages: [{ role: 'system', content: 'Be brief.' }, { role: 'user' }],
      max_tokens: 50,
      temperature: 0.5,
      stop: ['x'],
    });
  });

  test('that no model supports is named in the warnings', async () => {
    const response = await post('/v1beta/models/acme/ok:generateContent', {
      ...hello,
      safetySettings: [{ category: 'HARM_CATEGORY_HARASSMENT', threshold: 'BLOCK_NONE' }],
      generationConfig: { thinkingConfig: { thinkingBudget: 100 } },
    });
    expect(response.headers.get('x-townhall-warnings')?.split('; ')).toEqual([
      'safetySettings: is not sent to this model',
      'generationConfig.thinkingConfig.thinkingBudget: is not sent to this model',
    ]);
  });

  test.each(['generateContent', 'streamGenerateContent?alt=sse'])(
    'that the called model does not support is named in the warnings of %s',
    async (method) => {
      const response = await post(`/v1beta/models/acme/ok:${method}`, {
        ...hello,
        generationConfig: { topK: 5 },
      });
      await response.text();
      expect([response.status, response.headers.get('x-townhall-warnings')]).toEqual([
        200,
        expect.stringContaining('topK'),
      ]);
    },
  );

  test.each([
    ['several candidates', { generationConfig: { candidateCount: 2 } }, 422, 'candidateCount'],
    ["Google's search", { tools: [{ googleSearch: {} }] }, 422, 'googleSearch'],
    ['cached content', { cachedContent: 'cachedContents/1' }, 422, 'cachedContent'],
    [
      'an effort that the model lacks',
      { generationConfig: { thinkingConfig: { thinkingLevel: 'HIGH' } } },
      422,
      'generationConfig.thinkingConfig.thinkingLevel',
    ],
    ['an unknown member', { generationConfig: { unknownMember: 1 } }, 400, 'unknownMember'],
  ])('is refused by name: %s', async (_name, members, status, member) => {
    const response = await post('/v1beta/models/acme/ok:generateContent', { ...hello, ...members });
    expect(response.status).toBe(status);
    expect(await response.text()).toContain(member);
    expect(provider.calls).toHaveLength(0);
  });
});

describe('an error', () => {
  test("names the member of Google's format", async () => {
    const image = { inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=' } };
    const response = await post('/v1beta/models/local/echo:generateContent', {
      contents: [{ role: 'user', parts: [image] }],
    });
    expect([response.status, await response.json()]).toMatchObject([
      422,
      { error: { details: [{ reason: 'unsupported_by_model', metadata: { param: 'contents' } }] } },
    ]);
  });

  test("names a function by its position in Google's format", async () => {
    const open = { name: 'open', parameters: { type: 'OBJECT', description: 'x'.repeat(1_100_000) } };
    const close = { name: 'close' };
    const response = await post('/v1beta/models/acme/ok:generateContent', {
      ...hello,
      tools: [{ functionDeclarations: [close] }, { functionDeclarations: [{ name: 'wait' }, open] }],
    });
    // The limit of all definitions is 1 MiB.
    const param = 'tools[1].functionDeclarations[1]';
    expect([response.status, await response.json()]).toMatchObject([
      413,
      { error: { message: expect.stringContaining(param), details: [{ metadata: { param } }] } },
    ]);
  });

  test("names the schema of Google's format that the model requires", async () => {
    const response = await post('/v1beta/models/anthropic/ok:generateContent', {
      ...hello,
      generationConfig: { responseMimeType: 'application/json' },
    });
    const param = 'generationConfig.responseSchema';
    expect([response.status, await response.json()]).toMatchObject([
      422,
      { error: { message: expect.stringContaining(param), details: [{ metadata: { param } }] } },
    ]);
  });

  test('is mapped by the client', async () => {
    const failure = await client('nonsense')
      .models.generateContent({ model: 'acme/ok', contents: 'Hello' })
      .catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ApiError);
    expect((failure as ApiError).status).toBe(401);
  });

  test.each([
    ['an unknown model', '/v1beta/models/acme/none:generateContent', 404, 'NOT_FOUND', 'model_not_found'],
    ['an invalid model', '/v1/models/%0d%0a:generateContent', 400, 'INVALID_ARGUMENT', 'invalid_path'],
    ['an unknown method', '/v1beta/models/acme/ok:none', 404, 'NOT_FOUND', 'route_not_found'],
    [
      'a failing provider',
      '/v1beta/models/acme/failing:generateContent',
      502,
      'UNAVAILABLE',
      'upstream_failed',
    ],
  ])("has Google's error format for %s", async (_name, path, status, statusName, reason) => {
    const response = await post(path, hello);
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({
      error: { code: status, status: statusName, details: [{ reason, domain: 'townhall' }] },
    });
  });

  test('ends a broken stream', async () => {
    const response = await post('/v1beta/models/acme/cut:streamGenerateContent?alt=sse', hello);
    const events = await eventsOf(response);
    expect(JSON.parse(events.at(-1) ?? '')).toMatchObject({ error: { code: 502, status: 'UNAVAILABLE' } });
  });

  test('is 401 for a key in the URL', async () => {
    const response = await post(`/v1beta/models/acme/ok:generateContent?key=${userToken}`, hello, {});
    expect(response.status).toBe(401);
    expect(world.logged.join('\n')).not.toContain(userToken);
  });
});

describe('a paid call', () => {
  // The provider reports 10 tokens of input and 4 of output, or 5 in a stream, at 1 credit each.
  test.each([
    ['generateContent', 14n],
    ['streamGenerateContent?alt=sse', 15n],
  ])('of %s is charged by its usage', async (method, credits) => {
    const balanceBefore = world.ledger.balance;
    await (await post(`/v1beta/models/acme/ok:${method}`, hello)).text();
    expect(balanceBefore - world.ledger.balance).toBe(credits);
  });

  test('of a failing provider is free', async () => {
    const balanceBefore = world.ledger.balance;
    await post('/v1beta/models/acme/failing:generateContent', hello);
    expect(world.ledger.balance).toBe(balanceBefore);
  });
});

const end = { finishReason: { unified: 'stop' as const, raw: undefined }, usage: unknownUsage() };
const finish = { type: 'finish' as const, ...end };
const options = { modelId: 'google/ok', responseId: 'msg_1', includeThoughts: true };

/** The parts of a whole answer with this content. */
function serializeParts(...content: Answer['content']) {
  const { candidates } = serializeAnswer({ content, warnings: [], ...end }, options);
  return candidates?.[0]?.content?.parts;
}

async function* serializeStream(...content: StreamPart[]) {
  async function* parts(): AsyncGenerator<StreamPart> {
    yield* content;
  }
  yield* serializeChunks(parts(), options);
}

describe('the chunks of a stream', () => {
  async function read(...content: StreamPart[]) {
    const chunks: unknown[] = [];
    let failure: unknown;
    try {
      for await (const { candidates } of serializeStream(...content))
        chunks.push([candidates?.[0]?.content?.parts, candidates?.[0]?.finishReason]);
    } catch (error) {
      failure = error;
    }
    return { chunks, failure };
  }
  const text = (delta: string) => ({ type: 'text-delta' as const, id: '0', delta });
  const reasoning = (delta: string) => ({ type: 'reasoning-delta' as const, id: '1', delta });

  // Google's client for Python leaves a turn out of the chat if one of its chunks has no content.
  test('all have content, also the one with the finish reason', async () => {
    const { chunks } = await read(reasoning('Hm'), text('Hel'), text('lo'), text('\u{1f30d}'), finish);
    expect(chunks).toEqual([
      [[{ text: 'H', thought: true }], undefined],
      [[{ text: 'm', thought: true }, { text: 'He' }], undefined],
      [[{ text: 'll' }], undefined],
      [[{ text: 'o' }], undefined],
      [[{ text: '\u{1f30d}' }], 'STOP'],
    ]);
  });

  test('keep a function call and its signature whole', async () => {
    const call = { type: 'tool-call' as const, toolCallId: 'a', toolName: 'look', input: '{}' };
    const providerMetadata = { google: { thoughtSignature: 'sig' } };
    const functionCall = { id: 'a', name: 'look', args: {} };
    const { chunks } = await read({ ...text('Hi'), providerMetadata }, text('!'), call, finish);
    expect(chunks).toEqual([
      [[{ text: 'Hi', thoughtSignature: 'sig' }], undefined],
      [[{ text: '!' }], undefined],
      [[{ functionCall }], 'STOP'],
    ]);
  });

  test('have all text before an error', async () => {
    const { chunks, failure } = await read(text('Hello'), { type: 'error', error: new Error('cut') });
    expect(chunks).toEqual([
      [[{ text: 'Hell' }], undefined],
      [[{ text: 'o' }], undefined],
    ]);
    expect(failure).toEqual(new Error('cut'));
  });

  test('do not begin with the end of a text that an error follows', async () => {
    const error = new Error('cut');
    expect(await read(text('H'), { type: 'error', error })).toEqual({ chunks: [], failure: error });
  });

  test('have no content if the answer has none', async () => {
    expect((await read(text(''), finish)).chunks).toEqual([[[], 'STOP']]);
  });
});

test('a whole answer has no part without content', () => {
  expect(serializeParts({ type: 'text', text: '' }, { type: 'text', text: 'Hello' })).toEqual([
    { text: 'Hello' },
  ]);
});

describe('a streamed signature', () => {
  test.each([
    ['text-delta', { text: '', thoughtSignature: 'sig' }],
    ['reasoning-delta', { text: '', thought: true, thoughtSignature: 'sig' }],
  ] as const)('is kept on an empty %s', async (type, expected) => {
    const delta = { type, id: '0', delta: '' };
    const providerMetadata = { google: { thoughtSignature: 'sig' } };
    const sentParts = [];
    for await (const { candidates } of serializeStream(delta, { ...delta, providerMetadata }, finish))
      sentParts.push(...(candidates?.[0]?.content?.parts ?? []));
    expect(sentParts).toEqual([expected]);
  });
});

describe('the input of a function call', () => {
  test.each([
    ['', {}],
    ['{"city":"Oslo"}', { city: 'Oslo' }],
    ['["Oslo"]', { input: ['Oslo'] }],
    ['Oslo', { input: 'Oslo' }],
  ])('is an object, whatever the model writes: %j', (input, args) => {
    const parts = serializeParts({ type: 'tool-call', toolCallId: 'a', toolName: 'look', input });
    expect(parts?.[0]?.functionCall?.args).toEqual(args);
  });
});

describe('a file that the model generated', () => {
  const file = (data: Extract<StreamPart, { type: 'file' }>['data']) => ({
    type: 'file' as const,
    mediaType: 'image/png',
    data,
  });
  const cases = [
    ['base64', file({ type: 'data', data: 'AQI=' }), { inlineData: { mimeType: 'image/png', data: 'AQI=' } }],
    [
      'bytes',
      file({ type: 'data', data: new Uint8Array([1, 2]) }),
      { inlineData: { mimeType: 'image/png', data: 'AQI=' } },
    ],
    [
      'a URL',
      file({ type: 'url', url: new URL('https://files.example/a.png') }),
      { fileData: { mimeType: 'image/png', fileUri: 'https://files.example/a.png' } },
    ],
  ] as const;

  test.each(cases)('is a part of a whole answer: %s', (_name, content, part) => {
    expect(serializeParts(content)).toEqual([part]);
  });

  test.each(cases)('is a part of a stream: %s', async (_name, content, part) => {
    const { value: firstChunk } = await serializeStream(content, finish).next();
    expect(firstChunk).toMatchObject({ candidates: [{ content: { parts: [part] } }] });
  });
});
