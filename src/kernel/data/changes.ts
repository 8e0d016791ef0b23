// Change notification between replicas: one row whose number grows with every change, polled
// twice a second, so that the caches of other replicas learn of a change within half a second. After
// an outage of the database a replica notifies its listeners at the first poll, as it may have missed
// changes.
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
   * have been missed. Returns the function that removes the listener.
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

// How long cached values are used after the last successful poll. A change must take effect within
// one second.
const trustMs = 900;
// If no poll returns the number of this replica's own change within this time, the change was rolled
// back.
const ownChangeMs = 5_000;

export function createChanges(options: ChangesOptions): Changes {
  const { database, clock, log, everyMs = 500 } = options;
  const table = `${options.schema}.changes`;
  const listeners = new Set<() => void>();
  const generation = new Generation();
  const stop = new AbortController();
  let currentRun: Promise<void> | undefined;

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
    if (generation.observe(row?.number ?? 0n, startedMs)) notifyListeners();
  }

  async function pollUntilStopped(): Promise<void> {
    while (!stop.signal.aborted) {
      try {
        await poll();
      } catch (error) {
        if (generation.forget())
          log.warn({ err: error }, 'cannot poll for changes while the database is unavailable');
      }
      await pause(everyMs, { clock, signal: stop.signal });
    }
  }

  return {
    async bump(tx) {
      const [row] = await tx<{ number: bigint }[]>`
        update ${tx(table)} set number = number + 1 returning number`;
      generation.expectOwnChange(row?.number ?? 0n, clock.monotonicMs());
    },
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    generation: () => generation.current(clock.monotonicMs()),
    start: () => void (currentRun ??= pollUntilStopped()),
    async stop() {
      stop.abort();
      await currentRun;
    },
  };
}

/** The generation of this replica's caches, by the numbers that its polls read. */
class Generation {
  #value = 0;
  #lastNumber: bigint | undefined = undefined;
  #trustedUntilMs = Number.NEGATIVE_INFINITY;
  /** The newest change of this replica, which may not be committed yet. */
  #ownChange: { number: bigint; untilMs: number } | undefined = undefined;

  /** The number of a poll that started at `startedMs`. Returns whether it begins a new generation. */
  observe(number: bigint, startedMs: number): boolean {
    const ownChange = this.#ownChange;
    if (ownChange !== undefined && (number >= ownChange.number || startedMs > ownChange.untilMs))
      this.#ownChange = undefined;
    this.#trustedUntilMs = startedMs + trustMs;
    if (number === this.#lastNumber) return false;
    this.#lastNumber = number;
    this.#value += 1;
    return true;
  }

  /** Makes the next poll begin a new generation. Returns whether a number was known before. */
  forget(): boolean {
    const hadNumber = this.#lastNumber !== undefined;
    this.#lastNumber = undefined;
    return hadNumber;
  }

  expectOwnChange(number: bigint, nowMs: number): void {
    this.#ownChange = { number, untilMs: nowMs + ownChangeMs };
  }

  /** Null while the database may have a newer one. */
  current(nowMs: number): number | null {
    return this.#ownChange === undefined && nowMs < this.#trustedUntilMs ? this.#value : null;
  }
}
