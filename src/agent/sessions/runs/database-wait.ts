// Waits while the database is unavailable for a short time, so that an outage does not fail a run.
import { retry } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { asProblem } from '../../../kernel/problem.ts';

/** How long a run waits for its database. */
export const databaseWaitMs = 120_000;

const maxDelayMs = 2_000;

export function databaseDelayMs(attempt: number): number {
  return Math.min(maxDelayMs, 100 * 2 ** (attempt - 1));
}

export function isDatabaseUnavailable(error: unknown): boolean {
  return asProblem(error).code === 'database_unavailable';
}

/** Repeats idempotent work, such as reading, until the database is available. */
export function untilAvailable<T>(
  work: () => Promise<T>,
  { clock, signal }: { clock: Clock; signal: AbortSignal },
): Promise<T> {
  const deadlineMs = clock.monotonicMs() + databaseWaitMs;
  return retry(work, {
    isRetryable: (error) => isDatabaseUnavailable(error) && clock.monotonicMs() < deadlineMs,
    delayMs: databaseDelayMs,
    clock,
    signal,
  });
}
