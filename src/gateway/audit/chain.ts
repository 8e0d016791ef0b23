// The chain over the audit log: batches of entries, each hash made from the one before, in segments of one
// day. One replica at a time adds to it; it never waits, so that a stopped replica cannot hold the others up.
import { createHash } from 'node:crypto';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { systemOrigin } from '../identity.ts';
import { retentionAction, type AuditStore, type EntryText } from './store.ts';

/** What the first batch of all has in place of a hash before it. */
export const genesisHash = Buffer.alloc(32);

const batchSize = 500;

export function entryDigest(entry: EntryText): Buffer {
  return createHash('sha256').update(JSON.stringify(entry)).digest();
}

export function batchHash(previous: Buffer, digests: readonly Buffer[]): Buffer {
  const hash = createHash('sha256').update(previous);
  for (const digest of digests) hash.update(digest);
  return hash.digest();
}

/** Binds all entries that wait, unless another replica is at it. */
export async function appendPending(store: AuditStore, log: Log): Promise<void> {
  while (await store.hasPending()) {
    const head = await store.tx(async (tx) => {
      if (!(await store.lockChain(tx))) return null;
      const taken = await store.dequeuePending(tx, batchSize);
      if (taken.length === 0) return null;
      const last = await store.findLastBatch(tx);
      const links = taken.map(({ entryId, entry }) => ({ entryId, digest: entryDigest(entry) }));
      const previous = last?.hash ?? genesisHash;
      const hash = batchHash(
        previous,
        links.map(({ digest }) => digest),
      );
      const batch = (last?.batch ?? 0n) + 1n;
      await store.insertBatch(tx, { batch, previous, hash, entries: links.length }, links);
      return { batch, hash, entries: links.length };
    });
    if (head === null) return;
    // Whoever keeps the log elsewhere keeps with it what proves that the end of the chain was not cut off.
    log.info(
      { batch: String(head.batch), entries: head.entries, head: head.hash.toString('hex') },
      'audit entries chained',
    );
  }
}

/** Drops whole days that ended more than `days` days ago; the batch behind them keeps the last dropped hash. */
export async function deleteOldDays(store: AuditStore, days: number, log: Log): Promise<void> {
  const dropped = await store.tx(async (tx) => {
    if (!(await store.lockChain(tx))) return 0;
    const through = await store.findLastBatchOlderThan(tx, days);
    if (through === null) return 0;
    // The chain must go on behind what is dropped, so its last batch stays whatever its age is.
    const last = await store.findLastBatch(tx);
    if (last === null || last.batch <= through) return 0;
    const entries = await store.deleteThrough(tx, through);
    await store.insert(
      tx,
      {
        ...systemOrigin,
        action: retentionAction,
        target: { kind: 'audit', id: 'entries' },
        outcome: 'ok',
        diff: { through_batch: String(through), entries, older_than_days: days },
      },
      id('log'),
    );
    return entries;
  });
  if (dropped > 0) log.info({ entries: dropped }, 'audit entries dropped after their time');
}
