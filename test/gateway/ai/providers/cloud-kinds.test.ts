// Calls to Azure OpenAI, Amazon Bedrock and Google's Vertex AI in every format of the gateway: the requests
// that their servers receive, and the answers and charges of the callers.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  awsKeys,
  cloudEnvironment,
  cloudKinds,
  cloudProviders,
  isSignedFor,
} from '../../../support/cloud-providers.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { clientSecret, startTokenEndpoint, type TokenEndpoint } from '../../../support/token-endpoint.ts';
import { errorOf, partsOf, startAi, testResilience, type World } from '../world.ts';

let provider: ScriptedProvider;
let tokens: TokenEndpoint;
let world: World;
const scripts = [
  'ok',
  'tools',
  'reasoning',
  'redacted',
  'signed',
  'limit',
  'filtered',
  'no-usage',
  'cut',
  'no-done',
  'error',
  'error-first',
  'damaged',
  'anthropic.claude:0',
  'never-headers',
  'amazon.nova-2-lite-v1:0',
];
// Messages that name the operator's account.
const accountErrors = {
  vertex: 'status~code=404&message=acme+has+no+model+x',
  bedrock: 'status~code=404&message=arn:aws:bedrock:eu-central-1:123456789012:profile-x+is+gone',
};
const statuses = [400, 401, 403, 404, 429, 500, 503];
beforeAll(async () => {
  provider = await startProvider();
  tokens = await startTokenEndpoint();
  const rates = {
    input: 1_000_000,
    cached_input: 100_000,
    cache_write: 1_250_000,
    cache_write_1h: 2_000_000,
    output: 2_000_000,
  };
  world = await startAi({
    models: JSON.stringify({
      providers: cloudProviders(provider.url, tokens),
      models: cloudKinds.flatMap((kind) =>
        [...scripts, ...Object.values(accountErrors), ...statuses.map((code) => `status~code=${code}`)].map(
          (script) => ({
            id: `${kind}/${script.replace(/\W+/g, '-')}`,
            provider: kind,
            upstream_model: script,
            rates,
            max_output_tokens: 1_000,
            context_window: 100_000,
            reasoning: {
              efforts: [
                { id: 'low', name: 'Low' },
                { id: 'high', name: 'High' },
              ],
              default_effort: 'low',
            },
          }),
        ),
      ),
    }),
    env: cloudEnvironment(tokens),
    resilience: testResilience,
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
  await tokens.close();
});
beforeEach(() => {
  provider.reset();
  world.ledger.reset();
});

type Json = Record<string, unknown>;
const lastRequest = () => JSON.parse(provider.lastCall().body.toString()) as Json;
const user = { role: 'user', content: 'hi' };
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
const schema = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
};
const chat = (model: string, members: object = {}) =>
  world.post('/v1/ai/chat/completions', { model, messages: [user], ...members });

/** Sends a message, and its answer as the second turn of a longer conversation. */
async function continueMessages(model: string): Promise<void> {
  const send = (messages: object[]) => world.post('/v1/ai/messages', { model, max_tokens: 2_000, messages });
  const { content } = (await (await send([user])).json()) as Json;
  await (await send([user, { role: 'assistant', content }, user])).text();
}

const weather = [{ type: 'function', function: { name: 'get_weather', parameters: schema } }];

describe.each(['bedrock', 'vertex', 'vertex-anthropic'])('embeddings of the kind %s', (kind) => {
  test('are 422 with the name of the kind', async () => {
    const response = await world.post('/v1/ai/embeddings', { model: `${kind}/ok`, input: 'a' });
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    expect([response.status, error]).toMatchObject([422, { code: 'unsupported_by_model', param: 'model' }]);
    expect(error.message).toContain(`(kind ${kind}) does not support the format embeddings`);
  });
});

describe.each(cloudKinds)('the kind %s', (kind) => {
  const formats: [string, (model: string, streams: boolean) => Promise<Response>][] = [
    ['chat completions', (model, stream) => chat(model, { stream })],
    ['responses', (model, stream) => world.post('/v1/ai/responses', { model, input: 'hi', stream })],
    [
      'messages',
      (model, stream) => world.post('/v1/ai/messages', { model, max_tokens: 100, messages: [user], stream }),
    ],
    [
      'Gemini',
      (model, streams) =>
        world.post(
          `/v1beta/models/${encodeURIComponent(model)}:` +
            (streams ? 'streamGenerateContent?alt=sse' : 'generateContent'),
          { contents: [{ role: 'user', parts: [{ text: 'hi' }] }] },
        ),
    ],
    [
      'language model',
      (model, streams) =>
        world.post(
          '/v1/ai/language-model',
          { prompt },
          { headers: { 'ai-language-model-id': model, 'ai-language-model-streaming': String(streams) } },
        ),
    ],
    [
      'text and stream',
      (model, streams) =>
        world.post(streams ? '/v1/ai/stream' : '/v1/ai/text', {
          model,
          ...(streams ? { prompt } : { prompt: 'hi' }),
        }),
    ],
  ];

  test.each(formats)('answers and charges %s', async (_name, call) => {
    const charges: bigint[] = [];
    for (const streams of [false, true]) {
      const response = await call(`${kind}/ok`, streams);
      const text = await response.text();
      expect(response.status, text).toBe(200);
      expect(text).toMatch(/the provider|tok4/);
      const { charged, held, facts } = await world.ledger.until(charges.length + 1);
      expect(facts).toMatchObject({ outcome: 'completed', estimated: false });
      expect(held).toBeGreaterThanOrEqual(charged);
      charges.push(charged);
    }
    expect(charges[0]).toBeGreaterThan(0n);
    // The scripted stream of chat completions has one output token more than the answer without a stream.
    expect(charges[1]).toBe((charges[0] ?? 0n) + (kind === 'azure' ? 2n : 0n));
  });

  test('calls tools', async () => {
    const response = await chat(`${kind}/tools`, { tools: weather });
    expect(await response.json()).toMatchObject({
      choices: [
        { finish_reason: 'tool_calls', message: { tool_calls: [{ function: { name: 'get_weather' } }] } },
      ],
    });
    const { parts } = await partsOf(
      await world.post('/v1/ai/stream', {
        model: `${kind}/tools`,
        prompt,
        tools: [{ type: 'function', name: 'get_weather', inputSchema: schema }],
      }),
    );
    expect(parts.find(({ type }) => type === 'tool-call')).toMatchObject({
      toolName: 'get_weather',
      input: '{"city":"Oslo"}',
    });
  });

  test('receives the images of a prompt', async () => {
    const image =
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
    const content = [{ type: 'image_url', image_url: { url: `data:image/png;base64,${image}` } }];
    const response = await chat(`${kind}/ok`, { messages: [{ role: 'user', content }] });
    expect(response.status, await response.text()).toBe(200);
    expect(provider.lastCall().body.toString()).toContain(image);
  });

  test.each([
    ['status-code-400', 400],
    ['status-code-404', 404],
    ['status-code-401', 502],
    ['status-code-403', 502],
    ['status-code-429', 429],
    ['status-code-500', 502],
    ['status-code-503', 502],
  ])('maps the status of the provider: %s to %i', async (script, status) => {
    for (const stream of [false, true]) {
      const response = await chat(`${kind}/${script}`, { stream });
      expect([response.status, (await errorOf(response)).code]).toEqual([status, expect.any(String)]);
      expect(world.ledger.last().charged).toBe(0n);
    }
  });

  test('fails a stream without its end marker', async () => {
    const text = await (
      await chat(`${kind}/${kind === 'azure' ? 'no-done' : 'cut'}`, { stream: true })
    ).text();
    expect(text).toContain('upstream_truncated');
    expect(text).not.toContain('[DONE]');
    expect(world.ledger.last().facts.outcome).toBe('upstream_failed');
  });

  test('loses its connection when the caller disconnects', async () => {
    const clientAbort = new AbortController();
    const call = world.post(
      '/v1/ai/text',
      { model: `${kind}/never-headers`, prompt: 'hi' },
      { signal: clientAbort.signal },
    );
    await provider.until((calls) => calls.length === 1);
    clientAbort.abort();
    await expect(call).rejects.toThrow('aborted');
    await provider.until(([providerCall]) => providerCall?.abortedAt !== undefined);
  });

  test('keeps secrets out of logs and errors', async () => {
    const answer = await (await chat(`${kind}/status-code-403`)).text();
    const lines = [answer, ...world.logged].join('\n');
    for (const secret of [awsKeys.AWS_SECRET, awsKeys.AWS_TOKEN, clientSecret, 'PRIVATE KEY', 'token-1'])
      expect(lines).not.toContain(secret);
  });
});

test.each([
  ['vertex', '[redacted] has no model x'],
  ['bedrock', '[redacted] is gone'],
] as const)("keeps the operator's account out of errors of %s", async (kind, message) => {
  const response = await chat(`${kind}/${accountErrors[kind].replace(/\W+/g, '-')}`);
  expect([response.status, (await errorOf(response)).message]).toEqual([404, message]);
});

describe('Amazon Bedrock', () => {
  test('gets signed requests', async () => {
    await (await chat('bedrock/anthropic-claude-0')).text();
    const call = provider.lastCall();
    expect(call.path).toBe('/v1/model/anthropic.claude%3A0/converse');
    expect(isSignedFor(call, awsKeys.AWS_SECRET)).toBe(true);
    expect(isSignedFor(call, 'another secret')).toBe(false);
    expect(call.headers['x-amz-security-token']).toBe(awsKeys.AWS_TOKEN);
  });

  test('charges cached tokens at their rates', async () => {
    await (await chat('bedrock/ok')).text();
    // 10 of input, 3 read at a tenth, 2 written for an hour at double, 4 of output at double: 22.3 in total.
    expect(world.ledger.last()).toMatchObject({
      charged: 23n,
      facts: { tokens: { input: 10, cachedInput: 3, cacheWrite: 2, output: 4 } },
    });
  });

  test('gets cache points', async () => {
    const content = [{ type: 'text', text: 'hi', cache_control: { type: 'ephemeral', ttl: '1h' } }];
    await (
      await world.post('/v1/ai/messages', {
        model: 'bedrock/ok',
        max_tokens: 50,
        messages: [{ role: 'user', content }],
      })
    ).text();
    expect(lastRequest()['messages']).toEqual([
      { role: 'user', content: [{ text: 'hi' }, { cachePoint: { type: 'default', ttl: '1h' } }] },
    ]);
  });

  describe.each([
    ['reasoning', { reasoningText: { text: 'Let me think.', signature: 'bedrock-signature' } }],
    ['redacted', { redactedContent: 'c2VjcmV0' }],
  ])('gets its %s content back', (script, reasoningContent) => {
    const model = `bedrock/${script}`;
    const secondTurn = () => (lastRequest()['messages'] as { content: unknown[] }[])[1]?.content[0];

    test('in messages', async () => {
      await continueMessages(model);
      expect(secondTurn()).toEqual({ reasoningContent });
    });

    test('in responses', async () => {
      const include = ['reasoning.encrypted_content'];
      const answer = await world.post('/v1/ai/responses', { model, input: [user], include });
      const { output } = (await answer.json()) as { output: unknown[] };
      await (await world.post('/v1/ai/responses', { model, input: [user, ...output, user] })).text();
      expect(secondTurn()).toEqual({ reasoningContent });
    });
  });

  test('answers with JSON of the schema', async () => {
    const response_format = { type: 'json_schema', json_schema: { name: 'place', schema } };
    for (const stream of [false, true]) {
      const text = await (await chat('bedrock/tools', { response_format, stream })).text();
      expect(text.replaceAll('\\', '')).toContain('{"city":"Oslo"}');
      expect(lastRequest()['toolConfig']).toMatchObject({ toolChoice: { any: {} } });
    }
  });

  test.each([
    ['limit', 'length'],
    ['filtered', 'content_filter'],
  ])('reports its finish reason: %s', async (script, reason) => {
    expect(await (await chat(`bedrock/${script}`)).json()).toMatchObject({
      choices: [{ finish_reason: reason }],
    });
  });

  test.each(['error', 'damaged'])(
    'fails a stream that has an exception or a damaged frame: %s',
    async (script) => {
      const text = await (await chat(`bedrock/${script}`, { stream: true })).text();
      expect(text).toContain('upstream_failed');
      expect(text).not.toContain('[DONE]');
    },
  );

  test('retries an exception before the first word', async () => {
    const response = await chat('bedrock/error-first', { stream: true });
    expect(response.status).toBe(502);
    expect(provider.calls).toHaveLength(3);
  });

  test('is charged by the gateway’s estimate when it reports no usage', async () => {
    await (await chat('bedrock/no-usage', { stream: true })).text();
    expect(world.ledger.last().facts).toMatchObject({ outcome: 'completed', estimated: true });
  });

  test('holds the output limit that reasoning raises', async () => {
    await (await chat('bedrock/anthropic-claude-0', { reasoning_effort: 'high', max_tokens: 500 })).text();
    const { maxTokens } = lastRequest()['inferenceConfig'] as { maxTokens: number };
    expect(maxTokens).toBeGreaterThan(500);
    expect(world.ledger.last().held).toBeGreaterThanOrEqual(BigInt(maxTokens) * 2n);
  });

  test.each([
    ['inferenceConfig', { maxTokens: 1e6 }],
    ['additionalModelRequestFields', { max_tokens: 1e6 }],
    ['serviceTier', 'priority'],
    ['guardrailConfig', {}],
  ])('refuses options that change the limit or the price: %s', async (name, value) => {
    for (const owner of ['amazonBedrock', 'bedrock']) {
      const response = await world.post('/v1/ai/stream', {
        model: 'bedrock/ok',
        prompt,
        providerOptions: { [owner]: { [name]: value } },
      });
      expect([response.status, (await errorOf(response)).param]).toEqual([
        422,
        `providerOptions.${owner}.${name}`,
      ]);
    }
    expect(provider.calls).toEqual([]);
  });

  test.each([
    ['bedrock/ok', { tools: weather, parallel_tool_calls: false }, 'parallel_tool_calls'],
    ['bedrock/amazon-nova-2-lite-v1-0', { reasoning_effort: 'high' }, 'reasoning_effort'],
  ])('refuses a setting that %s lacks', async (model, members, param) => {
    const response = await chat(model, members);
    expect([response.status, (await errorOf(response)).param]).toEqual([422, param]);
  });

  test("limits Anthropic's models to one tool call per turn", async () => {
    const members = { tools: weather, parallel_tool_calls: false };
    expect((await chat('bedrock/anthropic-claude-0', members)).status).toBe(200);
    expect(lastRequest()).toMatchObject({
      additionalModelRequestFields: { tool_choice: { disable_parallel_tool_use: true } },
    });
  });
});

describe('Vertex AI', () => {
  test("is called for Google's models at the path of the project and location", async () => {
    await (await chat('vertex/ok', { stream: true })).text();
    const folder = '/v1/v1beta1/projects/acme/locations/europe-west1/publishers/google/models';
    expect(provider.lastCall().path).toBe(`${folder}/ok:streamGenerateContent?alt=sse`);
    expect(provider.lastCall().headers.authorization).toMatch(/^Bearer token-\d+$/);
  });

  test("is called for Anthropic's models at the path of the project and location", async () => {
    await (await chat('vertex-anthropic/ok')).text();
    expect(provider.lastCall().path).toBe(
      '/v1/v1/projects/acme/locations/europe-west1/publishers/anthropic/models/ok:rawPredict',
    );
    expect(lastRequest()).toMatchObject({
      anthropic_version: 'vertex-2023-10-16',
      max_tokens: expect.any(Number),
    });
    expect(lastRequest()).not.toHaveProperty('model');
  });

  test('gets its signatures back', async () => {
    const contents = [{ role: 'user', parts: [{ text: 'hi' }] }];
    const path = `/v1beta/models/${encodeURIComponent('vertex/signed')}:generateContent`;
    const answer = (await (await world.post(path, { contents })).json()) as {
      candidates: { content: Json }[];
    };
    const turn = answer.candidates[0]?.content;
    const result = {
      role: 'user',
      parts: [{ functionResponse: { name: 'get_weather', response: { output: 'rain' } } }],
    };
    await (await world.post(path, { contents: [...contents, turn, result] })).text();
    expect(JSON.stringify(lastRequest()['contents'])).toContain('"thoughtSignature":"gemini-signature"');
  });

  test("gets Anthropic's signatures back", async () => {
    await continueMessages('vertex-anthropic/reasoning');
    expect(JSON.stringify(lastRequest()['messages'])).toContain('"signature":"sig"');
  });
});

describe('Azure OpenAI', () => {
  test('gets the token of an application', async () => {
    await (await chat('azure/ok')).text();
    expect(provider.lastCall().path).toBe('/v1/chat/completions');
    expect(provider.lastCall().headers).toMatchObject({
      authorization: expect.stringMatching(/^Bearer token-\d+$/),
    });
    expect(lastRequest()['model']).toBe('ok');
  });
});
