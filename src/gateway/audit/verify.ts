// Verifies the hash chain of the audit log. Reports altered, missing and inserted entries, and batches that
// do not continue from the preceding batch.
import { batchHash, entryDigest, genesisHash } from './chain.ts';
import type { AuditStore, Batch } from './store.ts';

export interface ChainFault {
  fault:
    | 'entry_altered'
    | 'entry_missing'
    | 'entry_not_chained'
    | 'batch_altered'
    | 'batch_missing'
    | 'head_missing';
  batch: string | null;
  entryId: string | null;
}

export interface ChainVerdict {
  ok: boolean;
  batches: number;
  entries: number;
  /** Entries that are not in the chain yet. */
  pending: number;
  /** The last hash in hexadecimal. Compare it with a copy kept elsewhere to detect a truncated chain. */
  head: string | null;
  faults: ChainFault[];
}

const pageSize = 200;
const maxReported = 100;

/** `head` is the hash of an earlier head, which the chain must still contain. */
export async function verifyChain(store: AuditStore, head: string | null = null): Promise<ChainVerdict> {
  for (;;) {
    const firstBatch = await store.findFirstBatch();
    const verdict = await verifyOnce(store, head);
    // The chain is read with many statements. If retention has deleted old days in between, their batches or
    // entries seem to be missing, so verify the chain that is left.
    if (verdict.ok || (await store.findFirstBatch()) === firstBatch) return verdict;
  }
}

async function verifyOnce(store: AuditStore, head: string | null): Promise<ChainVerdict> {
  let hasHead = head === null;
  const mismatches: ChainFault[] = [];
  const note = (fault: ChainFault['fault'], batch: bigint | null, entryId: string | null = null): void => {
    if (mismatches.length < maxReported)
      mismatches.push({ fault, batch: batch === null ? null : String(batch), entryId });
  };
  let lastBatch: Batch | null = null;
  let batches = 0;
  let entries = 0;
  for (;;) {
    const page = await store.listBatchesAfter(lastBatch?.batch ?? 0n, pageSize);
    if (page.length === 0) break;
    for (const batch of page) {
      if (!(await continuesChain(store, batch, lastBatch))) {
        const isNextNumber = lastBatch !== null && batch.batch === lastBatch.batch + 1n;
        note(isNextNumber ? 'batch_altered' : 'batch_missing', batch.batch);
      }
      entries += await verifyBatch(store, batch, note);
      batches += 1;
      hasHead ||= batch.hash.toString('hex') === head;
      lastBatch = batch;
    }
  }
  if (!hasHead) note('head_missing', null);
  for (const entryId of await store.listUnlinkedEntries(maxReported))
    note('entry_not_chained', null, entryId);
  const pendingCount = await store.countPending();
  return {
    ok: mismatches.length === 0,
    batches,
    entries,
    pending: pendingCount,
    head: lastBatch?.hash.toString('hex') ?? null,
    faults: mismatches,
  };
}

async function continuesChain(store: AuditStore, batch: Batch, lastBatch: Batch | null): Promise<boolean> {
  if (lastBatch !== null)
    return batch.batch === lastBatch.batch + 1n && batch.previous.equals(lastBatch.hash);
  if (batch.batch === 1n) return batch.previous.equals(genesisHash);
  // The chain may start after batch 1 only when a retention entry covers the deleted batches.
  return store.hasRetentionEntry(batch.batch - 1n);
}

async function verifyBatch(
  store: AuditStore,
  { batch, previous, hash, entries }: Batch,
  note: (fault: ChainFault['fault'], batch: bigint, entryId?: string) => void,
): Promise<number> {
  const links = await store.listLinkedEntries(batch);
  for (const { entryId, digest, entry } of links) {
    if (entry === null) note('entry_missing', batch, entryId);
    else if (!entryDigest(entry).equals(digest)) note('entry_altered', batch, entryId);
  }
  // Check the links against the batch hash too: a forged entry could come with a forged digest.
  const isIntact =
    links.length === entries &&
    batchHash(
      previous,
      links.map(({ digest }) => digest),
    ).equals(hash);
  if (!isIntact) note('batch_altered', batch);
  return links.length;
}
