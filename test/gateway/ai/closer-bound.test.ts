// The bound from a published tokenizer. It is never below the provider's count; if the tokenizer fails, the
// byte bound applies.
import fc from 'fast-check';
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { inputBound } from '../../../src/gateway/ai/metering/bound.ts';
import { computeCloserBound, countTextTokens } from '../../../src/gateway/ai/metering/closer-bound.ts';
import { encodingOf } from '../../../src/gateway/ai/metering/encodings.ts';
import { type RequestFormat, sizeOf } from '../../../src/gateway/ai/metering/measure.ts';
import { createTokenCounter, type TokenCounter } from '../../../src/gateway/ai/metering/token-counter.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { catalogModel } from './catalog-model.ts';
import { errorOf, startAi, type World } from './world.ts';

const seed = Number(process.env['SEED'] ?? 20261122);
const openAiModel = (name = 'gpt-5-mini') =>
  catalogModel({
    upstream_model: name,
    providerEntry: { ...catalogModel().providerEntry, kind: 'openai' },
  });
const tokensIn = (text: string) => countTokens(text, { disallowedSpecial: new Set() });

const sharedCounter = createTokenCounter({ deadlineMs: 60_000 });
afterAll(() => sharedCounter.close());

describe('encodingOf', () => {
  test.each([
    ['gpt-5', 'o200k_base'],
    ['gpt-5.6-sol', 'o200k_base'],
    ['gpt-4o-2024-11-20', 'o200k_base'],
    ['o3', 'o200k_base'],
    ['gpt-4-turbo', 'cl100k_base'],
    ['text-embedding-3-large', 'cl100k_base'],
    ['gpt-6', undefined],
    ['gpt-5.7', undefined],
    ['gpt-50', undefined],
  ])('returns the encoding of %s', (name, encoding) => {
    expect(encodingOf(openAiModel(name))).toBe(encoding);
  });

  test('returns none for another provider', () => {
    expect(encodingOf(catalogModel({ upstream_model: 'gpt-5' }))).toBeUndefined();
  });
});

const words = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 60 }),
  fc.string({ unit: 'binary', maxLength: 20 }).map((text) => text.toWellFormed()),
  fc.constantFrom(
    'The quick brown fox jumps over the lazy dog.',
    'function add(a, b) {\n\treturn a + b;\n}\n',
    '今日は世界',
    'Съешь же ещё этих мягких французских булок',
    '<|endoftext|><|im_start|>',
    '\n'.repeat(40),
    ' '.repeat(40),
    '"\\"\\\\',
    '1234567890.5',
    'a'.repeat(300),
  ),
);
const turns = fc.array(fc.tuple(fc.constantFrom('system', 'user', 'assistant'), words), {
  minLength: 1,
  maxLength: 5,
});
const schema = fc.dictionary(words, fc.jsonValue({ maxDepth: 3 }), { maxKeys: 4 });

interface Sample {
  turns: [string, string][];
  name: string;
  description: string;
  schema: Record<string, unknown>;
}

const bodies: Partial<Record<RequestFormat, (sample: Sample) => Record<string, unknown>>> = {
  chat: (sample) => ({
    model: 'x',
    messages: sample.turns.map(([role, content]) => ({ role, content })),
    tools: [
      {
        type: 'function',
        function: { name: sample.name, description: sample.description, parameters: sample.schema },
      },
    ],
  }),
  responses: (sample) => ({
    model: 'x',
    instructions: sample.description,
    input: sample.turns.map(([role, text]) => ({ role, content: [{ type: 'input_text', text }] })),
    tools: [{ type: 'function', name: sample.name, parameters: sample.schema }],
  }),
  embeddings: (sample) => ({ model: 'x', input: sample.turns.map(([, text]) => text) }),
  text: (sample) => ({
    model: 'x',
    messages: sample.turns.map(([role, content]) => ({ role, content })),
    tools: [{ name: sample.name, description: sample.description, input_schema: sample.schema }],
  }),
  stream: (sample) => ({
    model: 'x',
    prompt: sample.turns.map(([role, text]) => ({ role, content: [{ type: 'text', text }] })),
    tools: [{ type: 'function', name: sample.name, inputSchema: sample.schema }],
  }),
};

/**
 * The tokens of the sample's request in the format, by OpenAI's cookbook: 3 tokens around a message and before the
 * answer, about 12 around a tool.
 */
function realTokens(
  { turns: messages, name, description, schema: parameters }: Sample,
  format: RequestFormat,
): number {
  const conversation = messages.reduce((sum, [role, text]) => sum + tokensIn(role) + tokensIn(text) + 3, 3);
  if (format === 'embeddings') return conversation;
  // The description of the sample is in its tool, in the instructions of responses, and not in a stream.
  const describesTool = format === 'chat' || format === 'text';
  const tool = describesTool ? { name, description, parameters } : { name, parameters };
  const instructions = format === 'responses' ? tokensIn(description) + 3 : 0;
  return conversation + instructions + tokensIn(JSON.stringify(tool)) + 12;
}

describe(`the bound by a tokenizer (seed ${seed})`, () => {
  const samples = fc.record({ turns, name: words, description: words, schema }) as fc.Arbitrary<Sample>;

  test.each(Object.entries(bodies) as [RequestFormat, (sample: Sample) => Record<string, unknown>][])(
    'is at least the tokens of a request of the format %s',
    async (format, bodyOf) => {
      await fc.assert(
        fc.asyncProperty(samples, async (sample) => {
          const body = bodyOf(sample);
          const size = sizeOf(body, format);
          const hasTools = format !== 'embeddings';
          const model = openAiModel();
          const textTokens = await countTextTokens([model], size, sharedCounter);
          const actualTokens = realTokens(sample, format);
          expect(textTokens).toBeDefined();
          expect(inputBound(model, { size, textTokens, hasTools })).toBeGreaterThanOrEqual(actualTokens);
          // One token per byte is always enough.
          expect(inputBound(model, { size, hasTools })).toBeGreaterThanOrEqual(actualTokens);
        }),
        { seed, numRuns: 100 },
      );
    },
    60_000,
  );

  test('is below a third of the bytes of usual text', async () => {
    const text = 'The quick brown fox jumps over the lazy dog, and the dog does not mind. '.repeat(200);
    const body = { model: 'x', messages: [{ role: 'user', content: text }] };
    const bound = await computeCloserBound(openAiModel(), sizeOf(body, 'chat').readText(), sharedCounter);
    expect(bound).toBeLessThan(text.length / 3);
    expect(bound).toBeGreaterThanOrEqual(tokensIn(text));
  });

  test('leaves out media but not their look-alikes', () => {
    const data = 'iVBORw0KGgoA'.repeat(20);
    const url = `data:image/png;base64,${data}`;
    const content = [
      { type: 'image_url', image_url: { url } },
      { type: 'text', text: url },
    ];
    const { texts } = sizeOf({ model: 'x', messages: [{ role: 'user', content }] }, 'chat').readText();
    expect(texts.filter((text) => text === url)).toHaveLength(1);
  });

  test.each<[string, string]>([
    ['one letter', 'a'.repeat(200_000)],
    ['blanks', `${' '.repeat(100_000)}\n`.repeat(2)],
  ])('is computed for a hostile text of %s', async (_what, text) => {
    const bound = await computeCloserBound(openAiModel(), { texts: [text], otherBytes: 0 }, sharedCounter);
    // No token of the encoding is longer than 128 of these characters.
    expect(bound).toBeGreaterThanOrEqual(Math.ceil(text.length / 128));
  });

  test.each<[string, Parameters<typeof computeCloserBound>[0], string]>([
    ['a model without a published tokenizer', catalogModel(), 'hi'],
    ['more than 256 KiB of text', openAiModel(), 'x'.repeat(256 * 1024 + 1)],
  ])('is absent for %s', async (_what, model, text) => {
    const failingCounter: TokenCounter = {
      count: () => Promise.reject(new Error('counted')),
      close: async () => {},
    };
    expect(await computeCloserBound(model, { texts: [text], otherBytes: 0 }, failingCounter)).toBeUndefined();
  });
});

describe('createTokenCounter', () => {
  let counter: TokenCounter;
  afterEach(() => counter.close());

  test('counts with both encodings', async () => {
    counter = createTokenCounter({ deadlineMs: 60_000 });
    const jobs = [
      counter.count('o200k_base', ['hello world']),
      counter.count('cl100k_base', ['hello', ' world', '!']),
    ];
    expect(await Promise.all(jobs)).toEqual([2, 3]);
  });

  test('counts the next job after a missed deadline', async () => {
    // A second thread starts and counts the short text well within this time.
    counter = createTokenCounter({ deadlineMs: 4_000 });
    // About 30 seconds of work.
    const prose = 'The quick brown fox jumps over the lazy dog. '.repeat(6_000);
    const longTexts = Array.from({ length: 300 }, () => prose);
    expect(await counter.count('o200k_base', longTexts)).toBeUndefined();
    expect(await counter.count('o200k_base', ['hello'])).toBe(1);
  });

  test('refuses jobs beyond its queue', async () => {
    counter = createTokenCounter({ deadlineMs: 60_000, maxJobs: 1 });
    const firstCount = counter.count('o200k_base', ['hello']);
    expect(await counter.count('o200k_base', ['hello'])).toBeUndefined();
    expect(await firstCount).toBe(1);
  });

  test('counts again after its thread has failed', async () => {
    counter = createTokenCounter({ deadlineMs: 60_000 });
    // The thread throws for a value that is not a string.
    expect(await counter.count('o200k_base', [undefined as unknown as string])).toBeUndefined();
    expect(await counter.count('o200k_base', ['hello'])).toBe(1);
  });

  test('resolves open jobs to undefined when it is closed', async () => {
    counter = createTokenCounter({ deadlineMs: 60_000 });
    const job = counter.count('o200k_base', ['hello']);
    await counter.close();
    expect(await job).toBeUndefined();
  });
});

describe('a call whose byte bound the credits do not cover', () => {
  const rates = { input: 1_000_000, output: 1_000_000 };
  // 10,200 bytes, but only about 2,200 tokens.
  const content = 'The quick brown fox jumps over the lazy dog again. '.repeat(200);
  let provider: ScriptedProvider;
  let world: World;
  beforeAll(async () => {
    provider = await startProvider();
    const members = { rates, max_output_tokens: 1_000, modalities: ['text', 'stream', 'openai'] };
    world = await startAi({
      models: provider.modelsFile(
        { plain: 'ok' },
        {
          model: members,
          provider: { output_limit_member: 'max_tokens' },
          providers: [{ id: 'openai', kind: 'openai', base_url: provider.url, api_key_env: 'ACME_API_KEY' }],
          models: [{ id: 'openai/gpt-5-mini', provider: 'openai', ...members }],
        },
      ),
      env: { ACME_API_KEY: 'x' },
    });
  });
  afterAll(async () => {
    await world.close();
    await provider.close();
  });
  const ask = (model: string, limit?: object) =>
    world.post('/v1/ai/chat/completions', { model, messages: [{ role: 'user', content }], ...limit });

  test('runs within the bound of the tokenizer', async () => {
    world.ledger.reset(4_000n);
    expect((await ask('openai/gpt-5-mini', { max_completion_tokens: 100 })).status).toBe(200);
    const { held } = await world.ledger.until(1);
    expect(held).toBeGreaterThan(2_000n);
    expect(held).toBeLessThan(3_000n);
  });

  test('receives the longest affordable answer without a limit', async () => {
    world.ledger.reset(2_600n);
    expect((await ask('openai/gpt-5-mini')).status).toBe(200);
    const limit = (JSON.parse(provider.lastCall().body.toString()) as { max_completion_tokens: number })
      .max_completion_tokens;
    expect(limit).toBeGreaterThan(300);
    expect(limit).toBeLessThan(600);
  });

  test('is refused with the price that the tokenizer computes', async () => {
    world.ledger.reset(1_000n);
    const response = await ask('openai/gpt-5-mini', { max_completion_tokens: 100 });
    expect(response.status).toBe(402);
    const { details } = await errorOf(response);
    const price = (details as { path: string; message: string }[]).find(
      ({ path }) => path === 'needed_credits',
    );
    expect(Number(price?.message)).toBeGreaterThan(2_000);
    expect(Number(price?.message)).toBeLessThan(3_000);
  });

  test('is refused for a model without a published tokenizer', async () => {
    world.ledger.reset(4_000n);
    expect((await ask('acme/plain', { max_tokens: 100 })).status).toBe(402);
  });
});
