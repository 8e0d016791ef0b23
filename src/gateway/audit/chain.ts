// The hash chain over the audit log (SHA-256). A batch's hash covers the previous batch's hash and the
// digests of its own entries. Only one replica appends at a time: it holds an advisory lock, and the other
// replicas skip the round instead of waiting.
import { createHash } from 'node:crypto';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { systemOrigin } from '../identity.ts';
import { retentionAction, type AuditStore, type EntryText } from './store.ts';

/** The previous hash of the first batch. */
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

/** Appends all pending entries, unless another replica holds the lock. */
export async function appendPending(store: AuditStore, log: Log): Promise<void> {
  while (await store.hasPending()) {
    const head = await store.tx(async (tx) => {
      if (!(await store.lockChain(tx))) return null;
      const pendingRows = await store.dequeuePending(tx, batchSize);
      if (pendingRows.length === 0) return null;
      const lastBatch = await store.findLastBatch(tx);
      const links = pendingRows.map(({ entryId, entry }) => ({ entryId, digest: entryDigest(entry) }));
      const previous = lastBatch?.hash ?? genesisHash;
      const hash = batchHash(
        previous,
        links.map(({ digest }) => digest),
      );
      const batch = (lastBatch?.batch ?? 0n) + 1n;
      await store.insertBatch(tx, { batch, previous, hash, entries: links.length }, links);
      return { batch, hash, entries: links.length };
    });
    if (head === null) return;
    // Log the head of the chain: a copy of this log kept elsewhere then proves that the end of the chain was
    // not cut off.
    log.info(
      { batch: String(head.batch), entries: head.entries, head: head.hash.toString('hex') },
      'audit entries chained',
    );
  }
}

/**
 * Deletes the batches of days that ended more than `days` days ago. The oldest batch that stays still holds
 * the hash of the last deleted batch.
 */
export async function deleteOldDays(store: AuditStore, days: number, log: Log): Promise<void> {
  const deletedCount = await store.tx(async (tx) => {
    if (!(await store.lockChain(tx))) return 0;
    const lastOldBatch = await store.findLastBatchOlderThan(tx, days);
    if (lastOldBatch === null) return 0;
    // While all batches are old, delete none: the chain continues from the hash of the last one.
    const lastBatch = await store.findLastBatch(tx);
    if (lastBatch === null || lastBatch.batch <= lastOldBatch) return 0;
    const entries = await store.deleteThrough(tx, lastOldBatch);
    await store.insert(
      tx,
      {
        ...systemOrigin,
        action: retentionAction,
        target: { kind: 'audit', id: 'entries' },
        outcome: 'ok',
        diff: { through_batch: String(lastOldBatch), entries, older_than_days: days },
      },
      id('log'),
    );
    return entries;
  });
  if (deletedCount > 0) log.info({ entries: deletedCount }, 'deleted old audit entries');
}
