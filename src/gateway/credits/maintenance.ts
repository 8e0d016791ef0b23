// What keeps the ledger true while nobody looks: one heartbeat for all open holds of the process, the replay of the
// journal, the recovery of holds whose process is gone, the reconciliation, and the dropping of what is too old.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { Journal } from './journal.ts';
import type { OpenLedger } from './ledger.ts';
import type { CreditsStore } from './store.ts';
import { verifyLedger } from './verify.ts';

/** Times of the ledger in milliseconds; tests pass small ones. */
export interface LedgerTimes {
  /** How long a hold lives without a sign of its process. */
  leaseMs: number;
  /** How old a lease may be before it is renewed. */
  renewEveryMs: number;
  /** How often checkpoints are written. */
  beatEveryMs: number;
  sweepEveryMs: number;
  verifyEveryMs: number;
}

export const defaultTimes: LedgerTimes = {
  leaseMs: 45_000,
  renewEveryMs: 10_000,
  beatEveryMs: 2_000,
  sweepEveryMs: 15_000,
  verifyEveryMs: 3_600_000,
};

export interface KeeperNeeds {
  ledger: OpenLedger;
  store: CreditsStore;
  journal: Journal;
  log: Log;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  times: LedgerTimes;
  /** Nobody else has this database open, so what is open at the start is nobody's. */
  isAlone: boolean;
  retentionDays: number;
}

export interface Keeper {
  /** Settles and resolves what an earlier process left, then begins. */
  start(): Promise<void>;
  /** A heartbeat before its time. */
  beatSoon(): void;
  /** The database has answered just now. */
  noteReached(): void;
  /** One round of recovery; says how many holds it resolved. */
  sweep(): Promise<number>;
  close(): Promise<void>;
}

const sweepLimit = 200;
const dropLimit = 1_000;
// Many streams together reach their next 256 tokens at every moment.
const beatGapMs = 100;
const firstVerifyMs = 2_000;

export function createKeeper(needs: KeeperNeeds): Keeper {
  const { ledger, store, journal, log, clock, times, isAlone, retentionDays } = needs;
  const stopping = new AbortController();
  const { signal } = stopping;
  const loops: Promise<void>[] = [];
  let waking = new AbortController();
  let reachedAtMs = clock.monotonicMs();
  let quietUntilMs = Number.NEGATIVE_INFINITY;

  function noteReached(): void {
    const nowMs = clock.monotonicMs();
    // So long without the database, others may not have been able to renew their leases either: they get the time to.
    if (nowMs - reachedAtMs > times.leaseMs - times.renewEveryMs - times.beatEveryMs)
      quietUntilMs = nowMs + times.leaseMs;
    reachedAtMs = nowMs;
  }

  const pause = (ms: number): Promise<void> => clock.sleep(ms, signal).catch(() => undefined);

  /** Nothing here may end a loop: what fails is tried again in the next round. */
  async function attempt(what: string, work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error }, what);
    }
  }

  async function beatLoop(): Promise<void> {
    while (!signal.aborted) {
      await pause(beatGapMs);
      await clock
        .sleep(times.beatEveryMs - beatGapMs, AbortSignal.any([signal, waking.signal]))
        .catch(() => undefined);
      waking = new AbortController();
      await attempt('the open holds could not be renewed', () => ledger.beat());
      if (ledger.hasJournaled()) await attempt('the journal could not be settled yet', () => ledger.replay());
    }
  }

  async function recover(isForced: boolean): Promise<number> {
    for (let resolved = 0; ;) {
      const verdicts = await store.recover({ isForced, limit: sweepLimit });
      ledger.noteRecovered(verdicts);
      resolved += verdicts.filter(({ verdict }) => verdict !== 'alive').length;
      if (verdicts.length < sweepLimit) {
        if (resolved > 0) log.warn({ holds: resolved }, 'resolved holds whose process was gone');
        return resolved;
      }
    }
  }

  async function sweep(): Promise<number> {
    await store.ping();
    noteReached();
    if (clock.monotonicMs() < quietUntilMs) return 0;
    await ledger.beat();
    return recover(false);
  }

  async function sweepLoop(): Promise<void> {
    while (!signal.aborted) {
      await pause(times.sweepEveryMs);
      if (!signal.aborted) await attempt('holds could not be recovered', sweep);
    }
  }

  async function verifyLoop(): Promise<void> {
    await pause(Math.min(firstVerifyMs, times.verifyEveryMs));
    while (!signal.aborted) {
      await attempt('the ledger could not be verified', async () => {
        const { ok, faults } = await verifyLedger(store, retentionDays, signal);
        ledger.noteVerified(faults.length);
        if (!ok) log.error({ faults }, 'the ledger does not agree with itself');
      });
      await attempt('old holds could not be dropped', async () => {
        while ((await store.dropOldHolds(retentionDays, dropLimit)) === dropLimit);
      });
      // A file that another process has left, on a disk that outlived it.
      await attempt('the journal could not be settled yet', () => ledger.replay());
      await pause(times.verifyEveryMs);
    }
  }

  return {
    async start() {
      await journal.prepare();
      await attempt('the journal could not be settled yet', () => ledger.replay());
      if (isAlone) await recover(true);
      // It may be the database's own start too, after which the others have not come back yet.
      else quietUntilMs = clock.monotonicMs() + times.leaseMs;
      reachedAtMs = clock.monotonicMs();
      loops.push(beatLoop(), sweepLoop(), verifyLoop());
    },
    beatSoon: () => waking.abort(),
    noteReached,
    sweep,
    async close() {
      stopping.abort();
      await Promise.all(loops);
    },
  };
}
