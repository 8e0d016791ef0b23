// Converts the usage that providers report in each format to disjoint kinds of tokens.
import { describe, expect, test } from 'vitest';
import {
  chatClaim,
  hubClaim,
  isAbsurd,
  messagesClaim,
  rerankClaim,
  responsesClaim,
  tokensOfText,
} from '../../../src/gateway/ai/metering/token-count.ts';

const tokens = (
  input: number,
  cachedInput: number,
  cacheWrite: number,
  output: number,
  reasoning: number,
) => ({ tokens: { input, cachedInput, cacheWrite, output, reasoning }, isFinal: true });

describe('chatClaim', () => {
  test.each<[string, object, unknown]>([
    [
      'OpenAI: cached within the input, reasoning within the output',
      {
        prompt_tokens: 100,
        completion_tokens: 30,
        total_tokens: 130,
        prompt_tokens_details: { cached_tokens: 60 },
        completion_tokens_details: { reasoning_tokens: 20 },
      },
      tokens(40, 60, 0, 10, 20),
    ],
    [
      'OpenAI: written to the cache within the input too',
      {
        prompt_tokens: 100,
        completion_tokens: 5,
        prompt_tokens_details: { cached_tokens: 60, cache_write_tokens: 30 },
      },
      tokens(10, 60, 30, 5, 0),
    ],
    [
      'DeepSeek: hits of its cache',
      {
        prompt_tokens: 100,
        completion_tokens: 5,
        total_tokens: 105,
        prompt_cache_hit_tokens: 64,
        prompt_cache_miss_tokens: 36,
      },
      tokens(36, 64, 0, 5, 0),
    ],
    [
      'Moonshot: cached tokens at the top level',
      { prompt_tokens: 100, completion_tokens: 5, total_tokens: 105, cached_tokens: 90 },
      tokens(10, 90, 0, 5, 0),
    ],
    [
      'xAI: reasoning in addition to the output',
      {
        prompt_tokens: 10,
        completion_tokens: 4,
        total_tokens: 314,
        completion_tokens_details: { reasoning_tokens: 300 },
      },
      tokens(10, 0, 0, 4, 300),
    ],
    [
      'xAI: less reasoning than output, in addition to it',
      {
        prompt_tokens: 10,
        completion_tokens: 40,
        total_tokens: 53,
        completion_tokens_details: { reasoning_tokens: 3 },
      },
      tokens(10, 0, 0, 40, 3),
    ],
    ['embeddings: only input', { prompt_tokens: 2, total_tokens: 2 }, tokens(2, 0, 0, 0, 0)],
    ['only a total', { total_tokens: 7 }, tokens(7, 0, 0, 0, 0)],
    [
      'details that are null',
      {
        prompt_tokens: 2,
        completion_tokens: 1,
        prompt_tokens_details: null,
        completion_tokens_details: null,
      },
      tokens(2, 0, 0, 1, 0),
    ],
    ['explicit zeros', { prompt_tokens: 0, completion_tokens: 0 }, tokens(0, 0, 0, 0, 0)],
    ['an empty object reports no usage', {}, undefined],
    ['a negative count is invalid', { prompt_tokens: -10, completion_tokens: 4 }, 'faulty'],
    ['a fraction is invalid', { prompt_tokens: 10, completion_tokens: 1.5 }, 'faulty'],
    ['a string is invalid', { prompt_tokens: 'NaN', completion_tokens: 4 }, 'faulty'],
    ['infinity is invalid', { prompt_tokens: Number.POSITIVE_INFINITY, completion_tokens: 4 }, 'faulty'],
    [
      'a faulty detail makes the whole report faulty',
      { prompt_tokens: 10, completion_tokens: 4, prompt_tokens_details: { cached_tokens: -1 } },
      'faulty',
    ],
  ])('reads disjoint kinds: %s', (_title, usage, expected) => {
    expect(chatClaim(usage as Record<string, unknown>)).toEqual(expected);
  });
});

describe('messagesClaim', () => {
  const usage = { input_tokens: 10, output_tokens: 4 };

  test('keeps cached and written tokens apart from the input', () => {
    expect(messagesClaim({ ...usage, cache_read_input_tokens: 3, cache_creation_input_tokens: 2 })).toEqual(
      tokens(10, 3, 2, 4, 0),
    );
  });

  test('reads thinking as reasoning within the output', () => {
    expect(
      messagesClaim({ input_tokens: 10, output_tokens: 40, output_tokens_details: { thinking_tokens: 30 } }),
    ).toEqual(tokens(10, 0, 0, 10, 30));
  });

  test.each([
    ['input', { input_tokens: -1 }],
    ['cache entry of an hour', { cache_creation: { ephemeral_1h_input_tokens: -1 } }],
  ])('refuses a negative %s', (_kind, members) => {
    expect(messagesClaim({ ...usage, ...members })).toBe('faulty');
  });

  const hourCacheUsage = {
    cache_creation_input_tokens: 1_000,
    cache_creation: { ephemeral_5m_input_tokens: 400, ephemeral_1h_input_tokens: 600 },
  };

  test.each([
    ['with a total', hourCacheUsage],
    ['without a total', { ...hourCacheUsage, cache_creation_input_tokens: null }],
  ])('counts hour-long cache writes %s', (_total, members) => {
    expect(messagesClaim({ ...usage, cache_read_input_tokens: 3, ...members })).toEqual({
      tokens: { input: 10, cachedInput: 3, cacheWrite: 1_000, hourCacheWrite: 600, output: 4, reasoning: 0 },
      isFinal: true,
    });
  });

  const iterations = [
    {
      type: 'compaction',
      input_tokens: 7,
      output_tokens: 2,
      cache_read_input_tokens: 1,
      ...hourCacheUsage,
    },
    { type: 'message', ...usage, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 },
  ];
  const claimWithCompaction = {
    tokens: { input: 17, cachedInput: 1, cacheWrite: 1_000, hourCacheWrite: 600, output: 6, reasoning: 0 },
    isFinal: true,
  };

  test('adds the usage of a compaction', () => {
    expect(messagesClaim({ ...usage, iterations })).toEqual(claimWithCompaction);
  });

  test('matches the claim of the hub for the same usage', () => {
    // The package adds up input and output of both and omits the cache.
    expect(
      hubClaim({
        inputTokens: { total: 17, noCache: 17, cacheRead: 0, cacheWrite: 0 },
        outputTokens: { total: 6, text: undefined, reasoning: undefined },
        raw: { ...usage, iterations },
      }),
    ).toEqual(claimWithCompaction);
  });
});

describe('responsesClaim', () => {
  test('reads the same kinds as chat completions', () => {
    expect(
      responsesClaim({
        input_tokens: 100,
        input_tokens_details: { cached_tokens: 60 },
        output_tokens: 30,
        output_tokens_details: { reasoning_tokens: 20 },
        total_tokens: 130,
      }),
    ).toEqual(tokens(40, 60, 0, 10, 20));
  });
});

describe('rerankClaim', () => {
  test('reads tokens and ignores search units', () => {
    expect(rerankClaim({ total_tokens: 25 })).toEqual(tokens(25, 0, 0, 0, 0));
    expect(rerankClaim({ tokens: { input_tokens: 25 }, billed_units: { search_units: 1 } })).toEqual(
      tokens(25, 0, 0, 0, 0),
    );
    expect(rerankClaim({ billed_units: { search_units: 1 } })).toBeUndefined();
  });
});

describe('hubClaim', () => {
  test('uses totals where kinds are missing', () => {
    const hub = (inputTokens: object, outputTokens: object) =>
      hubClaim({
        inputTokens: {
          total: undefined,
          noCache: undefined,
          cacheRead: undefined,
          cacheWrite: undefined,
          ...inputTokens,
        },
        outputTokens: { total: undefined, text: undefined, reasoning: undefined, ...outputTokens },
      });
    expect(hub({ total: 15, noCache: 10, cacheRead: 3, cacheWrite: 2 }, { total: 4 })).toEqual(
      tokens(10, 3, 2, 4, 0),
    );
    expect(hub({ total: 15, cacheRead: 3 }, { total: 30, text: 10, reasoning: 20 })).toEqual(
      tokens(12, 3, 0, 10, 20),
    );
    expect(hub({}, {})).toBeUndefined();
    expect(hub({ total: Number.NaN }, { total: 4 })).toBe('faulty');
  });
});

describe('tokensOfText', () => {
  test('counts four bytes as a token, and at least one token for any text', () => {
    expect([0, 1, 4, 7, 8, 400].map(tokensOfText)).toEqual([0, 1, 1, 1, 2, 100]);
  });
});

describe('isAbsurd', () => {
  test('accepts usage of up to eight times the bound', () => {
    const bound = { input: 100, output: 50 };
    const usageOf = (input: number, output: number) => ({
      input,
      cachedInput: 0,
      cacheWrite: 0,
      output,
      reasoning: 0,
    });
    expect(isAbsurd(usageOf(300, 120), bound)).toBe(false);
    expect(isAbsurd(usageOf(100, 400), bound)).toBe(false);
    expect(isAbsurd(usageOf(100, 500), bound)).toBe(true);
    expect(isAbsurd(usageOf(1e15, 10), bound)).toBe(true);
  });
});
