// Retries of calls to providers: which failures are transient, how long to wait (exponential
// backoff with jitter), and a retry budget that bounds the extra load on a failing provider.
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';
import { ConnectionFailure, providerStatusOf } from './provider-error.ts';

export interface RetrySettings {
  /** Retries after the first attempt at a model. */
  retries: number;
  /**
   * The delay before the first retry; it doubles with each further retry, up to `longestDelayMs`.
   */
  firstDelayMs: number;
  longestDelayMs: number;
  /**
   * Each delay is shortened by a random share of up to this much, so that calls that failed
   * together do not retry together.
   */
  jitter: number;
  /**
   * Highest share of retries among the calls in the window; `budgetFloor`
   * retries are always allowed.
   */
  budgetShare: number;
  budgetFloor: number;
  budgetWindowMs: number;
}

export const defaultRetrySettings: RetrySettings = {
  retries: 2,
  firstDelayMs: 500,
  longestDelayMs: 8_000,
  jitter: 0.25,
  budgetShare: 0.2,
  budgetFloor: 10,
  budgetWindowMs: 30_000,
};

const transientStatuses = new Set([408, 429, 500, 502, 503, 504, 529]);

const failuresBeforeContent = new WeakSet<Problem>();

/**
 * Marks the error of a stream that broke off before its first content. Such a call can be repeated,
 * as the caller has received nothing yet.
 */
export function markBeforeContent(error: unknown): void {
  if (error instanceof Problem && error.code === 'upstream_truncated') failuresBeforeContent.add(error);
}

/**
 * Whether a retry may succeed: the stream broke off before its content, the connection failed, or
 * the provider answered with a transient status.
 */
export function isTransient(problem: Problem): boolean {
  if (problem.cause instanceof ConnectionFailure || failuresBeforeContent.has(problem)) return true;
  const status = providerStatusOf(problem);
  return status !== undefined && transientStatuses.has(status);
}

/**
 * How long to wait before retry number `retry`, counted from 0. A `Retry-After` of
 * the provider takes precedence.
 */
export function delayMs(
  problem: Problem,
  retry: number,
  { settings, random }: { settings: RetrySettings; random: () => number },
): number {
  const retryAfter = problem.headers['retry-after'];
  const cause = problem.cause as { hasRetryAfter?: unknown } | undefined;
  if (retryAfter !== undefined && cause?.hasRetryAfter === true) return Number(retryAfter) * 1000;
  const backoffMs = Math.min(settings.firstDelayMs * 2 ** retry, settings.longestDelayMs);
  return backoffMs * (1 - settings.jitter * random());
}

export interface RetryBudget {
  /** Counts one call; its retries are not counted. */
  recordCall(): void;
  /** Takes one retry from the budget; false when it is used up. */
  take(): boolean;
}

export function createRetryBudget({
  clock,
  settings,
}: {
  clock: Pick<Clock, 'monotonicMs'>;
  settings: RetrySettings;
}): RetryBudget {
  // A sliding window of two halves: the older half loses weight as the newer half passes.
  const halfMs = settings.budgetWindowMs / 2;
  let newerHalf = { startedMs: clock.monotonicMs(), calls: 0, retries: 0 };
  let olderHalf = { calls: 0, retries: 0 };

  /** Starts a new half when it is due, and returns the weight of the older half. */
  function slideWindow(): number {
    const nowMs = clock.monotonicMs();
    const elapsedHalves = Math.floor((nowMs - newerHalf.startedMs) / halfMs);
    if (elapsedHalves >= 1) {
      olderHalf = elapsedHalves === 1 ? newerHalf : { calls: 0, retries: 0 };
      newerHalf = { startedMs: newerHalf.startedMs + elapsedHalves * halfMs, calls: 0, retries: 0 };
    }
    return 1 - (nowMs - newerHalf.startedMs) / halfMs;
  }

  return {
    recordCall() {
      slideWindow();
      newerHalf.calls += 1;
    },
    take() {
      const weight = slideWindow();
      const calls = newerHalf.calls + olderHalf.calls * weight;
      const retries = newerHalf.retries + olderHalf.retries * weight;
      if (retries + 1 > Math.max(calls * settings.budgetShare, settings.budgetFloor)) return false;
      newerHalf.retries += 1;
      return true;
    },
  };
}
