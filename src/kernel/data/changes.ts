// Change notification between replicas: one row whose number grows with every change, polled
// twice a second. Caches that listen are never older than that. After an outage of the
// database a replica notifies its listeners at the first poll, as it may have missed changes.
import { pause } from '../async.ts';
import type { Clock } from '../clock.ts';
import type { Database, Tx } from './database.ts';
import type { Log } from '../log.ts';

export interface Changes {
  /**
   * Notifies every replica, this one included, once the transaction has committed.
   * Call it last in a transaction: it locks the row until the commit.
   */
  bump(tx: Tx): Promise<void>;
  /**
   * Calls the listener after every change, and after an outage in which changes may
   * have been missed. Returns the unsubscribe.
   */
  onChange(listener: () => void): () => void;
  /**
   * A number that stays the same while nothing changes. A cache entry is valid while
   * this equals the value from before its read. Null while it is unknown.
   */
  generation(): number | null;
  start(): void;
  stop(): Promise<void>;
}

export interface ChangesOptions {
  database: Pick<Database, 'sql'>;
  /** The surface's schema; it has the table `changes`. */
  schema: string;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  log: Log;
  everyMs?: number;
}

// Longest use of a cached value without a poll. The limit for a change to take effect is one
// second.
const trustMs = 900;
// After this time an own change whose number no poll has returned was rolled back.
const ownChangeMs = 5_000;

export function createChanges(options: ChangesOptions): Changes {
  const { database, clock, log, everyMs = 500 } = options;
  const table = `${options.schema}.changes`;
  const listeners = new Set<() => void>();
  const stop = new AbortController();
  let currentRun: Promise<void> | undefined;
  let lastNumber: bigint | undefined;
  let generation = 0;
  let trustedUntilMs = Number.NEGATIVE_INFINITY;
  /** The newest change of this replica, which may not be committed yet. */
  let ownChange: { number: bigint; untilMs: number } | undefined;

  function notifyListeners(): void {
    for (const listener of listeners) {
      try {
        listener();
      } catch (error) {
        log.error({ err: error }, 'a listener to changes failed');
      }
    }
  }

  async function poll(): Promise<void> {
    const startedMs = clock.monotonicMs();
    const [row] = await database.sql<{ number: bigint }[]>`select number from ${database.sql(table)}`;
    const number = row?.number ?? 0n;
    if (ownChange !== undefined && (number >= ownChange.number || startedMs > ownChange.untilMs))
      ownChange = undefined;
    trustedUntilMs = startedMs + trustMs;
    if (number === lastNumber) return;
    lastNumber = number;
    generation += 1;
    notifyListeners();
  }

  async function pollUntilStopped(): Promise<void> {
    while (!stop.signal.aborted) {
      try {
        await poll();
      } catch (error) {
        if (lastNumber !== undefined)
          log.warn({ err: error }, 'the database is unavailable; changes are not noticed');
        // The first poll that succeeds then notifies the listeners in any case.
        lastNumber = undefined;
      }
      await pause(everyMs, { clock, signal: stop.signal });
    }
  }

  return {
    async bump(tx) {
      const [row] = await tx<
        { number: bigint }[]
      >`update ${tx(table)} set number = number + 1 returning number`;
      ownChange = { number: row?.number ?? 0n, untilMs: clock.monotonicMs() + ownChangeMs };
    },
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    generation: () => (ownChange === undefined && clock.monotonicMs() < trustedUntilMs ? generation : null),
    start: () => void (currentRun ??= pollUntilStopped()),
    async stop() {
      stop.abort();
      await currentRun;
    },
  };
}
