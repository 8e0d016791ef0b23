// Walks the chain of the audit log and says what does not fit: an entry that was altered, one that is gone,
// one that was slipped in, or a batch that does not follow from the one before.
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
  /** Entries so new that the chain does not hold them yet. */
  pending: number;
  /** The last hash, in hexadecimal; compare it with one kept elsewhere to see that the end was not cut off. */
  head: string | null;
  faults: ChainFault[];
}

const pageSize = 200;
const maximumFaults = 100;

/** With a hash that was the head once, the chain must still hold it. */
export async function verifyChain(store: AuditStore, head: string | null = null): Promise<ChainVerdict> {
  let hasHead = head === null;
  const faults: ChainFault[] = [];
  const note = (fault: ChainFault['fault'], batch: bigint | null, entryId: string | null = null): void => {
    if (faults.length < maximumFaults)
      faults.push({ fault, batch: batch === null ? null : String(batch), entryId });
  };
  let last: Batch | null = null;
  let batches = 0;
  let entries = 0;
  for (;;) {
    const page = await store.listBatchesAfter(last?.batch ?? 0n, pageSize);
    if (page.length === 0) break;
    for (const batch of page) {
      if (!(await follows(store, batch, last)))
        note(
          last !== null && batch.batch === last.batch + 1n ? 'batch_altered' : 'batch_missing',
          batch.batch,
        );
      entries += await verifyBatch(store, batch, note);
      batches += 1;
      hasHead ||= batch.hash.toString('hex') === head;
      last = batch;
    }
  }
  if (!hasHead) note('head_missing', null);
  for (const entryId of await store.listUnlinkedEntries(maximumFaults))
    note('entry_not_chained', null, entryId);
  const pending = await store.countPending();
  return {
    ok: faults.length === 0,
    batches,
    entries,
    pending,
    head: last?.hash.toString('hex') ?? null,
    faults,
  };
}

async function follows(store: AuditStore, batch: Batch, last: Batch | null): Promise<boolean> {
  if (last !== null) return batch.batch === last.batch + 1n && batch.previous.equals(last.hash);
  if (batch.batch === 1n) return batch.previous.equals(genesisHash);
  // The chain may begin later only where retention says that it dropped what was before.
  return store.hasRetentionEntry(batch.batch - 1n);
}

async function verifyBatch(
  store: AuditStore,
  { batch, previous, hash, entries }: Batch,
  note: (fault: ChainFault['fault'], batch: bigint, entryId?: string) => void,
): Promise<number> {
  const linked = await store.listLinkedEntries(batch);
  for (const { entryId, digest, entry } of linked) {
    if (entry === null) note('entry_missing', batch, entryId);
    else if (!entryDigest(entry).equals(digest)) note('entry_altered', batch, entryId);
  }
  // The links are held against the hash too, or a forged entry could bring a forged digest along.
  const isWhole =
    linked.length === entries &&
    batchHash(
      previous,
      linked.map(({ digest }) => digest),
    ).equals(hash);
  if (!isWhole) note('batch_altered', batch);
  return linked.length;
}
