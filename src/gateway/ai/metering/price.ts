// Exact price of a call: integer rates times usage in bigint arithmetic, rounded up
// once at the end. No floating point.
import { maxBigInt } from '../../../kernel/bigint.ts';
import type { UsageFacts } from '../../usage/index.ts';
import { videoResolutions, type Rates, type Tier } from '../catalog/rates.ts';

/** The members of a model that determine the price of a call. With `rates: null` it is free. */
export interface PricedModel {
  rates: Rates | null;
  tiers: readonly Tier[];
}

/**
 * Token kinds of a usage record, and the part of `cacheWrite` kept for an hour,
 * which is priced but not recorded.
 */
export type Tokens = UsageFacts['tokens'] & { hourCacheWrite?: number };
/**
 * Units of a usage record, and the lines of a video (its shorter side), which select its rate but are not
 * recorded.
 */
export type Units = UsageFacts['units'] & { videoLines?: number | undefined };

/** Tokens by disjoint kinds, and units of media. */
export interface MeteredUsage {
  tokens: Tokens;
  units?: Units;
}

export const noTokens: Tokens = { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 };

/** Rates with the default of each kind of token filled in. */
interface FullRates {
  input: bigint;
  cachedInput: bigint;
  cacheWrite: bigint;
  hourCacheWrite: bigint;
  output: bigint;
  reasoning: bigint;
  /** The rates of images, characters and seconds, which have no defaults. */
  unitRates: Rates;
}

const million = 1_000_000n;

/** The price of a call in credits, rounded up. */
export function priceOf({ rates, tiers }: PricedModel, { tokens, units = {} }: MeteredUsage): bigint {
  if (rates === null) return 0n;
  const fullRates = ratesAt(rates, tiers, inputTokens(tokens));
  const { hourCacheWrite = 0 } = tokens;
  return roundUp(
    BigInt(tokens.input) * fullRates.input +
      BigInt(tokens.cachedInput) * fullRates.cachedInput +
      BigInt(tokens.cacheWrite - hourCacheWrite) * fullRates.cacheWrite +
      BigInt(hourCacheWrite) * fullRates.hourCacheWrite +
      BigInt(tokens.output) * fullRates.output +
      BigInt(tokens.reasoning) * fullRates.reasoning +
      unitsPrice(fullRates.unitRates, units),
  );
}

/** All input tokens, cached or not; the tiers depend on this sum. */
export function inputTokens({ input, cachedInput, cacheWrite }: Tokens): number {
  return input + cachedInput + cacheWrite;
}

/** Maximum usage of a call. `output` includes reasoning. */
export interface UsageBound {
  input: number;
  output: number;
  /** Whether the provider may cache input for an hour. */
  usesHourCache?: boolean | undefined;
  units?: Units;
}

/** The highest price within the bound, over all token kinds and tiers. */
export function maximumPrice(
  { rates, tiers }: PricedModel,
  { input, output, usesHourCache, units = {} }: UsageBound,
): bigint {
  if (rates === null) return 0n;
  let highestPrice = 0n;
  for (const fullRates of reachableRates(rates, tiers, input)) {
    const price = roundUp(
      BigInt(input) * maximumInputRate(fullRates, usesHourCache) +
        BigInt(output) * maximumOutputRate(fullRates) +
        unitsPrice(fullRates.unitRates, units),
    );
    if (price > highestPrice) highestPrice = price;
  }
  return highestPrice;
}

/** Output tokens that the credits cover in addition to the input; -1 when they do not cover the input. */
export function affordableOutputTokens(
  { rates, tiers }: PricedModel,
  { input, usesHourCache, credits }: Omit<UsageBound, 'output'> & { credits: bigint },
): number {
  if (rates === null) return Number.MAX_SAFE_INTEGER;
  let leastTokens = Number.MAX_SAFE_INTEGER;
  for (const fullRates of reachableRates(rates, tiers, input)) {
    const remainder = credits * million - BigInt(input) * maximumInputRate(fullRates, usesHourCache);
    const rate = maximumOutputRate(fullRates);
    if (remainder < 0n) return -1;
    if (rate > 0n && remainder / rate < BigInt(leastTokens)) leastTokens = Number(remainder / rate);
  }
  return leastTokens;
}

// The rates of every tier that a call with at most this many input tokens can reach.
function reachableRates(rates: Rates, tiers: readonly Tier[], input: number): FullRates[] {
  const thresholds = tiers.map((tier) => tier.above_input_tokens).filter((threshold) => threshold < input);
  return [0, ...thresholds.map((threshold) => threshold + 1)].map((count) => ratesAt(rates, tiers, count));
}

// The rates of the highest tier whose threshold the input exceeds. The base rates replace the rates that the
// tier does not have.
function ratesAt(rates: Rates, tiers: readonly Tier[], input: number): FullRates {
  let matchingTier: Tier | undefined;
  for (const tier of tiers) {
    if (
      input > tier.above_input_tokens &&
      (matchingTier === undefined || tier.above_input_tokens > matchingTier.above_input_tokens)
    )
      matchingTier = tier;
  }
  const tierRates = matchingTier === undefined ? rates : { ...rates, ...matchingTier.rates };
  const { input: inputRate = 0, output = 0 } = tierRates;
  const cacheWrite = BigInt(tierRates.cache_write ?? inputRate);
  return {
    input: BigInt(inputRate),
    cachedInput: BigInt(tierRates.cached_input ?? inputRate),
    cacheWrite,
    // Anthropic bills hour-long cache writes at twice the input rate, as do all
    // providers of its format.
    hourCacheWrite:
      tierRates.cache_write_1h === undefined
        ? maxBigInt(BigInt(inputRate) * 2n, cacheWrite)
        : BigInt(tierRates.cache_write_1h),
    output: BigInt(output),
    reasoning: BigInt(tierRates.reasoning ?? output),
    unitRates: tierRates,
  };
}

function maximumInputRate(
  { input, cachedInput, cacheWrite, hourCacheWrite }: FullRates,
  usesHourCache = false,
): bigint {
  const highestRate = maxBigInt(input, maxBigInt(cachedInput, cacheWrite));
  return usesHourCache ? maxBigInt(highestRate, hourCacheWrite) : highestRate;
}

function maximumOutputRate({ output, reasoning }: FullRates): bigint {
  return maxBigInt(output, reasoning);
}

// Rates of images, characters and seconds are in credits; the sum is in millionths of a credit, as
// the price of tokens is. Seconds are rounded to milliseconds.
function unitsPrice(rates: Rates, units: Units): bigint {
  // Calls for text have no units, and their price is computed several times per call.
  if (Object.keys(units).length === 0) return 0n;
  const { image = 0, speech_character: character = 0, audio_second: audioSecond = 0 } = rates;
  const countedCredits =
    BigInt(units.image ?? 0) * BigInt(image) + BigInt(units.speechCharacter ?? 0) * BigInt(character);
  const playedMilliCredits =
    toMilliseconds(units.videoSecond) * BigInt(videoRate(rates, units.videoLines)) +
    toMilliseconds(units.audioSecond) * BigInt(audioSecond);
  return countedCredits * million + playedMilliCredits * 1_000n;
}

// Encoders work in blocks of 16 lines, so a video may have fewer lines than its nominal resolution.
const encoderBlockLines = 16;

// The rate of the highest resolution that the video reaches, or the highest rate of all when its lines are
// unknown.
function videoRate(rates: Rates, lines: number | undefined): number {
  const resolutionRates = videoResolutions.flatMap((minLines) => {
    const rate = rates[`video_second_${minLines}`];
    return rate === undefined ? [] : [{ minLines, rate }];
  });
  const { video_second: defaultRate = resolutionRates[0]?.rate ?? 0 } = rates;
  if (lines === undefined) return Math.max(defaultRate, ...resolutionRates.map(({ rate }) => rate));
  return (
    resolutionRates.findLast(({ minLines }) => minLines < lines + encoderBlockLines)?.rate ?? defaultRate
  );
}

function toMilliseconds(seconds = 0): bigint {
  return BigInt(Math.round(seconds * 1_000));
}

function roundUp(millionths: bigint): bigint {
  return (millionths + million - 1n) / million;
}
