// The audit log. Each change writes its entry in its own transaction; a background worker
// appends the entries to a hash chain later, so that changes never wait for the chain.
import { pause } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import type { Service } from '../service.ts';
import { appendPending, deleteOldDays } from './chain.ts';
import { auditHandlers } from './entries.ts';
import { verifyChain, type ChainVerdict } from './verify.ts';
import type { AuditEntry, AuditStore } from './store.ts';

interface AuditOptions {
  store: AuditStore;
  log: Log;
  clock: Pick<Clock, 'sleep' | 'monotonicMs'>;
  /** The interval at which entries are appended to the chain. */
  chainEveryMs?: number;
  retentionDays?: number;
}

export interface Audit extends Service<'audit'> {
  /** Writes the entry in the transaction of the change. */
  record(tx: Tx, entry: AuditEntry): Promise<void>;
  /** Writes an entry in a transaction of its own, such as for a refused login. */
  note(entry: AuditEntry): Promise<void>;
  /** Verifies the chain. With the hash of an earlier head, also checks that the chain still contains it. */
  verify(head?: string | null): Promise<ChainVerdict>;
  /** Starts the background worker. Safe on several replicas. */
  start(): void;
  /** Appends the remaining entries, then stops. */
  close(): Promise<void>;
}

const defaultRetentionDays = 400;
const retentionEveryMs = 3_600_000;
const firstRetentionMs = 60_000;

export function audit({
  store,
  log,
  clock,
  chainEveryMs = 1_000,
  retentionDays = defaultRetentionDays,
}: AuditOptions): Audit {
  const stop = new AbortController();
  let worker: Promise<void> | undefined;

  async function runWorker(): Promise<void> {
    // Delay the first deletion, so that it does not slow down the start of the server.
    let deletedAtMs = clock.monotonicMs() - retentionEveryMs + firstRetentionMs;
    while (!stop.signal.aborted) {
      try {
        await appendPending(store, log);
        if (clock.monotonicMs() - deletedAtMs >= retentionEveryMs) {
          deletedAtMs = clock.monotonicMs();
          await deleteOldDays(store, retentionDays, log);
        }
      } catch (error) {
        // The entries stay in the pending table until the next round.
        log.warn({ err: error }, 'the audit log could not be chained');
      }
      await pause(chainEveryMs, { clock, signal: stop.signal });
    }
  }

  const record = (tx: Tx, entry: AuditEntry) => store.insert(tx, entry, id('log'));
  return {
    name: 'audit',
    title: 'Audit log',
    env: [],
    handlers: auditHandlers(store),
    record,
    note: (entry) => store.tx((tx) => record(tx, entry)),
    verify: (head) => verifyChain(store, head),
    start: () => void (worker ??= runWorker()),
    async close() {
      stop.abort();
      if (worker === undefined) return;
      await worker;
      await appendPending(store, log).catch((error: unknown) =>
        log.warn({ err: error }, 'the audit log could not be chained'),
      );
    },
  };
}
