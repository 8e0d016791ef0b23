// What keeps the ledger true while nobody looks: one heartbeat for all open holds of the process, the replay of the
// journal, the recovery of holds whose process is gone, the reconciliation, and the dropping of what is too old.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { Journal } from './journal.ts';
import type { ManagedLedger } from './ledger.ts';
import type { CreditsStore } from './store.ts';
import { verifyLedger } from './verify.ts';

/** Times of the ledger in milliseconds; tests pass small ones. */
export interface LedgerTimes {
  /** How long a hold lives without a sign of its process. */
  leaseMs: number;
  /** How old a lease may be before it is renewed. */
  renewEveryMs: number;
  /** How often checkpoints are written. */
  checkpointEveryMs: number;
  sweepEveryMs: number;
  verifyEveryMs: number;
}

export const defaultTimes: LedgerTimes = {
  leaseMs: 45_000,
  renewEveryMs: 10_000,
  checkpointEveryMs: 2_000,
  sweepEveryMs: 15_000,
  verifyEveryMs: 3_600_000,
};

export interface LedgerMaintenanceOptions {
  ledger: ManagedLedger;
  store: CreditsStore;
  journal: Journal;
  log: Log;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  times: LedgerTimes;
  /** Nobody else has this database open, so what is open at the start is nobody's. */
  isAlone: boolean;
  retentionDays: number;
}

export interface LedgerMaintenance {
  /** Settles and resolves what an earlier process left, then begins. */
  start(): Promise<void>;
  /** A heartbeat before its time. */
  renewSoon(): void;
  /** The database has answered just now. */
  recordDatabaseContact(): void;
  /** One round of recovery; says how many holds it resolved. */
  sweep(): Promise<number>;
  close(): Promise<void>;
}

const sweepLimit = 200;
const dropLimit = 1_000;
// Many streams together reach their next 256 tokens at every moment.
const renewalGapMs = 100;
const firstVerifyMs = 2_000;

export function createLedgerMaintenance(options: LedgerMaintenanceOptions): LedgerMaintenance {
  const { ledger, store, journal, log, clock, times, isAlone, retentionDays } = options;
  const shutdown = new AbortController();
  const { signal } = shutdown;
  const loops: Promise<void>[] = [];
  let wakeUp = new AbortController();
  let lastContactMs = clock.monotonicMs();
  let recoveryPausedUntilMs = Number.NEGATIVE_INFINITY;

  function recordDatabaseContact(): void {
    const nowMs = clock.monotonicMs();
    // So long without the database, others may not have been able to renew their leases either: they get the time to.
    if (nowMs - lastContactMs > times.leaseMs - times.renewEveryMs - times.checkpointEveryMs)
      recoveryPausedUntilMs = nowMs + times.leaseMs;
    lastContactMs = nowMs;
  }

  const pause = (ms: number): Promise<void> => clock.sleep(ms, signal).catch(() => undefined);

  /** Nothing here may end a loop: what fails is tried again in the next round. */
  async function runAndLog(failureMessage: string, work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error }, failureMessage);
    }
  }

  async function renewLoop(): Promise<void> {
    while (!signal.aborted) {
      await pause(renewalGapMs);
      await clock
        .sleep(times.checkpointEveryMs - renewalGapMs, AbortSignal.any([signal, wakeUp.signal]))
        .catch(() => undefined);
      wakeUp = new AbortController();
      await runAndLog('the open holds could not be renewed', () => ledger.renewLeases());
      if (ledger.hasJournalEntries())
        await runAndLog('the journal could not be settled yet', () => ledger.replay());
    }
  }

  async function recoverHolds(isForced: boolean): Promise<number> {
    for (let resolved = 0; ;) {
      const verdicts = await store.recover({ isForced, limit: sweepLimit });
      ledger.countRecovered(verdicts);
      resolved += verdicts.filter(({ verdict }) => verdict !== 'alive').length;
      if (verdicts.length < sweepLimit) {
        if (resolved > 0) log.warn({ holds: resolved }, 'resolved holds whose process was gone');
        return resolved;
      }
    }
  }

  async function sweep(): Promise<number> {
    await store.ping();
    recordDatabaseContact();
    if (clock.monotonicMs() < recoveryPausedUntilMs) return 0;
    await ledger.renewLeases();
    return recoverHolds(false);
  }

  async function sweepLoop(): Promise<void> {
    while (!signal.aborted) {
      await pause(times.sweepEveryMs);
      if (!signal.aborted) await runAndLog('holds could not be recovered', sweep);
    }
  }

  async function verifyLoop(): Promise<void> {
    await pause(Math.min(firstVerifyMs, times.verifyEveryMs));
    while (!signal.aborted) {
      await runAndLog('the ledger could not be verified', async () => {
        const { ok, faults: mismatches } = await verifyLedger(store, retentionDays, signal);
        ledger.recordVerification(mismatches.length);
        if (!ok) log.error({ faults: mismatches }, 'the ledger does not agree with itself');
      });
      await runAndLog('old holds could not be dropped', async () => {
        while ((await store.dropOldHolds(retentionDays, dropLimit)) === dropLimit);
      });
      // A file that another process has left, on a disk that outlived it.
      await runAndLog('the journal could not be settled yet', () => ledger.replay());
      await pause(times.verifyEveryMs);
    }
  }

  return {
    async start() {
      await journal.prepare();
      await runAndLog('the journal could not be settled yet', () => ledger.replay());
      if (isAlone) await recoverHolds(true);
      // It may be the database's own start too, after which the others have not come back yet.
      else recoveryPausedUntilMs = clock.monotonicMs() + times.leaseMs;
      lastContactMs = clock.monotonicMs();
      loops.push(renewLoop(), sweepLoop(), verifyLoop());
    },
    renewSoon: () => wakeUp.abort(),
    recordDatabaseContact,
    sweep,
    async close() {
      shutdown.abort();
      await Promise.all(loops);
    },
  };
}
