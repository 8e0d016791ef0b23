// The charged usage of a call: the provider's report if it is plausible, otherwise
// the gateway's own count.
import { minBigInt } from '../../../kernel/bigint.ts';
import type { UsageOutcome } from '../../usage/index.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { Bound, Demand } from '../metering/bound.ts';
import { noTokens, priceOf, type Tokens, type Units } from '../metering/price.ts';
import { hiddenReasoningTokens } from '../metering/hidden-reasoning.ts';
import { isAbsurd, tokensOfRequest, tokensOfText } from '../metering/token-count.ts';
import type { Progress } from './progress.ts';

export interface UsageCount {
  tokens: Tokens;
  units: Units;
  estimated: boolean;
  /** Whether all tokens are the gateway's own estimate. */
  isOwnCount: boolean;
  /** Why the provider's usage is rejected: not a count, or far above the bound. */
  doubt: 'faulty' | 'absurd' | undefined;
}

/** The request and the outcome of a call. */
export interface CountInput {
  demand: Demand;
  bound: Bound;
  progress: Progress;
  /**
   * When the caller disconnected, by the monotonic clock; undefined for an answer that was read to
   * its end.
   */
  disconnectedMs?: number | undefined;
  /** Units to charge when the caller disconnected before any units were recorded. */
  unitsIfDisconnected?: Units | undefined;
}

export const nothingUsed: UsageCount = {
  tokens: noTokens,
  units: {},
  estimated: false,
  isOwnCount: false,
  doubt: undefined,
};

/** The usage of the answer up to now. A call that the gateway itself rejected has no usage. */
export function countUsage(outcome: UsageOutcome, input: CountInput): UsageCount {
  if (outcome === 'rejected') return nothingUsed;
  const count = countTokens(input);
  const { units, estimated } = input.progress.media;
  const { unitsIfDisconnected } = input;
  const hasUnits = Object.keys(units).length > 0;
  if (outcome === 'client_closed' && unitsIfDisconnected !== undefined && !hasUnits)
    return { ...count, units: unitsIfDisconnected, estimated: true };
  return { ...count, units, estimated: count.estimated || estimated };
}

function countTokens(input: CountInput): UsageCount {
  const { demand, bound, progress } = input;
  const { claim } = progress;
  if (demand.size === undefined) return nothingUsed;
  if (claim === undefined || claim === 'faulty')
    return { ...nothingUsed, tokens: estimateTokens(input), estimated: true, isOwnCount: true, doubt: claim };
  const limit = outputLimit(bound);
  if (isAbsurd(claim.tokens, { input: bound.input, output: limit })) {
    const tokens = { ...noTokens, input: bound.input, output: limit };
    return { ...nothingUsed, tokens, estimated: true, doubt: 'absurd' };
  }
  if (claim.isFinal) return { ...nothingUsed, tokens: claim.tokens };
  // The provider reported usage only at the start of the stream: estimate the output.
  const { output, reasoning } = estimateTokens(input);
  const tokens = { ...claim.tokens, output: Math.max(claim.tokens.output, output), reasoning };
  return { ...nothingUsed, tokens, estimated: true };
}

/** Reserved output tokens of all answers together. */
export function outputLimit({ output, choices }: Bound): number {
  return output * choices;
}

/** The gateway's own estimate. The output limit caps it, so it stays within the bound of the call. */
function estimateTokens(input: CountInput): Tokens {
  const { demand, bound, progress } = input;
  const { bytes } = progress;
  const limit = outputLimit(bound);
  const output = Math.min(tokensOfText(bytes.output), limit);
  const reasoning = bytes.reasoning > 0 ? tokensOfText(bytes.reasoning) : estimateHidden(input);
  return {
    ...noTokens,
    input: estimateInput(demand, bound),
    output,
    reasoning: Math.min(reasoning, limit - output),
  };
}

/** Reasoning that the provider hides, from the time that the model spent before its first output. */
function estimateHidden({ progress, disconnectedMs }: CountInput): number {
  const { reasoningSinceMs, firstMs } = progress;
  if (reasoningSinceMs === undefined || disconnectedMs === undefined) return 0;
  return hiddenReasoningTokens((firstMs ?? disconnectedMs) - reasoningSinceMs);
}

function estimateInput({ size, repeatedBytes }: Demand, bound: Bound): number {
  return size === undefined ? 0 : Math.min(tokensOfRequest(size, repeatedBytes), bound.input);
}

/** The price of the input alone, by the gateway's own count: the minimum cost of a sent request. */
export function inputPrice(model: CatalogModel, demand: Demand, bound: Bound): bigint {
  return priceOf(model, { tokens: { ...noTokens, input: estimateInput(demand, bound) } });
}

/**
 * The credits to charge. An absurd usage is charged at the bound, because the request may really have
 * cost that much. The gateway's own count never costs more than the reservation.
 */
export function priceToCharge(
  model: CatalogModel,
  count: UsageCount,
  { bound, reserved }: { bound: Bound; reserved: bigint },
): bigint {
  if (count.doubt === 'absurd') return minBigInt(bound.credits, reserved);
  const price = priceOf(model, count);
  return count.isOwnCount ? minBigInt(price, reserved) : price;
}
