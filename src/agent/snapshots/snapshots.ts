// Snapshots of workspaces: what a run changed in the files of its workspace, and how to undo it. All work on
// files is serialized, so that a snapshot never sees a restoration half done.
import { join } from 'node:path';
import { createSerializer, settlesWithin, withTimeout } from '../../kernel/async.ts';
import { createLruCache } from '../../kernel/cache.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Database, Sql } from '../../kernel/data/database.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Workspace } from '../plugins/index.ts';
import { toChangedFile, writeDiffs, type ChangedFile, type FileDiff } from './compare.ts';
import { contentStore, type ContentStore } from './content-store.ts';
import type { SnapshotLimits } from './listing.ts';
import { findConflicts, readContents, restoreFiles, type Restoration } from './restore.ts';
import { closeRecord, createRunSnapshot, noSnapshot, type RunSnapshot } from './run-snapshot.ts';
import { createSnapshotter, type Snapshotter } from './snapshotter.ts';
import {
  changeStatus,
  hasStatus,
  snapshotStore,
  type ChangesStatus,
  type SnapshotStore,
  type StoredChange,
} from './store.ts';
import { sweepContents, type SweepOptions } from './sweep.ts';
import { readTree } from './tree.ts';

export interface RunReference {
  sessionKey: string;
  runId: string;
  /** The workspace of the session. */
  workspace: Workspace;
}

export type Direction = 'undo' | 'redo';

/** Runs a transaction of the caller, and calls `apply` in it. */
export type Commit<T> = (apply: (tx: Sql) => Promise<Problem | null>, files: ChangedFile[]) => Promise<T>;

export interface Snapshots {
  begin(run: RunReference): RunSnapshot;
  /**
   * The changes of a run that is not active; `none` when they are unknown. Without a workspace only changes
   * that are stored already are known.
   */
  changes(
    run: Omit<RunReference, 'workspace'> & { workspace: Workspace | null },
  ): Promise<{ status: ChangesStatus | 'none'; files: FileDiff[] }>;
  /**
   * Undoes the file changes of a run, or redoes them. `commit` calls `apply` in its transaction: it changes
   * the files and writes the new status, or returns the Problem that prevents it. `apply` may be called
   * twice. Throws a Problem when the changes do not have the status for this direction.
   */
  restore<T>(run: RunReference, direction: Direction, commit: Commit<T>): Promise<T>;
  /** `root` is the session's own workspace, which is removed with it; null for the shared workspace. */
  removeSession(sessionKey: string, root: string | null): Promise<void>;
  /**
   * Deletes unused contents. A timer also does it, a minute after a run has ended or a session was removed.
   */
  sweep(): Promise<void>;
  close(): Promise<void>;
}

export interface SnapshotsOptions {
  dataDir: string;
  database: Pick<Database, 'sql' | 'tx'>;
  agentId: string;
  limits?: Partial<SnapshotLimits>;
  /** Whether other processes may use the same data folder. */
  isShared?: boolean;
  clock: Clock;
  log: Log;
}

const defaultLimits: SnapshotLimits = {
  maxFiles: 20_000,
  maxBytes: 256 * 1024 * 1024,
  maxFileBytes: 4 * 1024 * 1024,
};
const maxStoreBytes = 1024 * 1024 * 1024;
const sweepDelayMs = 60_000;
// Younger contents of a shared folder are not deleted: another process may be about to refer to them.
const minSharedAgeMs = 10 * 60_000;
// The time limit of one undo or redo; a thousand files take about a second.
const restoreMs = 15_000;

interface Context {
  limits: SnapshotLimits;
  contents: ContentStore;
  store: SnapshotStore;
  snapshotters: Snapshotters;
  isShared: boolean;
  exclusive<T>(work: () => Promise<T>): Promise<T>;
  /** Runs of this process that have a snapshot or may take one. */
  activeRuns: Set<string>;
  /** Whether this is the first notice in the session that its changes cannot be undone. */
  isFirstNotice(sessionKey: string): boolean;
  clock: Clock;
  log: Log;
}

export function createSnapshots(options: SnapshotsOptions): Snapshots {
  const context = createContext(options);
  const { store, activeRuns, exclusive, contents, snapshotters } = context;
  const sweeper = createSweeper(context);
  return {
    begin(run) {
      if (context.limits.maxFiles === 0) return noSnapshot;
      activeRuns.add(run.runId);
      return createRunSnapshot({
        ...context,
        ...run,
        snapshotter: snapshotters.of(run.workspace),
        onEnd(hasSnapshot) {
          activeRuns.delete(run.runId);
          if (hasSnapshot) sweeper.plan();
        },
      });
    },
    async changes(run) {
      const { status, changes } = await exclusive(() => readChanges(context, run));
      return { status, files: await writeDiffs(contents, changes) };
    },
    restore: (run, direction, commit) => exclusive(() => restore(context, { run, direction }, commit)),
    async removeSession(sessionKey, root) {
      await store.removeSession(sessionKey);
      if (root !== null) snapshotters.forget(root);
      sweeper.plan();
    },
    sweep: () => exclusive(() => sweepContents(sweepOptions(context))),
    close: sweeper.close,
  };
}

function createContext({
  dataDir,
  database,
  agentId,
  limits: ownLimits,
  isShared = false,
  clock,
  log,
}: SnapshotsOptions): Context {
  const limits = { ...defaultLimits, ...ownLimits };
  const contents = contentStore(join(dataDir, 'snapshots'), clock);
  return {
    limits,
    contents,
    store: snapshotStore(database, agentId),
    snapshotters: createSnapshotters((workspace) =>
      createSnapshotter({ workspace, contents, limits, isShared, clock }),
    ),
    isShared,
    exclusive: createSerializer(),
    activeRuns: new Set(),
    isFirstNotice: createOnce(),
    clock,
    log,
  };
}

interface Snapshotters {
  of(workspace: Workspace): Snapshotter;
  /** Drops the snapshotter of a workspace, whose hashes keep contents from being deleted. */
  forget(root: string): void;
  /** The last hashes of all snapshotters. */
  lastHashes(): ReadonlySet<string>;
}

// When a snapshotter is dropped, the next snapshot of its workspace reads all files again.
const maxSnapshotters = 50;

function createSnapshotters(create: (workspace: Workspace) => Snapshotter): Snapshotters {
  const snapshotters = createLruCache<string, Snapshotter>({ capacity: maxSnapshotters });
  return {
    of(workspace) {
      const existing = snapshotters.get(workspace.root);
      if (existing !== undefined) return existing;
      const snapshotter = create(workspace);
      snapshotters.set(workspace.root, snapshotter);
      return snapshotter;
    },
    forget: (root) => snapshotters.delete(root),
    lastHashes: () =>
      new Set([...snapshotters.entries()].flatMap(([, snapshotter]) => [...snapshotter.lastHashes()])),
  };
}

const maxRemembered = 10_000;

/** Returns true for the first call with a key. Forgets all keys when there are too many. */
function createOnce(): (key: string) => boolean {
  const keys = new Set<string>();
  return (key) => {
    if (keys.has(key)) return false;
    if (keys.size >= maxRemembered) keys.clear();
    keys.add(key);
    return true;
  };
}

/**
 * Reads the changes of a run. A record that a dead process left open is closed first, with the current files.
 */
async function readChanges(
  context: Context,
  { sessionKey, runId, workspace }: Parameters<Snapshots['changes']>[0],
): Promise<{ status: ChangesStatus | 'none'; changes: StoredChange[] }> {
  const { store, contents, activeRuns, snapshotters } = context;
  const record = await store.record(sessionKey, runId);
  if (record === undefined) return { status: 'none', changes: [] };
  if (record.status !== 'open') return { status: record.status, changes: await store.changes(runId) };
  if (activeRuns.has(runId)) return { status: 'open', changes: [] };
  if (workspace === null) return { status: 'none', changes: [] };
  const snapshotter = snapshotters.of(workspace);
  const tree = record.treeHash === null ? undefined : await contents.get(record.treeHash);
  const changes =
    tree === undefined
      ? []
      : await closeRecord({ ...context, snapshotter, sessionKey, runId }, readTree(tree));
  if (changes !== 'too_many' && changes.length > 0) return { status: 'applied', changes };
  await store.remove(runId);
  return { status: 'none', changes: [] };
}

async function restore<T>(
  context: Context,
  { run, direction }: { run: RunReference; direction: Direction },
  commit: Commit<T>,
): Promise<T> {
  const { contents, clock } = context;
  const { workspace } = run;
  const { from, to } = statusesOf[direction];
  const { status, changes } = await readChanges(context, run);
  if (status !== from) throw nothingToRestore(direction, status);
  const restorations = planRestorations(changes, direction);
  const contentsByHash = await readContents(contents, restorations);
  if (contentsByHash === undefined) throw contentGone(direction);
  const contentOf = async (hash: string) => contentsByHash.get(hash) ?? contents.get(hash);
  let isRestored = false;
  let lastWork: Promise<unknown> = Promise.resolve();

  // The caller holds the session's lock meanwhile, which a slow disk must not prolong.
  async function apply(tx: Sql): Promise<Problem | null> {
    // Another process may have restored the files since `readChanges`; then they must stay as they are.
    if (!(await hasStatus(tx, run.runId, from))) return nothingToRestore(direction, to);
    const problem = await withTimeout(
      (signal) => {
        const work = changeFiles(context, workspace, { restorations, contentOf, signal });
        lastWork = work.catch(() => {});
        return work;
      },
      { ms: restoreMs, clock, error: tooSlow },
    );
    if (problem !== null) return problem;
    isRestored = true;
    await changeStatus(tx, run.runId, to);
    return null;
  }

  try {
    return await commit(apply, changes.map(toChangedFile));
  } catch (error) {
    // After a lost connection the new status may be committed, so the files stay: a repeated call finds them
    // restored.
    const isInDoubt = error instanceof Problem && error.kind === 'unavailable';
    if (isRestored && !isInDoubt)
      await restoreFiles(workspace, restorations.toReversed().map(reverse), { contentOf });
    // A restoration that has exceeded its deadline still rolls back; later work on files has to wait for
    // that.
    await settlesWithin(lastWork, { ms: restoreMs, clock });
    throw error;
  }
}

const statusesOf = {
  undo: { from: 'applied', to: 'undone' },
  redo: { from: 'undone', to: 'applied' },
} as const satisfies Record<Direction, { from: ChangesStatus; to: ChangesStatus }>;

/** Changes the files. Returns null, or the Problem because of which no file has changed. */
async function changeFiles(
  { limits: { maxFileBytes } }: Context,
  workspace: Workspace,
  {
    restorations,
    contentOf,
    signal,
  }: {
    restorations: readonly Restoration[];
    contentOf(hash: string): Promise<Buffer | undefined>;
    signal: AbortSignal;
  },
): Promise<Problem | null> {
  const conflicts = await findConflicts(workspace, restorations, { maxFileBytes, signal });
  if (conflicts.length > 0) return filesChanged(conflicts);
  const failedPath = await restoreFiles(workspace, restorations, { contentOf, signal });
  return failedPath === undefined ? null : filesChanged([failedPath]);
}

function planRestorations(changes: readonly StoredChange[], direction: Direction): Restoration[] {
  return (
    changes
      .map(({ path, before, after }): Restoration =>
        direction === 'undo' ? { path, from: after, to: before } : { path, from: before, to: after },
      )
      // Removals first: a removed file, or its folder, may be in the place of a restored file.
      .sort((left, right) => Number(left.to !== null) - Number(right.to !== null))
  );
}

function reverse({ path, from, to }: Restoration): Restoration {
  return { path, from: to, to: from };
}

const maxFilesNamed = 20;

function filesChanged(paths: readonly string[]): Problem {
  const more = paths.length > maxFilesNamed ? `, and ${paths.length - maxFilesNamed} more` : '';
  return new Problem(
    'conflict',
    'files_changed',
    `These files were changed after the run, so nothing was restored: ${paths.slice(0, maxFilesNamed).join(', ')}${more}.`,
    {
      param: 'runId',
      details: paths.slice(0, 100).map((path) => ({ path, message: 'has changed since' })),
    },
  );
}

function nothingToRestore(direction: Direction, status: ChangesStatus | 'none'): Problem {
  const code = direction === 'undo' ? 'nothing_to_undo' : 'nothing_to_redo';
  return new Problem('conflict', code, explainNothingToRestore(direction, status), { param: 'runId' });
}

function explainNothingToRestore(direction: Direction, status: ChangesStatus | 'none'): string {
  if (status === 'none') return 'The run has changed no files, or its changes are no longer kept.';
  if (status === 'open') return 'The run has not ended.';
  return direction === 'undo'
    ? 'The changes of the run are already undone.'
    : 'The changes of the run are in place; undo them first.';
}

function tooSlow(): Problem {
  const seconds = restoreMs / 1_000;
  return new Problem(
    'unavailable',
    'not_ready',
    `The files could not be restored within ${seconds} seconds, so they are as they were; try again.`,
  );
}

function contentGone(direction: Direction): Problem {
  return new Problem(
    'conflict',
    direction === 'undo' ? 'nothing_to_undo' : 'nothing_to_redo',
    'The contents of the files are no longer kept on this machine.',
    { param: 'runId' },
  );
}

function sweepOptions({ contents, store, snapshotters, isShared, clock }: Context): SweepOptions {
  return {
    contents,
    store,
    lastHashes: snapshotters.lastHashes,
    maxBytes: maxStoreBytes,
    minAgeMs: isShared ? minSharedAgeMs : 0,
    now: () => clock.now(),
  };
}

function createSweeper(context: Context): { plan(): void; close(): Promise<void> } {
  const { exclusive, clock, log } = context;
  const closing = new AbortController();
  let plannedSweep: Promise<void> | undefined;

  async function sweepLater(): Promise<void> {
    await clock.sleep(sweepDelayMs, closing.signal).catch(() => {});
    plannedSweep = undefined;
    if (closing.signal.aborted) return;
    await exclusive(() => sweepContents(sweepOptions(context))).catch((error: unknown) =>
      log.warn({ err: error }, 'contents of old snapshots could not be deleted'),
    );
  }

  return {
    plan() {
      plannedSweep ??= sweepLater();
    },
    async close() {
      closing.abort();
      await plannedSweep;
      await exclusive(async () => {});
    },
  };
}
