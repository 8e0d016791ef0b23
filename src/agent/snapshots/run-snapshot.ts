// The snapshots of one run: one before its first tool call that may change files, and one when it ends. A run
// that only reads takes none, and an error here never fails a run.
import { TimeoutError, withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { countLines, toChangedFile, type ChangedFile } from './compare.ts';
import type { ContentStore } from './content-store.ts';
import { SnapshotRefusal } from './listing.ts';
import type { Snapshotter } from './snapshotter.ts';
import type { SnapshotStore, StoredChange } from './store.ts';
import { diffTrees, writeTree, type Tree } from './tree.ts';

export interface RunSnapshot {
  /**
   * Takes the first snapshot; called before each tool call that may change files. Returns, once per session,
   * why the changes cannot be undone; null otherwise.
   */
  beforeChange(signal: AbortSignal): Promise<string | null>;
  /** Takes the last snapshot, after the last tool; works once. */
  end(): Promise<SnapshotResult>;
}

export interface SnapshotResult {
  /** The changed files by path; also empty when they are unknown. */
  files: ChangedFile[];
  /** Why the changes cannot be undone; null for a reason that the session has reported before. */
  notice: string | null;
}

export interface RunSnapshotOptions {
  runId: string;
  sessionKey: string;
  snapshotter: Snapshotter;
  contents: ContentStore;
  store: SnapshotStore;
  /** Runs the work when all earlier work on files has ended, and before any later work. */
  exclusive<T>(work: () => Promise<T>): Promise<T>;
  /** Called after the end of the run. */
  onEnd(hasSnapshot: boolean): void;
  /** Whether this is the first notice in the session that its changes cannot be undone. */
  isFirstNotice(sessionKey: string): boolean;
  clock: Clock;
  log: Log;
}

/** Takes no snapshots: for an agent that has turned them off, and for a run without a workspace. */
export const noSnapshot: RunSnapshot = {
  beforeChange: async () => null,
  end: async () => ({ files: [], notice: null }),
};

// The changes of older runs of a session are deleted.
const maxRuns = 50;
export const maxChanges = 1_000;
const deadlineMs = 15_000;

export function createRunSnapshot(options: RunSnapshotOptions): RunSnapshot {
  let firstSnapshot: Promise<string | null> | undefined;
  let treeBefore: Tree | undefined;
  return {
    async beforeChange(signal) {
      if (firstSnapshot !== undefined) {
        await firstSnapshot;
        return null;
      }
      firstSnapshot = takeFirst(options, signal).then(
        (tree) => {
          treeBefore = tree;
          return null;
        },
        (error: unknown) => (signal.aborted ? null : describeFailure(options, error)),
      );
      return firstSnapshot;
    },
    async end() {
      await firstSnapshot;
      try {
        return treeBefore === undefined ? { files: [], notice: null } : await endWith(options, treeBefore);
      } catch (error) {
        // The record must not stay open: later changes of others would count as changes of this run.
        await options.store.remove(options.runId).catch(() => {});
        return { files: [], notice: describeFailure(options, error) };
      } finally {
        options.onEnd(treeBefore !== undefined);
      }
    },
  };
}

async function takeFirst(options: RunSnapshotOptions, signal: AbortSignal): Promise<Tree> {
  const { runId, sessionKey, snapshotter, contents, store, exclusive, clock } = options;
  // The outer deadline includes the wait for other work on files, which must not delay the run any longer.
  return withTimeout(
    (takeSignal) =>
      exclusive(async () => {
        takeSignal.throwIfAborted();
        const tree = await withTimeout((innerSignal) => snapshotter.take(innerSignal), {
          ms: deadlineMs,
          clock,
          signal: takeSignal,
        });
        const treeHash = await contents.put(writeTree(tree));
        takeSignal.throwIfAborted();
        await store.open({ runId, sessionKey, treeHash });
        // If the record stayed open, later changes would count as changes of this run.
        if (takeSignal.aborted) await store.remove(runId);
        return tree;
      }),
    { ms: deadlineMs, clock, signal },
  );
}

async function endWith(options: RunSnapshotOptions, before: Tree): Promise<SnapshotResult> {
  const { runId, exclusive } = options;
  const changes = await exclusive(() => closeRecord(options, before));
  if (changes !== 'too_many') return { files: changes.map(toChangedFile), notice: null };
  await options.store.remove(runId);
  // Reported for each such run: unlike a workspace that is too large, it says nothing about the next run.
  return { files: [], notice: undoNotice(`it changed more than ${maxChanges} files`) };
}

/** Compares the current workspace with the tree, and writes the differences as the changes of the run. */
export async function closeRecord(
  {
    runId,
    sessionKey,
    snapshotter,
    contents,
    store,
    clock,
  }: Omit<RunSnapshotOptions, 'exclusive' | 'onEnd' | 'isFirstNotice' | 'log'>,
  before: Tree,
): Promise<StoredChange[] | 'too_many'> {
  const after = await withTimeout((signal) => snapshotter.take(signal, before), { ms: deadlineMs, clock });
  const changes = diffTrees(before, after);
  if (changes.length > maxChanges) return 'too_many';
  const storedChanges = await countLines(contents, changes);
  await store.close(runId, storedChanges);
  if (storedChanges.length > 0) await store.prune(sessionKey, maxRuns);
  return storedChanges;
}

function describeFailure(
  { runId, sessionKey, isFirstNotice, log }: RunSnapshotOptions,
  error: unknown,
): string | null {
  if (!(error instanceof SnapshotRefusal || error instanceof TimeoutError))
    log.warn({ runId, err: error }, 'a snapshot of the workspace could not be taken');
  if (!isFirstNotice(sessionKey)) return null;
  if (error instanceof SnapshotRefusal) return undoNotice(error.message);
  if (error instanceof TimeoutError)
    return undoNotice(`reading the workspace took longer than ${deadlineMs / 1000} s`);
  return undoNotice('a snapshot of the workspace could not be taken');
}

function undoNotice(reason: string): string {
  return `The file changes of this run cannot be undone: ${reason}.`;
}
