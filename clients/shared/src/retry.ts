// Retries a call after a transient failure, within one deadline for all attempts.

import { ClientError } from './client-error.ts';
import { sleep } from './sleep.ts';

export interface RetryOptions {
  maxRetries: number;
  /** The time for all attempts and the waits between them; 0 means no limit. */
  limitMs: number;
  signal: AbortSignal | undefined;
  /** Whether the call may be repeated after a failure with an unknown effect on the server. */
  isRepeatable: boolean;
}

const firstDelayMs = 500;
const longestDelayMs = 8_000;
// When the server asks for a longer wait, the call fails; the program itself should retry later.
const longestWaitMs = 60_000;

/** `attempt` receives the remaining time, 0 for no limit. Rejects with the error of the last attempt. */
export async function withRetries<Result>(
  attempt: (limitMs: number) => Promise<Result>,
  { maxRetries, limitMs, signal, isRepeatable }: RetryOptions,
): Promise<Result> {
  const startedMs = performance.now();
  for (let retries = 0; ; retries += 1) {
    const elapsedMs = performance.now() - startedMs;
    try {
      return await attempt(limitMs === 0 ? 0 : Math.max(1, limitMs - elapsedMs));
    } catch (error) {
      const delayMs = retries < maxRetries ? delayBefore(error, { retries, isRepeatable }) : undefined;
      const leftMs = limitMs === 0 ? Infinity : limitMs - (performance.now() - startedMs);
      if (delayMs === undefined || delayMs >= leftMs) throw error;
      await sleep(delayMs, signal);
    }
  }
}

/** The wait before the next attempt; undefined when there is none. */
function delayBefore(
  error: unknown,
  { retries, isRepeatable }: { retries: number; isRepeatable: boolean },
): number | undefined {
  if (!(error instanceof ClientError) || !error.retryable) return undefined;
  // A server that responds with 429 or 503 has not executed the call; after any other failure it may have.
  if (!isRepeatable && error.status !== 429 && error.status !== 503) return undefined;
  const waitMs = error.retryAfterMs ?? 0;
  if (waitMs > longestWaitMs) return undefined;
  const delayMs = Math.min(longestDelayMs, firstDelayMs * 2 ** retries);
  // Jitter, so that many clients of one server do not retry at the same moment.
  return Math.max(waitMs, delayMs * (0.75 + Math.random() * 0.25));
}
