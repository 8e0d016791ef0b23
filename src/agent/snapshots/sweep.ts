// Deletes contents that no change refers to any more and, while the store is too large, the oldest changes.
import type { ContentStore } from './content-store.ts';
import type { SnapshotStore } from './store.ts';
import { readTree } from './tree.ts';

export interface SweepOptions {
  contents: ContentStore;
  store: SnapshotStore;
  /** Hashes that the next snapshot relies on. */
  lastHashes(): ReadonlySet<string>;
  maxBytes: number;
  /** Newer contents stay: another process may be about to refer to them. */
  minAgeMs: number;
  now(): Date;
}

// Runs whose changes are deleted at a time.
const runsPerPruning = 20;

/** Deletes the contents. The caller makes sure that no snapshot is taken at the same time. */
export async function sweepContents(options: SweepOptions): Promise<void> {
  for (;;) {
    const bytes = await removeUnused(options);
    if (bytes <= options.maxBytes) return;
    if ((await options.store.pruneOldest(runsPerPruning)) === 0) return;
  }
}

/** Deletes unused contents; returns the number of bytes that remain. */
async function removeUnused({ contents, store, lastHashes, minAgeMs, now }: SweepOptions): Promise<number> {
  const keptSinceMs = now().getTime() - minAgeMs;
  const neededHashes = new Set(lastHashes());
  for (const treeHash of await store.openTrees()) {
    neededHashes.add(treeHash);
    const tree = await contents.get(treeHash);
    if (tree !== undefined) for (const { hash } of readTree(tree).files.values()) neededHashes.add(hash);
  }
  let remainingBytes = 0;
  for await (const batch of contents.list()) {
    const usedHashes = await store.used(batch.map(({ hash }) => hash));
    for (const { hash, bytes, renewedMs } of batch) {
      const isNew = minAgeMs > 0 && renewedMs > keptSinceMs;
      if (neededHashes.has(hash) || usedHashes.has(hash)) remainingBytes += bytes;
      else if (!isNew) await contents.remove(hash);
    }
  }
  return remainingBytes;
}
