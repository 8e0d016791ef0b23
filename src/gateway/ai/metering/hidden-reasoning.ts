// Reasoning that a provider bills without showing it. When the caller disconnects before the provider has
// reported usage, the reasoning tokens are estimated from the time without visible output.
import type { CatalogModel } from '../catalog/catalog.ts';

// Reasoning models generate 50 to 150 tokens a second.
const tokensPerSecond = 64;
// Time until a model begins to generate. Without reasoning, the first text arrives after it.
const startMs = 1_000;

/** Whether the model reasons at this effort, or at its default effort without one. */
export function reasonsAt(
  { reasoning }: Pick<CatalogModel, 'reasoning'>,
  effort: string | undefined,
): boolean {
  return reasoning !== undefined && (effort ?? reasoning.default_effort) !== 'none';
}

/** Estimates the reasoning tokens from the time between the request and the first visible text. */
export function hiddenReasoningTokens(silentMs: number): number {
  return Math.floor((Math.max(silentMs - startMs, 0) / 1_000) * tokensPerSecond);
}
