// Starts the inputs that wait because this process executes its maximum number of runs: the oldest first,
// whenever a run ends.
import type { Log } from '../../../kernel/log.ts';
import type { EventLog } from '../event-log/log.ts';
import type { LocalRuns } from './local-runs.ts';
import { isUnavailable } from './problems.ts';
import { releasingClaims, startQueued, type SettlementRules } from './settlement.ts';
import type { RunStore } from './store.ts';
import type { StartedRun } from './submission.ts';

export interface DispatcherOptions {
  eventLog: Pick<EventLog, 'transact'>;
  runStore: Pick<RunStore, 'idleQueues'>;
  rules: SettlementRules;
  localRuns: Pick<LocalRuns, 'freePlaces'>;
  start(started: StartedRun): void;
  /** Called when the waiting inputs could not be started, so that a later sweep starts them. */
  retryLater(): void;
  log: Log;
}

export interface Dispatcher {
  /**
   * Whether inputs wait for a free place, as far as this process knows. New inputs then queue up
   * after them.
   */
  hasWaiting(): boolean;
  /** Called when an input has begun to wait for a free place. */
  announceInput(): void;
  /** Called when a place may be free. */
  announceFreePlace(): void;
  /** Starts waiting inputs until no place is free or no input waits. */
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
      // If an input was announced in the meantime, the loop reads the queues again.
      if (!isRequested) hasWaiting = !isEmpty;
    }
  }

  function startWaiting(): Promise<void> {
    isRequested = true;
    round ??= startUntilSettled().finally(() => (round = undefined));
    return round;
  }

  function startInBackground(): void {
    if (!hasWaiting || localRuns.freePlaces() === 0 || !rules.mayStartNext()) return;
    startWaiting().catch((error: unknown) => {
      retryLater();
      log.warn({ err: error }, 'waiting inputs could not be started; retrying');
    });
  }

  return {
    hasWaiting: () => hasWaiting,
    startWaiting,
    announceInput() {
      hasWaiting = true;
      // The current round may have read the queues before the input was in them.
      if (round !== undefined) isRequested = true;
      startInBackground();
    },
    announceFreePlace: startInBackground,
  };
}

// With more failures, the cause is more general than a broken session, and the round ends.
const maxFailures = 100;

/**
 * Returns whether all waiting inputs were started. A session whose start fails does not delay the others: the
 * round continues without it and throws its error at the end.
 */
async function startIdleQueues(options: DispatcherOptions): Promise<boolean> {
  const { runStore, rules, localRuns, start, log } = options;
  const failures = new Map<string, unknown>();
  for (;;) {
    const places = localRuns.freePlaces();
    const sessionKeys = await runStore.idleQueues(rules.agentId, places + 1, [...failures.keys()]);
    for (const sessionKey of sessionKeys) {
      // Without a free place, or while the process drains, the remaining queues stay as they are.
      if (localRuns.freePlaces() === 0 || !rules.mayStartNext()) return endRound(failures, false);
      try {
        const startedRun = await startFirst(options, sessionKey);
        if (startedRun) start(startedRun);
      } catch (error) {
        if (isUnavailable(error) || failures.size === maxFailures) throw error;
        log.warn({ sessionKey, err: error }, 'the first input of a session could not be started');
        failures.set(sessionKey, error);
      }
    }
    if (sessionKeys.length <= places) return endRound(failures, true);
  }
}

function endRound(failures: ReadonlyMap<string, unknown>, isEmpty: boolean): boolean {
  const [firstFailure] = failures.values();
  if (failures.size > 0) throw firstFailure;
  return isEmpty;
}

/** Starts the first input of a session. */
function startFirst({ eventLog, rules }: DispatcherOptions, sessionKey: string): Promise<StartedRun | null> {
  return releasingClaims(rules, (ownRules) =>
    eventLog.transact((unit) => startQueued(unit, sessionKey, ownRules)),
  );
}
