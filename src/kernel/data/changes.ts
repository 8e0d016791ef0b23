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
  start(): void;
  stop(): Promise<void>;
}

export interface ChangesOptions {
  database: Pick<Database, 'sql'>;
  /** The surface's schema; it has the table `changes`. */
  schema: string;
  clock: Pick<Clock, 'sleep'>;
  log: Log;
  everyMs?: number;
}

export function createChanges(options: ChangesOptions): Changes {
  const { database, clock, log, everyMs = 500 } = options;
  const table = `${options.schema}.changes`;
  const listeners = new Set<() => void>();
  const stopping = new AbortController();
  let running: Promise<void> | undefined;
  let seen: bigint | undefined;

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
    const [row] = await database.sql<{ number: bigint }[]>`select number from ${database.sql(table)}`;
    const number = row?.number ?? 0n;
    if (number === seen) return;
    seen = number;
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
      await tx`update ${tx(table)} set number = number + 1`;
    },
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    start: () => void (running ??= keepLooking()),
    async stop() {
      stopping.abort();
      await running;
    },
  };
}
