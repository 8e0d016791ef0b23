// The most that a call can cost, known before it is sent: what its hold is made of. A limit that the caller sent is
// taken as it is; where there is none, one is added that the caller can afford.
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { Rates } from '../catalog/rates.ts';
import type { Size } from './measure.ts';
import { maximumPrice, affordableOutputTokens, type Units } from './price.ts';

/** What a call asks for, in the terms that its price depends on. */
export interface Demand {
  /** Undefined for calls that are priced by units alone. */
  size?: Size | undefined;
  /** Whether tools are offered, which some providers explain to their models at length. */
  hasTools?: boolean | undefined;
  /** Texts that the question is read beside again for each, as in reranking; their bytes times how often. */
  repeatedBytes?: number | undefined;
  /** Whether the provider is asked to keep input in its cache for an hour. */
  isKeptLong?: boolean | undefined;
  /** The limit that the caller sent, and the member that it stands in. */
  limit?: { tokens: number; member: string } | undefined;
  /** Where the caller would write a limit. */
  limitMember?: string | undefined;
  /** How many answers. */
  choices?: number | undefined;
  /** Whether the call can be given a limit at all; vectors cannot. */
  hasOutput?: boolean | undefined;
  units?: Units | undefined;
}

/** What a call costs at most on one model. */
export interface Bound {
  input: number;
  /** One answer's tokens, reasoning included. */
  output: number;
  choices: number;
  credits: bigint;
}

// What a provider puts around a conversation and around each turn before its model reads them.
const tokensPerCall = 16;
const tokensPerTurn = 8;
// Anthropic explains the use of tools in up to 350 tokens of its own.
const tokensForTools = 512;
/** An answer shorter than this is no answer, so nothing is begun that cannot pay for it. */
export const minimumOutput = 16;
// For a model whose entry does not say how much it writes: more than answers have, less than any current model refuses.
const unknownOutput = 32_768;
const unknownOutputAndWindow = 8_192;

/** The most tokens that the provider can read. */
export function inputBound(
  model: Pick<CatalogModel, 'context_window'>,
  { size, hasTools = false, repeatedBytes = 0 }: Demand,
): number {
  if (size === undefined) return 0;
  const most =
    size.textBytes +
    size.mediaTokens +
    repeatedBytes +
    size.turns * tokensPerTurn +
    tokensPerCall +
    (hasTools ? tokensForTools : 0);
  // Nothing reads more than its window; only media are ever counted so high.
  return size.media > 0 && model.context_window !== null
    ? Math.min(most, Math.max(model.context_window, size.textBytes))
    : most;
}

/** Throws a 422 when the catalog prices the model, but none of what this call would use: nothing is free by omission. */
export function requirePrice({ id, rates, tiers }: CatalogModel, kinds: readonly (keyof Rates)[]): void {
  if (
    rates === null ||
    kinds.some((kind) => rates[kind] !== undefined || tiers.some((tier) => tier.rates[kind] !== undefined))
  )
    return;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    `The model ${id} has no price for this kind of call.`,
    { param: 'model' },
  );
}

/** The longest answer that the model gives when nobody limits it. */
export function longestOutput({
  max_output_tokens: longest,
  context_window: window,
}: Pick<CatalogModel, 'max_output_tokens' | 'context_window'>): number {
  if (longest !== null) return longest;
  return window === null
    ? unknownOutputAndWindow
    : Math.max(Math.min(unknownOutput, Math.floor(window / 2)), minimumOutput);
}

/** The bound of the call on the model; `limit` is the one that is added where the caller sent none. */
export function boundOf(model: CatalogModel, demand: Demand, limit?: number): Bound {
  const { choices = 1, hasOutput = true, isKeptLong, units } = demand;
  const input = inputBound(model, demand);
  const output =
    demand.size === undefined || !hasOutput ? 0 : (demand.limit?.tokens ?? limit ?? longestOutput(model));
  return {
    input,
    output,
    choices,
    credits: maximumPrice(model, {
      input,
      output: output * choices,
      isKeptLong,
      ...(units ? { units } : {}),
    }),
  };
}

/** The longest answer that the credits are good for on every one of the models; negative when not even its input is. */
export function affordableOutput(models: readonly CatalogModel[], demand: Demand, credits: bigint): number {
  const { choices = 1, isKeptLong } = demand;
  const each = models.map((model) =>
    affordableOutputTokens(model, { input: inputBound(model, demand), isKeptLong, credits }),
  );
  const least = Math.min(...each);
  return least < 0 ? -1 : Math.floor(least / choices);
}

/** The 402 that tells what would be affordable. */
export function insufficientCredits(
  demand: Demand,
  affordable: number,
  price: bigint,
  available: bigint,
  cause?: unknown,
): Problem {
  const member = demand.limit?.member ?? demand.limitMember;
  const isLimited = member !== undefined && affordable >= minimumOutput;
  const message = isLimited
    ? `The credits of this account do not cover the call: it may cost ${price}, and ${available} are available. They cover an answer of ${affordable} tokens.`
    : `The credits of this account do not cover the call: it may cost ${price}, and ${available} are available.`;
  return new Problem('insufficient_credits', 'insufficient_credits', message, {
    cause,
    param: isLimited ? member : null,
    details: [
      { path: 'needed_credits', message: String(price) },
      { path: 'affordable_credits', message: String(available) },
      ...(isLimited ? [{ path: member, message: `at most ${affordable} is affordable` }] : []),
    ],
  });
}
