// One run of a service: start, health checks and stop, each with a deadline. Nothing here throws:
// an error becomes the reason for the run's failure.
import { pause, withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { startOfText } from '../../kernel/start-of-text.ts';
import type { ServiceDefinition } from '../service-definition.ts';
import { describeStartError } from '../start-error.ts';

export interface RunLimits {
  /** Deadline of an attempt to start. */
  startMs: number;
  /** Deadline of a stop. */
  stopMs: number;
  /** Interval between two health checks, and the deadline of each. */
  healthMs: number;
  /** Consecutive failed health checks that end a run. */
  healthMisses: number;
}

export interface ServiceRun {
  /** Aborted when the run ends. */
  readonly signal: AbortSignal;
  /** Resolves with null once the service runs, else with the reason why not. `interrupt` ends the wait. */
  start(interrupt: AbortSignal): Promise<string | null>;
  /** Resolves with the reason when the service fails, and with null when `interrupt` is aborted first. */
  watch(interrupt: AbortSignal): Promise<string | null>;
  /** Resolves within `stopMs`, whether or not the service has ended by then. */
  stop(): Promise<void>;
}

interface RunState {
  readonly definition: ServiceDefinition;
  readonly limits: RunLimits;
  readonly clock: Clock;
  readonly log: Log;
  readonly end: AbortController;
  readonly failureController: AbortController;
  failure: string | null;
}

export function createRun(
  definition: ServiceDefinition,
  { limits, clock, log }: { limits: RunLimits; clock: Clock; log: Log },
): ServiceRun {
  const end = new AbortController();
  const failureController = new AbortController();
  const run: RunState = { definition, limits, clock, log, end, failureController, failure: null };
  return {
    signal: end.signal,
    start: (interrupt) => start(run, interrupt),
    watch: (interrupt) => watch(run, interrupt),
    stop: () => stop(run),
  };
}

async function start(run: RunState, interrupt: AbortSignal): Promise<string | null> {
  const { definition, limits, clock, log, end, failureController } = run;
  const cancel = AbortSignal.any([interrupt, failureController.signal]);
  const context = { signal: end.signal, log, failed: (reason: string) => fail(run, reason) };
  try {
    await withTimeout(async () => definition.start(context), { ms: limits.startMs, clock, signal: cancel });
  } catch (error) {
    if (!interrupt.aborted) log.warn({ err: error }, 'a service did not start');
    fail(run, describeStartError(error, limits.startMs));
  }
  return run.failure;
}

async function watch(run: RunState, interrupt: AbortSignal): Promise<string | null> {
  const { definition, limits, clock, failureController } = run;
  const cancel = AbortSignal.any([interrupt, failureController.signal]);
  if (definition.healthy === undefined) await untilAborted(cancel);
  let missCount = 0;
  while (!cancel.aborted) {
    await pause(limits.healthMs, { clock, signal: cancel });
    if (cancel.aborted) break;
    const isServiceHealthy = await isHealthy(run, cancel);
    // An interrupted check is no miss.
    if (cancel.aborted) break;
    missCount = isServiceHealthy ? 0 : missCount + 1;
    if (missCount >= limits.healthMisses) fail(run, 'Its health checks failed.');
  }
  return run.failure;
}

/** False as well when the check fails, or does not end before its deadline and before `cancel` is aborted. */
async function isHealthy({ definition, limits, clock }: RunState, cancel: AbortSignal): Promise<boolean> {
  const check = async () => definition.healthy === undefined || definition.healthy();
  return withTimeout(check, { ms: limits.healthMs, clock, signal: cancel }).catch(() => false);
}

async function stop({ definition, limits, clock, log, end }: RunState): Promise<void> {
  end.abort();
  try {
    await withTimeout(async () => definition.stop(), { ms: limits.stopMs, clock });
  } catch (error) {
    log.warn({ err: error }, 'a service did not stop without errors');
  }
}

/** Records the first failure. Ignores later ones, and failures after the end of the run. */
function fail(run: RunState, reason: string): void {
  if (run.end.signal.aborted || run.failure !== null) return;
  run.failure = startOfText(String(reason), 500);
  run.failureController.abort();
}

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
