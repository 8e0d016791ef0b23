// The charge of a call for each way in which it can end, as docs/guides/what-a-call-costs.md lists
// them. An input token costs one credit and an output token two, so a charge follows directly from
// the provider's counts.
import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { errorOf, partsOf, startAi, userToken, adminToken, testResilience, type World } from './world.ts';

const messages = [{ role: 'user', content: 'hi' }];
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
const rates = { input: 1_000_000, output: 2_000_000 };

// Twenty characters of three bytes, ten of four, ten of one and five of two: 120 bytes.
const escapedCharacters = [
  '\\u4e16'.repeat(20),
  '\\ud83c\\udf0d'.repeat(10),
  '\\n\\u0041'.repeat(5),
  '\\u00e9'.repeat(5),
].join('');
const escapedStream = [
  `{"choices":[{"index":0,"delta":{"content":"${escapedCharacters}"},"finish_reason":"stop"}]}`,
  '[DONE]',
]
  .map((data) => `data: ${data}\n\n`)
  .join('');

// About twice the bound of the request, which is still plausible.
const answerAboveBound = JSON.stringify({
  id: 'x',
  object: 'chat.completion',
  created: 1,
  model: 'x',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hello.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 100, completion_tokens: 4, total_tokens: 104 },
});

/** The scripts of the models `acme/…`, and the members in which a model differs. */
const acmeModels: Record<string, [script: string, members?: object]> = {
  ok: ['ok', { modalities: ['text', 'stream', 'openai', 'embedding'] }],
  cached: ['usage-cached', { rates: { ...rates, cached_input: 100_000, reasoning: 3_000_000 } }],
  slow: ['ok?chunks=500&gap=10'],
  never: ['never-headers'],
  'usage-then-silence': ['usage-then-silence'],
  cut: ['reset?chunks=3'],
  'cut-after-usage': ['usage-then-cut'],
  none: ['usage-none'],
  zero: ['usage-zero'],
  negative: ['usage-negative'],
  nonsense: ['usage-nonsense'],
  absurd: ['usage-absurd'],
  tenfold: ['usage-tenfold'],
  letters: ['letters?count=256'],
  escaped: [`verbatim?${new URLSearchParams({ sse: escapedStream })}`],
  'above-bound': [`verbatim?${new URLSearchParams({ json: answerAboveBound })}`],
  flood: ['letters?count=20000'],
  late: ['usage-late?ms=1200&in=1000'],
  later: ['usage-late?ms=600000&in=30000'],
  'slow-late': ['usage-late?chunks=10&gap=30&ms=10&in=30000'],
  flaky: ['flaky?fails=2&code=503'],
  limited: ['flaky?fails=1&code=429&retry_after=0'],
  'falls-back-to-dear': ['status?code=500', { fallbacks: ['acme/dear'] }],
  dear: ['ok', { rates: { input: 10_000_000, output: 20_000_000 } }],
  'free-to-dear': ['status?code=500', { rates: null, fallbacks: ['acme/dear'] }],
  broken: ['status?code=500'],
  refusing: ['status?code=400'],
  incomplete: ['incomplete'],
  free: ['ok', { rates: null }],
};
const claudeModels = { ok: 'ok', cut: 'cut' };

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const limits = { max_output_tokens: 1_000 };
  const acme = Object.entries(acmeModels).map(([name, [script, members]]) => ({
    id: `acme/${name}`,
    provider: 'acme',
    upstream_model: script,
    rates,
    ...limits,
    ...members,
  }));
  const claude = Object.entries(claudeModels).map(([name, script]) => ({
    id: `claude/${name}`,
    provider: 'claude',
    upstream_model: script,
    rates: { ...rates, cached_input: 100_000, cache_write: 1_250_000 },
    ...limits,
  }));
  const overrides = {
    provider: { output_limit_member: 'max_tokens', formats: ['chat', 'embeddings', 'responses', 'rerank'] },
    providers: [
      { id: 'claude', kind: 'anthropic', base_url: provider.url, output_limit_member: 'max_tokens' },
    ],
    models: [...acme, ...claude],
  };
  world = await startAi({
    models: provider.modelsFile({}, overrides),
    env: { ACME_API_KEY: 'x' },
    timeouts: { idleMs: 60_000 },
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

const chat = (model: string, members: object = {}, options: Parameters<World['post']>[2] = {}) =>
  world.post('/v1/ai/chat/completions', { model, messages, ...members }, options);
const stream = (model: string, members: object = {}) =>
  world.post('/v1/ai/stream', { model, prompt, ...members });
const text = (model: string, members: object = {}) =>
  world.post('/v1/ai/text', { model, prompt: 'hi', ...members });
const message = (model: string, members: object = {}) =>
  world.post('/v1/ai/messages', { model, max_tokens: 50, messages, ...members });
const response = (model: string, members: object = {}) =>
  world.post('/v1/ai/responses', { model, input: 'hi', ...members });
const countAlarms = () => world.logged.filter((line) => line.includes('unbelievable_usage')).length;

/** Reads the answer to its end and returns its one charge. */
async function chargeOf(response: Promise<Response> | Response) {
  await (await response).text();
  const charge = await world.ledger.until(1);
  expect(world.ledger.charges).toHaveLength(1);
  expect(world.ledger.held()).toBe(0n);
  return charge;
}

/**
 * Calls and disconnects once the condition is true for the answer so far; resolves when the call is
 * settled.
 */
async function callAndDisconnect(
  path: string,
  body: object,
  isTime: (receivedText: string) => boolean = () => true,
) {
  const outgoing = request(`${world.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${userToken}` },
  });
  outgoing.on('error', () => {});
  let receivedText = '';
  outgoing.on('response', (response) => {
    response.on('error', () => {}).on('data', (piece) => (receivedText += String(piece)));
  });
  outgoing.end(JSON.stringify(body));
  await provider.until((calls) => calls.length === 1);
  await expect.poll(() => isTime(receivedText), { interval: 5 }).toBe(true);
  outgoing.destroy();
  return world.ledger.until(1);
}

describe('the charge of a finished call', () => {
  // The scripted provider reports 10 input tokens and 4 output tokens, but 5 in a stream of chat completions. For
  // embeddings it reports 2 input tokens.
  test.each<[string, () => Promise<Response>, bigint]>([
    ['chat completions, streamed', () => chat('acme/ok', { stream: true }), 20n],
    ['chat completions, whole', () => chat('acme/ok'), 18n],
    ['stream', () => stream('acme/ok'), 20n],
    ['text', () => text('acme/ok'), 18n],
    ['responses, streamed', () => response('acme/ok', { stream: true }), 18n],
    ['responses, whole', () => response('acme/ok'), 18n],
    ['embeddings', () => world.post('/v1/ai/embeddings', { model: 'acme/ok', input: 'hi' }), 2n],
    // 10 uncached, 3 cached at a tenth, 2 written at five quarters, 4 out: 20.8, rounded up.
    ['messages, streamed', () => message('claude/ok', { stream: true }), 21n],
    ['messages, whole', () => message('claude/ok'), 21n],
    ['chat completions, translated', () => chat('claude/ok', { stream: true }), 21n],
    ['messages, translated', () => message('acme/ok', { stream: true }), 20n],
    ['messages, translated and whole', () => message('acme/ok'), 18n],
    ['responses, translated', () => response('claude/ok', { stream: true }), 21n],
    ['responses, translated and whole', () => response('claude/ok'), 21n],
    // 40 uncached, 60 cached at a tenth, 10 out, 20 of reasoning.
    ['kinds of tokens with rates of their own', () => chat('acme/cached', { stream: true }), 126n],
  ])('is the reported usage at the rates of the model: %s', async (_name, call, price) => {
    const { charged: credits, facts, held: holdAmount, overrun } = await chargeOf(call());
    expect(credits).toBe(price);
    expect(facts).toMatchObject({ outcome: 'completed', estimated: false });
    expect(facts.ttftMs).not.toBeNull();
    expect(holdAmount).toBeGreaterThanOrEqual(price);
    expect(overrun).toBe(0n);
  });

  test.each<[string, () => Promise<Response>, RegExp]>([
    ['chat completions', () => chat('acme/ok', { stream: true }), /\[DONE\]/],
    ['stream', () => stream('acme/ok'), /"type":"finish"/],
    ['chat completions, translated', () => chat('claude/ok', { stream: true }), /\[DONE\]/],
    ['messages', () => message('claude/ok', { stream: true }), /message_stop/],
    ['messages, translated', () => message('acme/ok', { stream: true }), /message_stop/],
    ['responses, translated', () => response('claude/ok', { stream: true }), /response\.completed/],
  ])('is settled before the caller gets the last event: %s', async (_name, call, lastEvent) => {
    const { body } = await call();
    let receivedText = '';
    let chargesAtLastEvent: number | undefined;
    for await (const piece of body?.pipeThrough(new TextDecoderStream()) ?? []) {
      receivedText += piece;
      if (lastEvent.test(receivedText)) chargesAtLastEvent ??= world.ledger.charges.length;
    }
    expect(chargesAtLastEvent).toBe(1);
  });

  test('is in the metadata of text', async () => {
    expect(await (await text('acme/ok')).json()).toMatchObject({ metadata: { credits: 18 } });
  });

  test('is in a header of chat completions without a stream', async () => {
    expect((await chat('acme/ok')).headers.get('x-townhall-credits')).toBe('18');
  });

  test('is in the last part of stream', async () => {
    const { parts } = await partsOf(await stream('acme/ok'));
    expect(parts.at(-1)).toMatchObject({ type: 'finish', providerMetadata: { townhall: { credits: 20 } } });
  });
});

describe('the charge when the client disconnects', () => {
  test("before the first byte is the input by the gateway's count", async () => {
    const { charged: credits, facts } = await callAndDisconnect('/v1/ai/chat/completions', {
      model: 'acme/never',
      messages,
      stream: true,
    });
    expect(facts).toMatchObject({ outcome: 'client_closed', estimated: true, tokens: { output: 0 } });
    expect(credits).toBe(BigInt(facts.tokens.input));
    expect(facts.tokens.input).toBeGreaterThan(0);
    expect(facts.tokens.input).toBeLessThan(20);
  });

  test.each<[string, string, object]>([
    ['chat completions', '/v1/ai/chat/completions', { model: 'acme/slow', messages, stream: true }],
    ['stream', '/v1/ai/stream', { model: 'acme/slow', prompt }],
    [
      'messages, translated',
      '/v1/ai/messages',
      { model: 'acme/slow', max_tokens: 1_000, messages, stream: true },
    ],
  ])("midway is the input and the output so far by the gateway's count: %s", async (_name, path, body) => {
    const { charged: credits, facts } = await callAndDisconnect(
      path,
      body,
      () => (provider.calls[0]?.tokens ?? 0) >= 20,
    );
    expect(facts).toMatchObject({ outcome: 'client_closed', estimated: true });
    await provider.until((calls) => calls[0]?.abortedAt !== undefined);
    // A piece has five to seven bytes, and four bytes count as a token. 12 of the 20 pieces are 15 tokens; the
    // gateway may not have read the last ones.
    const producedTokens = provider.lastCall().tokens;
    expect(facts.tokens.output).toBeGreaterThanOrEqual(15);
    expect(facts.tokens.output).toBeLessThanOrEqual((producedTokens * 7) / 4);
    expect(credits).toBe(BigInt(facts.tokens.input + 2 * facts.tokens.output));
  });

  test('after the provider reports its usage is that usage', async () => {
    const { charged: credits, facts } = await callAndDisconnect(
      '/v1/ai/chat/completions',
      {
        model: 'acme/usage-then-silence',
        messages,
        stream: true,
        stream_options: { include_usage: true },
      },
      (receivedText) => receivedText.includes('"prompt_tokens":10'),
    );
    expect(facts).toMatchObject({
      outcome: 'client_closed',
      estimated: false,
      tokens: { input: 10, output: 5 },
    });
    expect(credits).toBe(20n);
  });

  const pictures = Array.from({ length: 20 }, () => 'iVBORw0KGgo=');
  const imageMessages = [
    {
      role: 'user',
      content: pictures.map((data) => ({
        type: 'image_url',
        image_url: { url: `data:image/png;base64,${data}` },
      })),
    },
  ];
  const promptMessages = [
    { role: 'user', content: pictures.map((data) => ({ type: 'file', mediaType: 'image/png', data })) },
  ];

  test.each<[string, string, object]>([
    ['chat completions', '/v1/ai/chat/completions', { model: 'acme/late', messages, stream: true }],
    ['stream', '/v1/ai/stream', { model: 'acme/late', prompt }],
  ])('between a complete answer and its usage is that usage: %s', async (_name, path, body) => {
    let lastPieceMs = Number.POSITIVE_INFINITY;
    const { facts, charged: credits } = await callAndDisconnect(path, body, () => {
      if ((provider.calls[0]?.tokens ?? 0) >= 5) lastPieceMs = Math.min(lastPieceMs, performance.now());
      // The finish reason follows the last piece at once, and the usage after 1.2 seconds.
      return performance.now() - lastPieceMs > 200;
    });
    expect(facts).toMatchObject({
      outcome: 'client_closed',
      estimated: false,
      tokens: { input: 1_000, output: 5 },
    });
    expect(credits).toBe(1_010n);
  });

  test.each<[string, string, object]>([
    [
      'chat completions',
      '/v1/ai/chat/completions',
      { model: 'acme/slow-late', messages: imageMessages, stream: true },
    ],
    ['stream', '/v1/ai/stream', { model: 'acme/slow-late', prompt: promptMessages }],
  ])('midway with pictures is the usage that arrives within two seconds: %s', async (_name, path, body) => {
    const { facts, charged: credits } = await callAndDisconnect(
      path,
      body,
      () => world.ledger.checkpoints.length > 0,
    );
    expect(facts).toMatchObject({
      outcome: 'client_closed',
      estimated: false,
      tokens: { input: 30_000, output: 10 },
    });
    expect(credits).toBe(30_020n);
  });

  test.each<[string, string, object]>([
    [
      'chat completions',
      '/v1/ai/chat/completions',
      { model: 'acme/never', messages: imageMessages, stream: true },
    ],
    ['chat completions, whole', '/v1/ai/chat/completions', { model: 'acme/never', messages: imageMessages }],
    ['stream', '/v1/ai/stream', { model: 'acme/later', prompt: promptMessages }],
  ])("with pictures and no usage in time is the gateway's count: %s", async (_name, path, body) => {
    const { facts } = await callAndDisconnect(path, body);
    expect(facts).toMatchObject({ outcome: 'client_closed', estimated: true });
    // 20 pictures at an estimated 2,048 tokens each.
    expect(facts.tokens.input).toBeGreaterThan(20 * 2_048);
    expect(facts.tokens.input).toBeLessThan(25 * 2_048);
    await provider.until((calls) => calls[0]?.abortedAt !== undefined);
  });
});

describe('the charge when the upstream fails midway', () => {
  test.each<[string, () => Promise<Response>]>([
    ['chat completions', () => chat('acme/cut', { stream: true })],
    ['stream', () => stream('acme/cut')],
  ])('is the input and the output so far without usage: %s', async (_name, call) => {
    const { charged: credits, facts } = await chargeOf(call());
    expect(facts).toMatchObject({ outcome: 'upstream_failed', estimated: true, tokens: { output: 3 } });
    expect(credits).toBe(BigInt(facts.tokens.input + 6));
  });

  test('is the reported usage', async () => {
    const { charged: credits, facts } = await chargeOf(chat('acme/cut-after-usage', { stream: true }));
    expect(facts).toMatchObject({
      outcome: 'upstream_failed',
      estimated: false,
      tokens: { input: 10, output: 5 },
    });
    expect(credits).toBe(20n);
  });

  test("is the reported input and the gateway's count of the output", async () => {
    const { facts } = await chargeOf(message('claude/cut', { stream: true }));
    expect(facts).toMatchObject({
      outcome: 'upstream_failed',
      estimated: true,
      tokens: { input: 10, cachedInput: 3, cacheWrite: 2 },
    });
    expect(facts.tokens.output).toBeGreaterThan(2);
  });
});

describe('the charge for usage', () => {
  const callsByFormat: [string, (model: string) => Promise<Response>][] = [
    ['chat completions, streamed', (model) => chat(model, { stream: true })],
    ['chat completions, whole', (model) => chat(model)],
    ['stream', (model) => stream(model)],
    ['text', (model) => text(model)],
  ];

  describe.each(callsByFormat)('of %s', (format, call) => {
    test("that is missing is the gateway's count", async () => {
      const { charged: credits, facts } = await chargeOf(call('acme/none'));
      expect(facts).toMatchObject({ outcome: 'completed', estimated: true });
      expect(facts.tokens.input).toBeGreaterThan(0);
      expect(facts.tokens.output).toBeGreaterThanOrEqual(4);
      expect(credits).toBe(BigInt(facts.tokens.input + 2 * facts.tokens.output));
    });

    test('of zero is zero', async () => {
      const { charged: credits, facts } = await chargeOf(call('acme/zero'));
      expect(credits).toBe(0n);
      expect(facts).toMatchObject({
        outcome: 'completed',
        estimated: false,
        tokens: { input: 0, output: 0 },
      });
    });

    // In a translated answer, a string instead of a number makes the answer invalid, which is a failure of
    // the provider.
    test.each(['acme/negative', ...(format.startsWith('chat') ? ['acme/nonsense'] : [])])(
      "that is invalid is the gateway's count and an alarm: %s",
      async (model) => {
        const alarmsBefore = countAlarms();
        const { charged: credits, facts, held: holdAmount, overrun } = await chargeOf(call(model));
        expect(facts).toMatchObject({ outcome: 'completed', estimated: true });
        expect(credits).toBeGreaterThan(0n);
        expect(credits).toBeLessThanOrEqual(holdAmount ?? 0n);
        expect(overrun).toBe(0n);
        expect(countAlarms()).toBe(alarmsBefore + 1);
      },
    );
  });

  test.each(callsByFormat)(
    'far above the possible usage is the hold and an alarm: %s',
    async (_name, call) => {
      const alarmsBefore = countAlarms();
      const { charged: credits, facts, held: holdAmount, overrun } = await chargeOf(call('acme/absurd'));
      expect([credits, overrun]).toEqual([holdAmount, 0n]);
      expect(credits).toBeGreaterThan(2_000n);
      expect(facts).toMatchObject({ outcome: 'completed', estimated: true, tokens: { output: 1_000 } });
      expect(countAlarms()).toBe(alarmsBefore + 1);
    },
  );

  test('of ten times the output limit is the hold', async () => {
    const { charged: credits, held: holdAmount } = await chargeOf(chat('acme/tenfold', { max_tokens: 100 }));
    expect(credits).toBe(holdAmount);
  });

  test('above the hold is at most the available credits', async () => {
    world.ledger.reset(80n);
    const {
      charged: credits,
      held: holdAmount,
      overrun,
    } = await chargeOf(chat('acme/above-bound', { max_tokens: 2 }));
    expect(holdAmount).toBeLessThan(80n);
    // 100 tokens of input and 4 of output cost 108 credits.
    expect([credits, overrun]).toEqual([80n, 28n]);
  });

  test('of an incomplete answer is that usage', async () => {
    const { charged: credits, facts } = await chargeOf(response('acme/incomplete', { stream: true }));
    expect(facts).toMatchObject({ outcome: 'completed', estimated: false });
    expect(credits).toBe(18n);
  });
});

describe("the gateway's count", () => {
  const countWarnings = () => world.logged.filter((line) => line.includes('output_beyond_limit')).length;

  test.each<[string, () => Promise<Response>]>([
    ['chat completions', () => chat('acme/letters', { stream: true })],
    ['stream', () => stream('acme/letters')],
  ])('treats the answer as one text: %s', async (_name, call) => {
    // 256 pieces of one letter are 64 tokens of four bytes.
    const { facts } = await chargeOf(call());
    expect(facts).toMatchObject({ estimated: true, tokens: { output: 64 } });
  });

  test.each<[string, () => Promise<Response>]>([
    ['chat completions', () => chat('acme/flood', { stream: true, max_tokens: 64 })],
    ['stream', () => stream('acme/flood', { maxOutputTokens: 64 })],
  ])('never exceeds the output limit: %s', async (_name, call) => {
    const countBefore = countWarnings();
    const { charged: credits, facts, held: holdAmount } = await chargeOf(call());
    expect(facts).toMatchObject({ estimated: true, tokens: { output: 64 } });
    expect(credits).toBeLessThanOrEqual(holdAmount ?? 0n);
    expect(countWarnings()).toBe(countBefore + 1);
  });

  test('counts an escaped character as one', async () => {
    const { facts } = await chargeOf(chat('acme/escaped', { stream: true }));
    expect(facts.tokens.output).toBe(30);
  });
});

describe('a fallback', () => {
  test('to a more expensive model is charged at its price', async () => {
    const {
      charged: credits,
      held: holdAmount,
      facts,
    } = await chargeOf(text('acme/falls-back-to-dear', { max_output_tokens: 10 }));
    expect(facts.model).toBe('acme/dear');
    // 10 input tokens at 10 credits, and 4 output tokens at 20.
    expect(credits).toBe(180n);
    expect(holdAmount).toBeGreaterThanOrEqual(400n);
  });

  test('to a model that the credits do not cover is 402 without a charge', async () => {
    world.ledger.reset(100n);
    const response = await text('acme/falls-back-to-dear', { max_output_tokens: 10 });
    expect(response.status).toBe(402);
    expect(world.ledger.balance).toBe(100n);
    expect(world.ledger.held()).toBe(0n);
    expect(provider.calls.every(({ script }) => script === 'status?code=500')).toBe(true);
  });

  test('of a free model needs credits only when the fallback is called', async () => {
    world.ledger.reset(0n);
    expect((await text('acme/free-to-dear', { max_output_tokens: 10 })).status).toBe(402);
    expect(provider.calls.length).toBeGreaterThan(0);
  });
});

describe('a call of a free model', () => {
  test('needs no credits', async () => {
    world.ledger.reset(0n);
    expect((await text('acme/free')).status).toBe(200);
  });
});

describe('a retried call', () => {
  test.each(['acme/flaky', 'acme/limited'])('is charged once for its answer: %s', async (model) => {
    const { charged: credits } = await chargeOf(text(model));
    expect(credits).toBe(18n);
    expect(provider.calls.length).toBeGreaterThan(1);
  });
});

describe('a call without an answer', () => {
  test('is free when it fails before the first byte', async () => {
    const { charged: credits, facts } = await chargeOf(chat('acme/broken', { stream: true }));
    expect(credits).toBe(0n);
    expect(facts).toMatchObject({ outcome: 'upstream_failed', tokens: { input: 0, output: 0 } });
  });

  test('is free when the provider refuses it', async () => {
    expect((await chargeOf(text('acme/refusing'))).charged).toBe(0n);
  });

  test('costs and holds nothing when it is rejected before sending', async () => {
    expect((await chat('acme/ok', { api_key: 'x' })).status).toBe(400);
    expect((await text('acme/ok', { reasoning_effort: 'high' })).status).toBe(422);
    expect(world.ledger.charges).toEqual([]);
    expect(world.ledger.held()).toBe(0n);
    expect(provider.calls).toEqual([]);
  });
});

describe('the output limit', () => {
  const sentBody = () => JSON.parse(provider.lastCall().body.toString()) as Record<string, unknown>;

  test.each<[string, (members?: object) => Promise<Response>, string]>([
    ['chat completions', (members = {}) => chat('acme/ok', { max_tokens: 500, ...members }), 'max_tokens'],
    ['text', (members = {}) => text('acme/ok', { max_output_tokens: 500, ...members }), 'max_output_tokens'],
    ['stream', (members = {}) => stream('acme/ok', { maxOutputTokens: 500, ...members }), 'maxOutputTokens'],
    ['messages', () => message('claude/ok', { max_tokens: 500 }), 'max_tokens'],
    // 300 credits cover the input, which costs less than 100, and 100 to 150 output tokens at 2 credits.
  ])('of the caller is refused with 402 and not lowered: %s', async (format, call, member) => {
    world.ledger.reset(300n);
    const response = await call();
    expect(response.status).toBe(402);
    expect(response.headers.get('x-should-retry')).toBe('false');
    const error = await errorOf(response);
    expect(error).toMatchObject({
      type: format === 'messages' ? 'billing_error' : 'insufficient_credits',
      code: 'insufficient_credits',
      param: member,
    });
    const details = error['details'] as { path: string; message: string }[];
    const affordableTokens = Number(
      /\d+/.exec(details.find(({ path }) => path === member)?.message ?? '')?.[0],
    );
    expect(affordableTokens).toBeGreaterThan(100);
    expect(affordableTokens).toBeLessThan(150);
    expect(provider.calls).toEqual([]);
    expect(world.ledger.held()).toBe(0n);
  });

  test.each([
    ['chat completions', () => chat('acme/ok')],
    ['text', () => text('acme/ok')],
  ])('is what the credits cover when the caller sets none: %s', async (_name, call) => {
    world.ledger.reset(300n);
    await chargeOf(call());
    const { max_tokens: limit } = sentBody();
    expect(limit).toBeGreaterThan(100);
    expect(limit).toBeLessThan(150);
  });

  test("is the model's longest answer when the credits cover it", async () => {
    await chargeOf(text('acme/ok'));
    expect(sentBody()['max_tokens']).toBe(1_000);
  });

  test('is refused with 402 below 16 tokens', async () => {
    world.ledger.reset(50n);
    expect((await chat('acme/ok')).status).toBe(402);
  });

  test('never lets calls spend more than the balance', async () => {
    world.ledger.reset(500n);
    let answerCount = 0;
    while ((await text('acme/ok')).status === 200) answerCount += 1;
    expect(world.ledger.balance).toBe(500n - 18n * BigInt(answerCount));
    // Too little for the shortest useful answer.
    expect(world.ledger.balance).toBeGreaterThanOrEqual(0n);
    expect(world.ledger.balance).toBeLessThan(60n);
  });
});

describe('a call of an administrator', () => {
  test('is recorded and not charged', async () => {
    const response = await chat('acme/ok', {}, { token: adminToken });
    expect(response.headers.get('x-townhall-credits')).toBe('0');
    const { charged: credits, held: holdAmount, call, facts } = await chargeOf(response);
    expect([credits, holdAmount]).toEqual([0n, null]);
    expect(call).toMatchObject({ userId: null, bureauId: null, action: 'chat/completions' });
    expect(facts).toMatchObject({ tokens: { input: 10, output: 4 }, outcome: 'completed' });
  });
});

describe('a streamed answer', () => {
  test('writes checkpoints of its price to the ledger', async () => {
    await chargeOf(chat('acme/ok', { stream: true }));
    const [firstCheckpoint] = world.ledger.checkpoints;
    expect(firstCheckpoint?.outputTokens).toBeGreaterThan(0);
    expect(firstCheckpoint?.credits).toBeGreaterThan(0n);
  });
});

describe('the reservation of credits', () => {
  test('precedes the request to the provider', async () => {
    const [arrival, grant] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const { reserve } = world.ledger;
    world.ledger.reserve = async (...parameters) => {
      world.ledger.reserve = reserve;
      arrival.resolve();
      await grant.promise;
      return reserve(...parameters);
    };
    const answer = chat('acme/ok');
    await arrival.promise;
    // Time for a request that does not wait for the reservation.
    await sleep(100);
    expect(provider.calls).toEqual([]);
    grant.resolve();
    expect((await answer).status).toBe(200);
  });

  test('ends the call with 402 when there are no credits', async () => {
    world.ledger.reset(0n);
    expect((await chat('acme/ok')).status).toBe(402);
    expect(provider.calls).toEqual([]);
  });
});
