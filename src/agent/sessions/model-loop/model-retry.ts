// Decides whether a failed model call is repeated, and waits before the repetition. A broken stream or a
// failing provider is retried a few times; with a rate limit or an open circuit breaker the run waits.
import type { Clock } from '../../../kernel/clock.ts';
import type { Problem } from '../../../kernel/problem.ts';
import type { SessionEvent } from '../event-log/events.ts';
import { modelProblem, retryAfterMs } from './model-problem.ts';

export interface ModelRetryLimits {
  /** Retries of one step. */
  modelRetries: number;
  /** How long a run may wait for models in total. */
  modelWaitMs: number;
}

export interface ModelRetry {
  /**
   * Waits, and resolves with true when the call should be made again; resolves with false when its failure is
   * final. Rejects when the run is aborted during the wait.
   */
  recover(error: unknown, step: number): Promise<boolean>;
}

interface ModelRetryOptions extends ModelRetryLimits {
  record(events: SessionEvent[]): Promise<unknown>;
  clock: Clock;
  signal: AbortSignal;
}

const firstDelayMs = 500;
const maxRetryDelayMs = 8_000;
const maxWaitDelayMs = 30_000;
// Failures that a retry cannot fix.
const finalCodes = new Set<string>(['provider_credentials', 'upstream_refused']);

/** Creates the retries of one run. Retries are counted per step, waits over the whole run. */
export function createModelRetry(options: ModelRetryOptions): ModelRetry {
  const { modelRetries, modelWaitMs, record, clock, signal } = options;
  let step = 0;
  let retries = 0;
  let waitCount = 0;
  let waitedMs = 0;

  async function wait(problem: Problem, delayMs: number): Promise<boolean> {
    if (waitedMs + delayMs > modelWaitMs) return false;
    waitCount += 1;
    waitedMs += delayMs;
    const untilTime = new Date(clock.now().getTime() + delayMs).toISOString();
    const reason = problem.kind === 'rate_limited' ? 'rate_limited' : 'model_unavailable';
    await record([{ type: 'run.waiting', step, reason, until: untilTime, code: problem.code }]);
    await clock.sleep(delayMs, signal);
    return true;
  }

  async function retry(problem: Problem): Promise<boolean> {
    if (retries >= modelRetries) return false;
    retries += 1;
    const delayMs = backoffMs(retries, maxRetryDelayMs);
    await record([{ type: 'run.retrying', step, attempt: retries, delayMs, code: problem.code }]);
    await clock.sleep(delayMs, signal);
    return true;
  }

  return {
    async recover(error, failedStep) {
      if (signal.aborted) return false;
      if (failedStep !== step) [step, retries, waitCount] = [failedStep, 0, 0];
      const problem = modelProblem(error);
      if (finalCodes.has(problem.code)) return false;
      const requestedMs = retryAfterMs(error);
      const isLimit = problem.kind === 'rate_limited' || problem.kind === 'unavailable';
      const isFailure = problem.kind === 'upstream_failed' || problem.kind === 'upstream_timeout';
      // An open circuit breaker returns the error of a failed provider with a `retry-after`.
      if (isLimit || (isFailure && requestedMs !== undefined))
        return wait(problem, Math.max(requestedMs ?? 0, backoffMs(waitCount + 1, maxWaitDelayMs)));
      return isFailure && retry(problem);
    },
  };
}

function backoffMs(attempt: number, maxMs: number): number {
  return Math.min(maxMs, firstDelayMs * 2 ** (attempt - 1));
}
