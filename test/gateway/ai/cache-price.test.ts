// Anthropic charges more for cache entries of one hour than for entries of five minutes. Every route holds
// credits and charges accordingly.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { startAi, type World } from './world.ts';

const usage = {
  input_tokens: 10,
  output_tokens: 4,
  cache_read_input_tokens: 100,
  cache_creation_input_tokens: 1_000,
  cache_creation: { ephemeral_5m_input_tokens: 400, ephemeral_1h_input_tokens: 600 },
};
const base = { id: 'msg_1', type: 'message', role: 'assistant', model: 'x', stop_sequence: null };
const frame = (data: { type: string } & Record<string, unknown>) =>
  `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
const streamFrames = [
  frame({
    type: 'message_start',
    message: { ...base, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } },
  }),
  frame({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
  frame({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello' } }),
  frame({ type: 'content_block_stop', index: 0 }),
  // The last event repeats the total without its kinds.
  frame({
    type: 'message_delta',
    delta: { stop_reason: 'end_turn', stop_sequence: null },
    usage: {
      output_tokens: 4,
      input_tokens: 10,
      cache_creation_input_tokens: 1_000,
      cache_read_input_tokens: 100,
    },
  }),
  frame({ type: 'message_stop' }),
].join('');
const wholeAnswer = JSON.stringify({
  ...base,
  content: [{ type: 'text', text: 'Hello' }],
  stop_reason: 'end_turn',
  usage,
});
const script = `verbatim?${new URLSearchParams({ sse: streamFrames, json: wholeAnswer }).toString()}`;

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const rates = { input: 1_000_000, cached_input: 100_000, cache_write: 1_250_000, output: 5_000_000 };
  world = await startAi({
    models: JSON.stringify({
      providers: [
        { id: 'claude', kind: 'anthropic', base_url: provider.url, output_limit_member: 'max_tokens' },
      ],
      models: [
        { id: 'claude/plain', provider: 'claude', upstream_model: script, rates, max_output_tokens: 100 },
        {
          id: 'claude/own-rate',
          provider: 'claude',
          upstream_model: script,
          rates: { ...rates, cache_write_1h: 3_000_000 },
          max_output_tokens: 100,
        },
      ],
    }),
    env: {},
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => world.ledger.reset());

const cachedForAnHour = { cache_control: { type: 'ephemeral', ttl: '1h' } };
const withOptions = (options: object) => [
  { role: 'user', content: [{ type: 'text', text: 'hi', ...options }] },
];
const formats: [string, string, object][] = [
  ['messages, whole', '/v1/ai/messages', { max_tokens: 50, messages: withOptions(cachedForAnHour) }],
  [
    'messages, streamed',
    '/v1/ai/messages',
    { max_tokens: 50, messages: withOptions(cachedForAnHour), stream: true },
  ],
  [
    'a stream',
    '/v1/ai/stream',
    {
      prompt: withOptions({
        providerOptions: { anthropic: { cacheControl: cachedForAnHour.cache_control } },
      }),
    },
  ],
  ['text', '/v1/ai/text', { prompt: 'hi' }],
  ['chat completions', '/v1/ai/chat/completions', { messages: [{ role: 'user', content: 'hi' }] }],
];

// The charge: 10 tokens at 1, 100 at 0.1, 400 at 1.25 and 4 at 5 credits, then 600 for an hour of caching.
describe.each([
  ['twice the input', 'claude/plain', 1_200n],
  ['their own rate', 'claude/own-rate', 1_800n],
] as const)('hour-long cache writes cost %s', (_rate, model, hourCredits) => {
  test.each(formats)('in %s', async (_name, path, body) => {
    const response = await world.post(path, { model, ...body });
    expect(response.status).toBe(200);
    await response.text();
    expect(world.ledger.last()).toMatchObject({
      charged: 10n + 10n + 500n + 20n + hourCredits,
      facts: { estimated: false, tokens: { input: 10, cachedInput: 100, cacheWrite: 1_000, output: 4 } },
    });
  });
});

test.each([
  [
    'messages',
    '/v1/ai/messages',
    (options: object) => ({ max_tokens: 50, messages: withOptions(options) }),
    cachedForAnHour,
  ],
  [
    'messages, as a whole',
    '/v1/ai/messages',
    (options: object) => ({ max_tokens: 50, messages: withOptions({}), ...options }),
    cachedForAnHour,
  ],
  [
    'the picture of a message',
    '/v1/ai/messages',
    (options: object) => ({
      max_tokens: 50,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' }, ...options },
          ],
        },
      ],
    }),
    cachedForAnHour,
  ],
  [
    'a stream',
    '/v1/ai/stream',
    (options: object) => ({ prompt: withOptions(options), maxOutputTokens: 50 }),
    { providerOptions: { anthropic: { cacheControl: cachedForAnHour.cache_control } } },
  ],
  [
    'a stream, as a whole',
    '/v1/ai/stream',
    (options: object) => ({ prompt: withOptions({}), maxOutputTokens: 50, ...options }),
    { providerOptions: { anthropic: { cacheControl: cachedForAnHour.cache_control } } },
  ],
])('hour-long cache writes raise the hold only if requested: %s', async (_name, path, body, options) => {
  const heldFor = async (requestBody: object) => {
    await (await world.post(path, { model: 'claude/plain', ...requestBody })).text();
    return world.ledger.last().held ?? 0n;
  };
  const hourHold = await heldFor(body(options));
  const shortCacheHold = await heldFor(
    JSON.parse(JSON.stringify(body(options)).replace('"1h"', '"5m"')) as object,
  );
  // The hold covers 50 output tokens at 5 credits, and the whole input at the rate of its cache entries:
  // 2 credits for an hour, and 1.25 for five minutes.
  const outputCredits = 50n * 5n;
  const inputTokens = (hourHold - outputCredits) / 2n;
  expect(inputTokens).toBeGreaterThan(0n);
  expect(hourHold).toBe(inputTokens * 2n + outputCredits);
  expect(shortCacheHold).toBe((inputTokens * 5n + 3n) / 4n + outputCredits);
});
