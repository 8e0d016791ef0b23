// What a call costs, exactly: integer rates times what was used, in whole numbers all the way, and rounded up once at
// the end. No float ever holds an amount.
import type { UsageFacts } from '../../usage/index.ts';
import type { Rates, Tier } from '../catalog/price.ts';

/** What of a model the price needs. `rates: null` is free. */
export interface Priced {
  rates: Rates | null;
  tiers: readonly Tier[];
}

export type Tokens = UsageFacts['tokens'];
export type Units = UsageFacts['units'];

/** What was used: tokens by disjoint kinds, and units of media. */
export interface Used {
  tokens: Tokens;
  units?: Units;
}

export const noTokens: Tokens = { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 };

/** Rates with the default of each kind of token filled in. */
interface FullRates {
  input: bigint;
  cachedInput: bigint;
  cacheWrite: bigint;
  output: bigint;
  reasoning: bigint;
  rates: Rates;
}

const million = 1_000_000n;

/** The price of a call in credits, rounded up. */
export function priceOf({ rates, tiers }: Priced, { tokens, units = {} }: Used): bigint {
  if (rates === null) return 0n;
  const full = ratesAt(rates, tiers, inputTokens(tokens));
  return roundedUp(
    BigInt(tokens.input) * full.input +
      BigInt(tokens.cachedInput) * full.cachedInput +
      BigInt(tokens.cacheWrite) * full.cacheWrite +
      BigInt(tokens.output) * full.output +
      BigInt(tokens.reasoning) * full.reasoning +
      unitsPrice(full.rates, units),
  );
}

/** All input, whatever became of it; the tiers go by this. */
export function inputTokens({ input, cachedInput, cacheWrite }: Tokens): number {
  return input + cachedInput + cacheWrite;
}

/** How much a call could use at most. `output` counts reasoning too. */
export interface Most {
  input: number;
  output: number;
  units?: Units;
}

/** No call within these bounds costs more, whichever kinds its tokens are of and whichever tier it falls into. */
export function dearest({ rates, tiers }: Priced, { input, output, units = {} }: Most): bigint {
  if (rates === null) return 0n;
  let most = 0n;
  for (const full of reachable(rates, tiers, input)) {
    const price = roundedUp(BigInt(input) * dearestInput(full) + BigInt(output) * dearestOutput(full) + unitsPrice(full.rates, units));
    if (price > most) most = price;
  }
  return most;
}

/** How many tokens of output the credits are good for beside so much input; negative when the input alone is dearer. */
export function outputFor({ rates, tiers }: Priced, { input, credits }: { input: number; credits: bigint }): number {
  if (rates === null) return Number.MAX_SAFE_INTEGER;
  let least = Number.MAX_SAFE_INTEGER;
  for (const full of reachable(rates, tiers, input)) {
    const left = credits * million - BigInt(input) * dearestInput(full);
    const rate = dearestOutput(full);
    if (left < 0n) return -1;
    if (rate > 0n && left / rate < BigInt(least)) least = Number(left / rate);
  }
  return least;
}

// The rates of every tier that a call with at most so much input can fall into.
function reachable(rates: Rates, tiers: readonly Tier[], input: number): FullRates[] {
  const thresholds = tiers.map((tier) => tier.above_input_tokens).filter((threshold) => threshold < input);
  return [0, ...thresholds.map((threshold) => threshold + 1)].map((count) => ratesAt(rates, tiers, count));
}

// The highest tier that the input is above; what it does not name costs what it costs below.
function ratesAt(rates: Rates, tiers: readonly Tier[], input: number): FullRates {
  let reached: Tier | undefined;
  for (const tier of tiers) {
    if (input > tier.above_input_tokens && (reached === undefined || tier.above_input_tokens > reached.above_input_tokens)) reached = tier;
  }
  const merged = reached === undefined ? rates : { ...rates, ...reached.rates };
  const { input: plain = 0, output = 0 } = merged;
  return {
    input: BigInt(plain),
    cachedInput: BigInt(merged.cached_input ?? plain),
    cacheWrite: BigInt(merged.cache_write ?? plain),
    output: BigInt(output),
    reasoning: BigInt(merged.reasoning ?? output),
    rates: merged,
  };
}

function dearestInput({ input, cachedInput, cacheWrite }: FullRates): bigint {
  return larger(input, larger(cachedInput, cacheWrite));
}

function dearestOutput({ output, reasoning }: FullRates): bigint {
  return larger(output, reasoning);
}

function larger(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}

// In millionths of a credit, as the tokens are. Seconds count to the millisecond.
function unitsPrice({ image = 0, video_second: videoSecond = 0, speech_character: character = 0, audio_second: audioSecond = 0 }: Rates, units: Units): bigint {
  const whole = BigInt(units.image ?? 0) * BigInt(image) + BigInt(units.speechCharacter ?? 0) * BigInt(character);
  const thousandths = milliseconds(units.videoSecond) * BigInt(videoSecond) + milliseconds(units.audioSecond) * BigInt(audioSecond);
  return whole * million + thousandths * 1_000n;
}

function milliseconds(seconds = 0): bigint {
  return BigInt(Math.round(seconds * 1_000));
}

function roundedUp(millionths: bigint): bigint {
  return (millionths + million - 1n) / million;
}
