// Reasoning that a provider bills and does not show. When the caller leaves, the provider has told no usage, so the time
// in which it sent nothing visible is all that is known of it.
import type { CatalogModel } from '../catalog/catalog.ts';

// Reasoning models generate 50 to 150 tokens a second.
const tokensPerSecond = 64;
// Until a model begins to generate; a call without reasoning has its first text then.
const startMs = 1_000;

/** Whether the model reasons at this effort; without one at its default effort. */
export function reasonsAt(
  { reasoning }: Pick<CatalogModel, 'reasoning'>,
  effort: string | undefined,
): boolean {
  return reasoning !== undefined && (effort ?? reasoning.default_effort) !== 'none';
}

/** Estimate of the tokens for the time between the request and the first visible text. */
export function hiddenReasoningTokens(silentMs: number): number {
  return Math.floor((Math.max(silentMs - startMs, 0) / 1_000) * tokensPerSecond);
}
