// One run of a service: start, health checks and stop, each with a deadline. Nothing here throws:
// an error becomes the reason for the run's failure.
import { pause, TimeoutError, withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { ServiceDefinition } from '../service-definition.ts';

export interface RunLimits {
  /** Deadline of an attempt to start, and below of a stop. */
  startMs: number;
  stopMs: number;
  /** Interval between two health checks, and the deadline of each. */
  healthMs: number;
  /** Consecutive failed health checks that end a run. */
  healthMisses: number;
}

export interface ServiceRun {
  /** Aborted when the run ends. */
  readonly signal: AbortSignal;
  /** Null once the service runs, else the reason why it does not. `interrupt` ends the wait. */
  start(interrupt: AbortSignal): Promise<string | null>;
  /** The reason when the service fails; null when `interrupt` is aborted first. */
  watch(interrupt: AbortSignal): Promise<string | null>;
  /** Resolves within `stopMs`, whether or not the service has ended by then. */
  stop(): Promise<void>;
}

export function createRun(
  definition: ServiceDefinition,
  { limits, clock, log }: { limits: RunLimits; clock: Clock; log: Log },
): ServiceRun {
  const end = new AbortController();
  const failureController = new AbortController();
  let failure: string | null = null;

  function fail(reason: string): void {
    if (end.signal.aborted || failure !== null) return;
    failure = String(reason).toWellFormed().slice(0, 500);
    failureController.abort();
  }

  const withDeadline = <T>(work: () => Promise<T>, ms: number, signal?: AbortSignal): Promise<T> =>
    withTimeout(async () => work(), { ms, clock, signal });

  async function isHealthy(): Promise<boolean> {
    const check = async () => definition.healthy === undefined || definition.healthy();
    return withDeadline(check, limits.healthMs).catch(() => false);
  }

  return {
    signal: end.signal,
    async start(interrupt) {
      const cancel = AbortSignal.any([interrupt, failureController.signal]);
      try {
        const context = { signal: end.signal, log, failed: fail };
        await withDeadline(() => definition.start(context), limits.startMs, cancel);
      } catch (error) {
        if (!interrupt.aborted) log.warn({ err: error }, 'a service did not start');
        fail(describeStartError(error, limits.startMs));
      }
      return failure;
    },
    async watch(interrupt) {
      const cancel = AbortSignal.any([interrupt, failureController.signal]);
      if (definition.healthy === undefined) await untilAborted(cancel);
      let missCount = 0;
      while (!cancel.aborted) {
        await pause(limits.healthMs, { clock, signal: cancel });
        if (cancel.aborted) break;
        missCount = (await isHealthy()) ? 0 : missCount + 1;
        if (missCount >= limits.healthMisses) fail('Its health checks failed.');
      }
      return failure;
    },
    async stop() {
      end.abort();
      try {
        await withDeadline(() => definition.stop(), limits.stopMs);
      } catch (error) {
        log.warn({ err: error }, 'a service did not stop without errors');
      }
    },
  };
}

// Texts of foreign errors may contain secrets, so only a Problem's text is shown.
function describeStartError(error: unknown, startMs: number): string {
  if (error instanceof TimeoutError) return `It did not start within ${startMs / 1000} seconds.`;
  return error instanceof Problem ? error.message : 'It failed to start; the log has the details.';
}

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
