// The maximum price of a call, which is computed and held before the call is sent. An output limit in the
// request is used unchanged; if the request has none, the gateway adds a limit that the caller can afford.
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { Rates } from '../catalog/rates.ts';
import { encodingOf, type TextTokens } from './encodings.ts';
import type { Size } from './measure.ts';
import { maximumPrice, affordableOutputTokens, type Units } from './price.ts';
import { unsupportedMember } from '../hub/problems.ts';

/** The properties of a call that determine its maximum price. */
export interface Demand {
  /** Undefined for calls that are priced by units alone. */
  size?: Size | undefined;
  /**
   * Token counts of the text, by tokenizer. For a model whose tokenizer is not published, one
   * token per byte is assumed.
   */
  textTokens?: TextTokens | undefined;
  /** Whether tools are offered; some providers add a long system prompt for them. */
  hasTools?: boolean | undefined;
  /**
   * Bytes of a text that the model reads repeatedly, times the repetitions: rerankers read the query once per
   * document.
   */
  repeatedBytes?: number | undefined;
  /** Whether the call requests that the provider caches input for an hour. */
  usesHourCache?: boolean | undefined;
  /** The output limit in the request, and the name of the member that has it. */
  limit?: { tokens: number; member: string } | undefined;
  /** The member in which the caller could have sent a limit. */
  limitMember?: string | undefined;
  /** Number of answers. */
  choices?: number | undefined;
  /** Whether the call produces output tokens; embeddings do not. */
  hasOutput?: boolean | undefined;
  units?: Units | undefined;
}

/** Maximum usage and price of a call on one model. */
export interface Bound {
  input: number;
  /** One answer's tokens, reasoning included. */
  output: number;
  choices: number;
  credits: bigint;
}

// Tokens that a provider adds around a conversation and around each turn.
const tokensPerCall = 16;
const tokensPerTurn = 8;
// Anthropic adds up to 350 tokens of instructions for tools.
const tokensForTools = 512;
/** The shortest useful answer. A call that cannot pay for it is rejected. */
export const minimumOutput = 16;
// The assumed output limit of a model whose own limit is unknown: the lowest `max_output_tokens` in
// catalog.json, so every model there accepts it.
const assumedOutput = 32_768;
// The same for a model of an operator's models file whose context window is unknown too. A provider rejects
// a limit larger than the window, so this assumes a window of 16,384 tokens and, as in longestOutput, half of
// it for the answer. A model with a smaller window needs its `context_window` in the file.
const assumedOutputWithoutWindow = 8_192;

/** The most input tokens that the provider can count. */
export function inputBound(
  model: Pick<CatalogModel, 'context_window' | 'upstream_model' | 'providerEntry'>,
  { size, textTokens, hasTools = false, repeatedBytes = 0 }: Demand,
): number {
  if (size === undefined) return 0;
  const maxTextTokens = textBound(model, size, textTokens);
  const maxTokens =
    maxTextTokens +
    size.mediaTokens +
    repeatedBytes +
    size.turns * tokensPerTurn +
    tokensPerCall +
    (hasTools ? tokensForTools : 0);
  // A model reads at most its context window, so the rough estimate for media is cut off there. The bound of
  // the text itself is never cut.
  return size.media > 0 && model.context_window !== null
    ? Math.min(maxTokens, Math.max(model.context_window, maxTextTokens))
    : maxTokens;
}

// One token per byte, or the lower count of the model's tokenizer if the text has been counted.
function textBound(
  model: Pick<CatalogModel, 'upstream_model' | 'providerEntry'>,
  { textBytes, structureBytes }: Size,
  textTokens: TextTokens = {},
): number {
  const encoding = encodingOf(model);
  const tokens = encoding && textTokens[encoding];
  return Math.min(textBytes + structureBytes, tokens ?? Number.POSITIVE_INFINITY);
}

/**
 * Throws a 422 when the catalog has prices for the model, but none for the kinds of usage that this call
 * would have: a missing rate does not mean that the call is free.
 */
export function requirePrice({ id, rates, tiers }: CatalogModel, kinds: readonly (keyof Rates)[]): void {
  if (
    rates === null ||
    kinds.some((kind) => rates[kind] !== undefined || tiers.some((tier) => tier.rates[kind] !== undefined))
  )
    return;
  throw unsupportedMember('model', `The model ${id} has no price for this kind of call.`);
}

/** The longest answer of the model, in tokens, when the request sets no limit. */
export function longestOutput({
  max_output_tokens: longest,
  context_window: window,
}: Pick<CatalogModel, 'max_output_tokens' | 'context_window'>): number {
  if (longest !== null) return longest;
  return window === null
    ? assumedOutputWithoutWindow
    : Math.max(Math.min(assumedOutput, Math.floor(window / 2)), minimumOutput);
}

/**
 * The bound of the call on the model. `addedLimit` is the output limit that the gateway adds to a request
 * without one.
 */
export function boundOf(model: CatalogModel, demand: Demand, addedLimit?: number): Bound {
  const { choices = 1, hasOutput = true, usesHourCache, units } = demand;
  const input = inputBound(model, demand);
  const output =
    demand.size === undefined || !hasOutput
      ? 0
      : (demand.limit?.tokens ?? addedLimit ?? longestOutput(model));
  return {
    input,
    output,
    choices,
    credits: maximumPrice(model, {
      input,
      output: output * choices,
      usesHourCache,
      ...(units ? { units } : {}),
    }),
  };
}

/**
 * The longest answer, in tokens, that the credits cover on every model; -1 when they do not cover the input.
 */
export function affordableOutput(models: readonly CatalogModel[], demand: Demand, credits: bigint): number {
  const { choices = 1, usesHourCache } = demand;
  const affordableTokens = models.map((model) =>
    affordableOutputTokens(model, { input: inputBound(model, demand), usesHourCache, credits }),
  );
  const leastTokens = Math.min(...affordableTokens);
  return leastTokens < 0 ? -1 : Math.floor(leastTokens / choices);
}

export interface Shortfall {
  /** The longest affordable answer in tokens; -1 when the credits do not cover the input. */
  maxOutput: number;
  price: bigint;
  available: bigint;
  cause?: unknown;
}

/** A 402 that names the affordable output limit. */
export function insufficientCredits(
  demand: Demand,
  { maxOutput, price, available, cause }: Shortfall,
): Problem {
  const member = demand.limit?.member ?? demand.limitMember;
  const isLimited = member !== undefined && maxOutput >= minimumOutput;
  const shortfall =
    'The credits of this account do not cover the call: ' +
    `it may cost ${price}, and ${available} are available.`;
  const message = isLimited ? `${shortfall} They cover an answer of ${maxOutput} tokens.` : shortfall;
  return new Problem('insufficient_credits', 'insufficient_credits', message, {
    cause,
    param: isLimited ? member : null,
    details: [
      { path: 'needed_credits', message: String(price) },
      { path: 'affordable_credits', message: String(available) },
      ...(isLimited ? [{ path: member, message: `at most ${maxOutput} is affordable` }] : []),
    ],
  });
}
