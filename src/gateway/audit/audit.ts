// The audit log: whoever changes something records it in the transaction of the change, and a worker in the
// background binds the entries into the chain. Neither waits for the other.
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { appendPending, deleteOldDays } from './chain.ts';
import { verifyChain, type ChainVerdict } from './verify.ts';
import type { AuditEntry, AuditStore } from './store.ts';

interface AuditOptions {
  store: AuditStore;
  log: Log;
  clock: Pick<Clock, 'sleep' | 'monotonicMs'>;
  /** How soon after its commit an entry is bound into the chain. */
  chainEveryMs?: number;
  retentionDays?: number;
}

export interface Audit {
  /** Writes the entry in the transaction of the change that it tells of. */
  record(tx: Tx, entry: AuditEntry): Promise<void>;
  /** Writes an entry that belongs to no change, such as a refused login. */
  note(entry: AuditEntry): Promise<void>;
  /** Walks the chain; a hash that was its head once must still be in it. */
  verify(head?: string | null): Promise<ChainVerdict>;
  /** Begins to bind entries into the chain; any number of replicas may. */
  start(): void;
  /** Binds what is left, then stops. */
  close(): Promise<void>;
}

const defaultRetentionDays = 400;
const retentionEveryMs = 3_600_000;
const firstRetentionMs = 60_000;

export function audit(needs: AuditOptions): Audit {
  const { store, log, clock } = needs;
  const chainEveryMs = needs.chainEveryMs ?? 1_000;
  const stopping = new AbortController();
  let running: Promise<void> | undefined;

  async function bindAndDrop(): Promise<void> {
    // Not among everything else that a start is busy with.
    let droppedAtMs = clock.monotonicMs() - retentionEveryMs + firstRetentionMs;
    while (!stopping.signal.aborted) {
      try {
        await appendPending(store, log);
        if (clock.monotonicMs() - droppedAtMs >= retentionEveryMs) {
          droppedAtMs = clock.monotonicMs();
          await deleteOldDays(store, needs.retentionDays ?? defaultRetentionDays, log);
        }
      } catch (error) {
        // Nothing is lost: the entries wait in the database for the next round.
        log.warn({ err: error }, 'the audit log could not be chained');
      }
      await clock.sleep(chainEveryMs, stopping.signal).catch(() => undefined);
    }
  }

  const record = (tx: Tx, entry: AuditEntry) => store.insert(tx, entry, id('log'));
  return {
    record,
    note: (entry) => store.tx((tx) => record(tx, entry)),
    verify: (head) => verifyChain(store, head),
    start: () => void (running ??= bindAndDrop()),
    async close() {
      stopping.abort();
      if (running === undefined) return;
      await running;
      await appendPending(store, log).catch((error: unknown) =>
        log.warn({ err: error }, 'the audit log could not be chained'),
      );
    },
  };
}
