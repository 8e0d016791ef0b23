// Starts the inputs that wait while this process executes as many runs as it may: the oldest first, each time
// a run ends.
import type { Log } from '../../../kernel/log.ts';
import type { EventLog } from '../event-log/log.ts';
import type { LocalRuns } from './local-runs.ts';
import { startQueued, type SettlementRules } from './settlement.ts';
import type { RunStore } from './store.ts';
import type { StartedRun } from './submission.ts';

export interface DispatcherOptions {
  eventLog: Pick<EventLog, 'transact'>;
  runStore: Pick<RunStore, 'idleQueues'>;
  rules: SettlementRules;
  localRuns: Pick<LocalRuns, 'freePlaces'>;
  start(started: StartedRun): void;
  /** The database did not answer: start the waiting inputs later. */
  retryLater(): void;
  log: Log;
}

export interface Dispatcher {
  /** Whether inputs wait for a free place, as far as this process knows. New inputs then queue up behind them. */
  hasWaiting(): boolean;
  /** An input waits, or a place may be free: starts what may start. */
  wake(hasNewInput: boolean): void;
  /** Starts waiting inputs until the places or the inputs are used up. */
  startWaiting(): Promise<void>;
}

export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { rules, localRuns, retryLater, log } = options;
  let hasWaiting = false;
  let isRequested = false;
  let round: Promise<void> | undefined;

  async function startUntilSettled(): Promise<void> {
    while (isRequested) {
      isRequested = false;
      const isEmpty = await startIdleQueues(options);
      // Otherwise an input came meanwhile, and the queues are read again.
      if (!isRequested) hasWaiting = !isEmpty;
    }
  }

  function startWaiting(): Promise<void> {
    isRequested = true;
    round ??= startUntilSettled().finally(() => (round = undefined));
    return round;
  }

  return {
    hasWaiting: () => hasWaiting,
    startWaiting,
    wake(hasNewInput) {
      if (hasNewInput) {
        hasWaiting = true;
        // The round may have read the queues before the input was in them.
        if (round !== undefined) isRequested = true;
      }
      if (!hasWaiting || localRuns.freePlaces() === 0 || !rules.mayStartNext()) return;
      startWaiting().catch((error: unknown) => {
        retryLater();
        log.warn({ err: error }, 'waiting inputs could not be started; this is tried again');
      });
    },
  };
}

/** True when no input waits any more. */
async function startIdleQueues(options: DispatcherOptions): Promise<boolean> {
  const { runStore, rules, localRuns, start } = options;
  for (;;) {
    const places = localRuns.freePlaces();
    const sessionKeys = await runStore.idleQueues(rules.agentId, places + 1);
    for (const sessionKey of sessionKeys) {
      // While the process drains, nothing starts, and the queues stay as they are.
      if (localRuns.freePlaces() === 0 || !rules.mayStartNext()) return false;
      const started = await startFirst(options, sessionKey);
      if (started) start(started);
    }
    if (sessionKeys.length <= places) return true;
  }
}

/** A run whose start fails is claimed no longer: it would take up a place for ever. */
async function startFirst(
  { eventLog, rules }: DispatcherOptions,
  sessionKey: string,
): Promise<StartedRun | null> {
  const claimedIds: string[] = [];
  const claim = (runId: string): void => {
    claimedIds.push(runId);
    rules.claim(runId);
  };
  try {
    return await eventLog.transact((unit) => startQueued(unit, sessionKey, { ...rules, claim }));
  } catch (error) {
    for (const runId of claimedIds) rules.release(runId);
    throw error;
  }
}
