// News between replicas: one row whose number grows with every change that others must hear of, looked at
// twice a second. What listeners keep from the database is so never older than that, also after the database
// was away: whoever could not look does not know what it missed, and tells its listeners at once.
import type { Clock } from '../clock.ts';
import type { Database, Tx } from './database.ts';
import type { Log } from '../log.ts';

export interface Changes {
  /**
   * Tells every replica, this one included, once the transaction has committed. The last step of a transaction:
   * others that change something wait here for its end.
   */
  bump(tx: Tx): Promise<void>;
  /** Calls the listener after every change, and after every time in which changes may have been missed. Returns the end of it. */
  onChange(listener: () => void): () => void;
  /**
   * A number that stays the same while nothing changes, for whoever keeps what it has read: what was read under this
   * number, asked for before the reading, is good as long as the number is still this one. Null while that is not known.
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

// No replica relies on anything that it has not compared for longer; a change is promised to hold within a second.
const trustMs = 900;
// A change of this replica's own whose transaction has not ended after this time was undone.
const ownChangeMs = 5_000;

export function createChanges(options: ChangesOptions): Changes {
  const { database, clock, log, everyMs = 500 } = options;
  const table = `${options.schema}.changes`;
  const listeners = new Set<() => void>();
  const stopping = new AbortController();
  let running: Promise<void> | undefined;
  let seen: bigint | undefined;
  let generation = 0;
  let trustedUntilMs = Number.NEGATIVE_INFINITY;
  /** The newest change of this replica's own, which may not have been committed yet. */
  let own: { number: bigint; untilMs: number } | undefined;

  function tell(): void {
    for (const listener of listeners) {
      try {
        listener();
      } catch (error) {
        log.error({ err: error }, 'a listener to changes failed');
      }
    }
  }

  async function look(): Promise<void> {
    const beganMs = clock.monotonicMs();
    const [row] = await database.sql<{ number: bigint }[]>`select number from ${database.sql(table)}`;
    const number = row?.number ?? 0n;
    if (own !== undefined && (number >= own.number || beganMs > own.untilMs)) own = undefined;
    trustedUntilMs = beganMs + trustMs;
    if (number === seen) return;
    seen = number;
    generation += 1;
    tell();
  }

  async function keepLooking(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await look();
      } catch (error) {
        if (seen !== undefined) log.warn({ err: error }, 'the database is away; changes are not seen');
        // Forgotten, so that the first look that succeeds tells the listeners whatever it finds.
        seen = undefined;
      }
      await clock.sleep(everyMs, stopping.signal).catch(() => undefined);
    }
  }

  return {
    async bump(tx) {
      const [row] = await tx<
        { number: bigint }[]
      >`update ${tx(table)} set number = number + 1 returning number`;
      own = { number: row?.number ?? 0n, untilMs: clock.monotonicMs() + ownChangeMs };
    },
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    generation: () => (own === undefined && clock.monotonicMs() < trustedUntilMs ? generation : null),
    start: () => void (running ??= keepLooking()),
    async stop() {
      stopping.abort();
      await running;
    },
  };
}
