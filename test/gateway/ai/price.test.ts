// Prices, compared with exact fractions.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Rates } from '../../../src/gateway/ai/catalog/rates.ts';
import {
  maximumPrice,
  affordableOutputTokens,
  priceOf,
  type Tokens,
} from '../../../src/gateway/ai/metering/price.ts';

interface Fraction {
  numerator: bigint;
  denominator: bigint;
}

const sum = (a: Fraction, b: Fraction): Fraction => ({
  numerator: a.numerator * b.denominator + b.numerator * a.denominator,
  denominator: a.denominator * b.denominator,
});
const roundUp = ({ numerator, denominator }: Fraction): bigint =>
  numerator / denominator + (numerator % denominator === 0n ? 0n : 1n);
const zeroFraction: Fraction = { numerator: 0n, denominator: 1n };

// A fixed seed, so that only a change of the code can make these tests fail. SEED sets another seed.
const seed = Number(process.env['SEED'] ?? 20261121);
const runs = { seed, numRuns: 500 };

const rate = fc.integer({ min: 0, max: 100_000_000 });
const rates = fc.record(
  {
    input: rate,
    cached_input: rate,
    cache_write: rate,
    cache_write_1h: rate,
    output: rate,
    reasoning: rate,
    image: rate,
    video_second: rate,
    speech_character: rate,
    audio_second: rate,
  },
  { requiredKeys: ['input', 'output'] },
);
const count = fc.oneof(
  fc.constant(0),
  fc.constant(1),
  fc.integer({ min: 0, max: 2_000_000 }),
  fc.constant(Number.MAX_SAFE_INTEGER),
);
const tokens = fc
  .record({
    input: count,
    cachedInput: count,
    cacheWrite: count,
    output: count,
    reasoning: count,
    share: fc.integer({ min: 0, max: 4 }),
  })
  .map(({ share, ...usage }) => ({ ...usage, hourCacheWrite: Math.floor(usage.cacheWrite / 4) * share }));
const units = fc.record({
  image: fc.integer({ min: 0, max: 1_000 }),
  speechCharacter: fc.integer({ min: 0, max: 100_000 }),
  videoSecond: fc.integer({ min: 0, max: 600_000 }).map((ms) => ms / 1_000),
  audioSecond: fc.integer({ min: 0, max: 600_000 }).map((ms) => ms / 1_000),
});

function exactPrice(
  modelRates: Rates,
  usedTokens: Tokens,
  media: { image: number; speechCharacter: number; videoSecond: number; audioSecond: number },
): bigint {
  const kinds: [number, number][] = [
    [usedTokens.input, modelRates.input ?? 0],
    [usedTokens.cachedInput, modelRates.cached_input ?? modelRates.input ?? 0],
    [
      usedTokens.cacheWrite - (usedTokens.hourCacheWrite ?? 0),
      modelRates.cache_write ?? modelRates.input ?? 0,
    ],
    [
      usedTokens.hourCacheWrite ?? 0,
      modelRates.cache_write_1h ?? Math.max((modelRates.input ?? 0) * 2, modelRates.cache_write ?? 0),
    ],
    [usedTokens.output, modelRates.output ?? 0],
    [usedTokens.reasoning, modelRates.reasoning ?? modelRates.output ?? 0],
  ];
  const parts = kinds.map(([amount, credits]): Fraction => ({
    numerator: BigInt(amount) * BigInt(credits),
    denominator: 1_000_000n,
  }));
  const unitParts: Fraction[] = [
    { numerator: BigInt(media.image) * BigInt(modelRates.image ?? 0), denominator: 1n },
    {
      numerator: BigInt(media.speechCharacter) * BigInt(modelRates.speech_character ?? 0),
      denominator: 1n,
    },
    {
      numerator: BigInt(Math.round(media.videoSecond * 1_000)) * BigInt(modelRates.video_second ?? 0),
      denominator: 1_000n,
    },
    {
      numerator: BigInt(Math.round(media.audioSecond * 1_000)) * BigInt(modelRates.audio_second ?? 0),
      denominator: 1_000n,
    },
  ];
  return roundUp([...parts, ...unitParts].reduce(sum, zeroFraction));
}

describe(`the price of a call (seed ${seed})`, () => {
  test('is the exact sum of its kinds, rounded up once', () => {
    fc.assert(
      fc.property(rates, tokens, units, (modelRates, usedTokens, media) => {
        expect(priceOf({ rates: modelRates as Rates, tiers: [] }, { tokens: usedTokens, units: media })).toBe(
          exactPrice(modelRates as Rates, usedTokens, media),
        );
      }),
      runs,
    );
  });

  test('rounds up each of a million calls', () => {
    const model = { rates: { input: 333_333, output: 1 }, tiers: [] };
    let [chargedCredits, expectedCredits] = [0n, 0n];
    for (let call = 0; call < 1_000_000; call += 1) {
      const usedTokens = { input: call % 7, cachedInput: 0, cacheWrite: 0, output: call % 3, reasoning: 0 };
      chargedCredits += priceOf(model, { tokens: usedTokens });
      const millionths = BigInt(usedTokens.input) * 333_333n + BigInt(usedTokens.output);
      expectedCredits += roundUp({ numerator: millionths, denominator: 1_000_000n });
    }
    expect(chargedCredits).toBe(expectedCredits);
  });

  test('uses the highest tier below its input', () => {
    const model = {
      rates: { input: 1_000_000, cached_input: 100_000, output: 2_000_000 },
      tiers: [
        { above_input_tokens: 100, rates: { input: 3_000_000 } },
        { above_input_tokens: 200, rates: { input: 5_000_000, output: 7_000_000 } },
      ],
    };
    const priceOfTokens = (input: number, cachedInput = 0) =>
      priceOf(model, { tokens: { input, cachedInput, cacheWrite: 0, output: 10, reasoning: 0 } });
    expect(priceOfTokens(100)).toBe(120n);
    expect(priceOfTokens(101)).toBe(101n * 3n + 20n);
    // Cached tokens count as input, and the tier inherits their rate.
    expect(priceOfTokens(100, 10)).toBe(100n * 3n + 1n + 20n);
    expect(priceOfTokens(201)).toBe(201n * 5n + 70n);
  });

  test('of an hour-long cache write defaults to twice the input', () => {
    const tokens = { input: 0, cachedInput: 0, cacheWrite: 100, hourCacheWrite: 60, output: 0, reasoning: 0 };
    const priceAt = (modelRates: Rates) => priceOf({ rates: modelRates, tiers: [] }, { tokens });
    expect(priceAt({ input: 1_000_000, cache_write: 1_250_000 })).toBe(50n + 120n);
    expect(priceAt({ input: 1_000_000, cache_write: 3_000_000 })).toBe(300n);
    expect(priceAt({ input: 1_000_000, cache_write: 1_250_000, cache_write_1h: 1_500_000 })).toBe(50n + 90n);
  });

  test('of a video depends on its lines', () => {
    const tokens = { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 };
    const videoPriceAt = (modelRates: Rates, videoLines?: number) =>
      Number(priceOf({ rates: modelRates, tiers: [] }, { tokens, units: { videoSecond: 1.5, videoLines } }));
    const modelRates = { video_second: 10, video_second_720: 20, video_second_1080: 40 };
    // Encoders may cut up to 15 lines, so 705 lines cost as much as 720, and 1,065 as much as 1,080. Unknown lines
    // cost the highest rate.
    expect(
      [360, 704, 705, 720, 1064, 1065, 1088, 2160, undefined].map((videoLines) =>
        videoPriceAt(modelRates, videoLines),
      ),
    ).toEqual([15, 15, 30, 30, 30, 60, 60, 60, 60]);
    expect([360, 720, undefined].map((videoLines) => videoPriceAt({ video_second: 10 }, videoLines))).toEqual(
      [15, 15, 15],
    );
    expect(
      [360, 1080, undefined].map((videoLines) =>
        videoPriceAt({ video_second_720: 20, video_second_1080: 10 }, videoLines),
      ),
    ).toEqual([30, 15, 30]);
  });

  test('is zero for a free model', () => {
    expect(
      priceOf(
        { rates: null, tiers: [] },
        {
          tokens: { input: 1e6, cachedInput: 0, cacheWrite: 0, output: 1e6, reasoning: 0 },
          units: { image: 3 },
        },
      ),
    ).toBe(0n);
  });

  test('is zero without usage', () => {
    expect(
      priceOf(
        { rates: { input: 9, output: 9 }, tiers: [] },
        { tokens: { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 } },
      ),
    ).toBe(0n);
  });
});

const smallCount = fc.integer({ min: 0, max: 500_000 });
const tieredModel = fc.record({
  rates,
  tiers: fc.array(fc.record({ above_input_tokens: fc.integer({ min: 1, max: 400_000 }), rates }), {
    maxLength: 3,
  }),
}) as fc.Arbitrary<{ rates: Rates; tiers: { above_input_tokens: number; rates: Rates }[] }>;

describe(`maximumPrice (seed ${seed})`, () => {
  test('is never below the price of a call within the bounds', () => {
    fc.assert(
      fc.property(
        tieredModel,
        fc.tuple(smallCount, smallCount, smallCount, smallCount, smallCount),
        (model, [input, cachedInput, cacheWrite, output, reasoning]) => {
          const mostTokens = { input: input + cachedInput + cacheWrite + 5, output: output + reasoning };
          expect(
            priceOf(model, { tokens: { input, cachedInput, cacheWrite, output, reasoning } }) <=
              maximumPrice(model, mostTokens),
          ).toBe(true);
          expect(
            priceOf(model, {
              tokens: { input, cachedInput, cacheWrite, hourCacheWrite: cacheWrite, output, reasoning },
            }) <= maximumPrice(model, { ...mostTokens, usesHourCache: true }),
          ).toBe(true);
        },
      ),
      runs,
    );
  });
});

describe(`affordableOutputTokens (seed ${seed})`, () => {
  test('is the longest output that the credits cover', () => {
    fc.assert(
      fc.property(
        tieredModel,
        smallCount,
        fc.bigInt({ min: 0n, max: 10n ** 12n }),
        (model, input, credits) => {
          const output = affordableOutputTokens(model, { input, credits });
          if (output < 0) expect(maximumPrice(model, { input, output: 0 }) > credits).toBe(true);
          else if (output < Number.MAX_SAFE_INTEGER) {
            expect(maximumPrice(model, { input, output }) <= credits).toBe(true);
            expect(maximumPrice(model, { input, output: output + 1 }) > credits).toBe(true);
          }
        },
      ),
      runs,
    );
  });
});
