// When a call to a provider may be made again: which failures pass, how long to wait, and a budget that keeps retries
// from becoming the larger part of what a failing provider gets.
import type { Clock } from '../../../kernel/clock.ts';
import type { Problem } from '../../../kernel/problem.ts';
import { ConnectionFailure } from './provider-error.ts';

export interface RetrySettings {
  /** After the first attempt at a model. */
  retries: number;
  /** Doubled for each further retry, up to the longest. */
  firstDelayMs: number;
  longestDelayMs: number;
  /** A wait is shortened by up to this share, so that callers who failed together do not return together. */
  jitter: number;
  /** Retries as a share of the calls in the window; a few are always allowed, or a lone caller would get none. */
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

/** Whether the failure may be gone a moment later, and nothing of an answer had been made. */
export function isTransient(problem: Problem): boolean {
  if (problem.cause instanceof ConnectionFailure) return true;
  const { status } = (problem.cause ?? {}) as { status?: unknown };
  return typeof status === 'number' && transientStatuses.has(status);
}

/** How long to wait before retry number `retry`, counted from 0. The provider's own word wins. */
export function delayMs(
  problem: Problem,
  retry: number,
  { settings, random }: { settings: RetrySettings; random: () => number },
): number {
  const asked = problem.headers['retry-after'];
  if (asked !== undefined && (problem.cause as { asked?: unknown } | undefined)?.asked === true)
    return Number(asked) * 1000;
  const full = Math.min(settings.firstDelayMs * 2 ** retry, settings.longestDelayMs);
  return full * (1 - settings.jitter * random());
}

export interface RetryBudget {
  /** One call, the retries of it not counted. */
  recordCall(): void;
  /** Takes one retry; false when there is none left for now. */
  take(): boolean;
}

export function createRetryBudget({
  clock,
  settings,
}: {
  clock: Pick<Clock, 'monotonicMs'>;
  settings: RetrySettings;
}): RetryBudget {
  // Two halves of the window: the older one fades out as the newer fills, so that nothing is forgotten at once.
  let half = { startedMs: clock.monotonicMs(), calls: 0, retries: 0 };
  let before = { calls: 0, retries: 0 };

  function roll(): number {
    const halfMs = settings.budgetWindowMs / 2;
    const now = clock.monotonicMs();
    const passed = Math.floor((now - half.startedMs) / halfMs);
    if (passed >= 1) {
      before = passed === 1 ? half : { calls: 0, retries: 0 };
      half = { startedMs: half.startedMs + passed * halfMs, calls: 0, retries: 0 };
    }
    return 1 - (now - half.startedMs) / halfMs;
  }

  return {
    recordCall() {
      roll();
      half.calls += 1;
    },
    take() {
      const weight = roll();
      const calls = half.calls + before.calls * weight;
      const retries = half.retries + before.retries * weight;
      if (retries + 1 > Math.max(calls * settings.budgetShare, settings.budgetFloor)) return false;
      half.retries += 1;
      return true;
    },
  };
}
