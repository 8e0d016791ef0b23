// Background maintenance of the ledger: renews the leases of open holds, replays the
// journal, recovers holds whose process is gone, verifies the ledger hourly and deletes
// holds beyond their retention.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { SettlementJournal } from './journal/settlements.ts';
import type { HoldLedger } from './ledger.ts';
import type { AllotmentStore } from './allotments/store.ts';
import type { CreditsStore } from './core/store.ts';
import { verifyLedger } from './core/verify.ts';

/** Times of the ledger in milliseconds; tests pass small ones. */
export interface LedgerTimes {
  /** A hold whose lease is not renewed for this long is recovered. */
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
  ledger: HoldLedger;
  store: CreditsStore;
  allotments: Pick<AllotmentStore, 'dropOld'>;
  journal: SettlementJournal;
  log: Log;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  times: LedgerTimes;
  /**
   * No other process has this database open: every hold that is open at the
   * start is recovered at once.
   */
  isAlone: boolean;
  retentionDays: number;
}

export interface LedgerMaintenance {
  /**
   * Replays the journal, recovers all open holds if no other process has the database open, and starts the
   * loops.
   */
  start(): Promise<void>;
  /** Renews leases and writes checkpoints before the next interval. */
  renewSoon(): void;
  /** Records a response of the database. */
  recordDatabaseContact(): void;
  /** Runs one round of recovery. Returns the number of resolved holds. */
  sweep(): Promise<number>;
  close(): Promise<void>;
}

const sweepLimit = 200;
const dropLimit = 1_000;
// Parallel streams request early renewals all the time, so at most one runs per 100 ms.
const renewalGapMs = 100;
const firstVerifyMs = 2_000;

/** What the loops share: their options, and the signals that end or wake them. */
interface Maintenance {
  readonly options: LedgerMaintenanceOptions;
  readonly recovery: HoldRecovery;
  /** Aborted by `close`. */
  readonly signal: AbortSignal;
  /** Ends the pause of the renewal loop early; each round has a new controller. */
  wakeUp: AbortController;
}

export function createLedgerMaintenance(options: LedgerMaintenanceOptions): LedgerMaintenance {
  const recovery = createHoldRecovery(options);
  const shutdown = new AbortController();
  const { signal } = shutdown;
  const maintenance: Maintenance = { options, recovery, signal, wakeUp: new AbortController() };
  const loops: Promise<void>[] = [];
  return {
    async start() {
      await options.journal.prepare();
      await settleJournal(maintenance);
      await recovery.start();
      loops.push(renewLoop(maintenance), sweepLoop(maintenance), verifyLoop(maintenance));
    },
    renewSoon: () => maintenance.wakeUp.abort(),
    recordDatabaseContact: recovery.recordDatabaseContact,
    sweep: recovery.sweep,
    async close() {
      shutdown.abort();
      await Promise.all(loops);
    },
  };
}

async function renewLoop(maintenance: Maintenance): Promise<void> {
  const { options, signal } = maintenance;
  const { ledger, clock, times } = options;
  let isLastRound = false;
  while (!isLastRound) {
    await pause(maintenance, renewalGapMs);
    await clock
      .sleep(times.checkpointEveryMs - renewalGapMs, AbortSignal.any([signal, maintenance.wakeUp.signal]))
      .catch(() => undefined);
    maintenance.wakeUp = new AbortController();
    // The last round begins after `close`: it writes the checkpoints and settlements that are still waiting,
    // also those that arrived while the previous round was writing.
    isLastRound = signal.aborted;
    await runAndLog(maintenance, 'the open holds could not be renewed', () => ledger.renewLeases());
    if (ledger.hasJournalEntries()) await settleJournal(maintenance);
  }
}

async function sweepLoop(maintenance: Maintenance): Promise<void> {
  const { options, recovery, signal } = maintenance;
  while (!signal.aborted) {
    await pause(maintenance, options.times.sweepEveryMs);
    if (!signal.aborted) await runAndLog(maintenance, 'holds could not be recovered', recovery.sweep);
  }
}

async function verifyLoop(maintenance: Maintenance): Promise<void> {
  const { options, signal } = maintenance;
  const { verifyEveryMs } = options.times;
  await pause(maintenance, Math.min(firstVerifyMs, verifyEveryMs));
  while (!signal.aborted) {
    await runAndLog(maintenance, 'the ledger could not be verified', () => verifyAndLog(options, signal));
    await runAndLog(maintenance, 'old holds and allotments could not be dropped', () => dropOldRows(options));
    // Another process may have left files on a shared disk.
    await settleJournal(maintenance);
    await pause(maintenance, verifyEveryMs);
  }
}

function pause({ options, signal }: Maintenance, ms: number): Promise<void> {
  return options.clock.sleep(ms, signal).catch(() => undefined);
}

function settleJournal(maintenance: Maintenance): Promise<void> {
  return runAndLog(maintenance, 'the journal could not be settled yet', () =>
    maintenance.options.ledger.replay(),
  );
}

/** Logs a failure instead of ending the loop; the next round retries. */
async function runAndLog(
  { options, signal }: Maintenance,
  failureMessage: string,
  work: () => Promise<unknown>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!signal.aborted) options.log.warn({ err: error }, failureMessage);
  }
}

async function verifyAndLog(
  { ledger, store, log, retentionDays }: LedgerMaintenanceOptions,
  signal: AbortSignal,
): Promise<void> {
  const { ok, faults: mismatches } = await verifyLedger(store, retentionDays, signal);
  ledger.recordVerification(mismatches.length);
  if (!ok) log.error({ faults: mismatches }, 'the ledger is not consistent');
}

/** Deletes resolved holds and ended allotments beyond their retention, in batches. */
async function dropOldRows({ store, allotments, retentionDays }: LedgerMaintenanceOptions): Promise<void> {
  while ((await store.dropOldHolds(retentionDays, dropLimit)) === dropLimit);
  while ((await allotments.dropOld(retentionDays, dropLimit)) === dropLimit);
}

interface HoldRecovery extends Pick<LedgerMaintenance, 'recordDatabaseContact' | 'sweep'> {
  start(): Promise<void>;
}

/** Resolves holds whose process is gone. Waits for one lease after an outage of the database. */
function createHoldRecovery(options: LedgerMaintenanceOptions): HoldRecovery {
  const { ledger, store, log, clock, times, isAlone } = options;
  let lastContactMs = clock.monotonicMs();
  let pausedUntilMs = Number.NEGATIVE_INFINITY;

  function recordDatabaseContact(): void {
    const nowMs = clock.monotonicMs();
    // The outage lasted almost a lease, so living processes could not renew their holds either.
    // Give them one lease to do so before recovering any.
    if (nowMs - lastContactMs > times.leaseMs - times.renewEveryMs - times.checkpointEveryMs)
      pausedUntilMs = nowMs + times.leaseMs;
    lastContactMs = nowMs;
  }

  async function recoverHolds({ isForced }: { isForced: boolean }): Promise<number> {
    let resolvedCount = 0;
    let isLast = false;
    while (!isLast) {
      const verdicts = await store.recover({ isForced, limit: sweepLimit });
      ledger.countRecovered(verdicts);
      resolvedCount += verdicts.filter(({ verdict }) => verdict !== 'alive').length;
      isLast = verdicts.length < sweepLimit;
    }
    if (resolvedCount > 0) log.warn({ holds: resolvedCount }, 'resolved holds of dead processes');
    return resolvedCount;
  }

  async function sweep(): Promise<number> {
    await store.ping();
    recordDatabaseContact();
    if (clock.monotonicMs() < pausedUntilMs) return 0;
    await ledger.renewLeases();
    return recoverHolds({ isForced: false });
  }

  return {
    async start() {
      if (isAlone) await recoverHolds({ isForced: true });
      // The database may have just started too. Give the other processes one lease to reconnect.
      else pausedUntilMs = clock.monotonicMs() + times.leaseMs;
      lastContactMs = clock.monotonicMs();
    },
    recordDatabaseContact,
    sweep,
  };
}
