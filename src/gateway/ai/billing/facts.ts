// The usage record of a call.
import type { UsageFacts, UsageOutcome } from '../../usage/index.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { UsageCount } from './count.ts';

/** The attempts of the call, and the error code of its failure. */
export type CallAttempts = Pick<UsageFacts, 'attempts' | 'failureCode'>;

/** Times of the call, by the monotonic clock. */
export interface CallTimes {
  startedMs: number;
  firstMs: number | null;
  nowMs: number;
}

export function usageFacts(
  { action, model, attempts }: { action: string; model: CatalogModel; attempts: CallAttempts },
  outcome: UsageOutcome,
  { tokens, units, estimated }: UsageCount,
  { startedMs, firstMs, nowMs }: CallTimes,
): UsageFacts {
  return {
    action,
    model: model.id,
    provider: model.provider,
    tokens,
    units,
    outcome,
    estimated,
    ttftMs: firstMs === null ? null : Math.round(firstMs - startedMs),
    durationMs: Math.round(nowMs - startedMs),
    ...attempts,
  };
}
