// Takes snapshots of the workspace: a hash for each file, its content in the store. A file is read again only
// when its times, size or inode say that it may have changed.
import type { BigIntStats } from 'node:fs';
import type { Clock } from '../../kernel/clock.ts';
import type { Workspace } from '../plugins/index.ts';
import type { ContentStore } from './content-store.ts';
import {
  listFiles,
  skipRefused,
  SnapshotRefusal,
  type ListedFile,
  type Listing,
  type SnapshotLimits,
} from './listing.ts';
import type { FileState, Tree } from './tree.ts';

export interface Snapshotter {
  /**
   * Takes a snapshot. With `before`, the ignore rules of that snapshot apply. Throws a SnapshotRefusal for a
   * workspace that is too large, and the signal's reason when it is aborted.
   */
  take(signal: AbortSignal, before?: Tree): Promise<Tree>;
  /** The hashes of the last snapshot: the next one relies on their contents. */
  lastHashes(): ReadonlySet<string>;
}

interface KnownFile {
  identity: string;
  state: FileState;
  /** When its content was put or renewed. */
  renewedMs: number;
}

const parallelReads = 8;
// A change within one tick of the file system's clock leaves the times as they are; ticks are up to 10 ms.
const settledMs = 100;
// How long a refusal holds, so that a workspace that is too large is not listed again for each run.
const refusalMs = 60_000;
// Has to be shorter than the age that a content must have before other processes delete it (10 minutes).
const renewalMs = 5 * 60_000;

export interface SnapshotterOptions {
  workspace: Workspace;
  contents: ContentStore;
  limits: SnapshotLimits;
  /** Whether other processes sweep the contents too: they do not know the last hashes of this process. */
  isShared: boolean;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
}

interface SnapshotterState extends SnapshotterOptions {
  /** The files of the last snapshot, by path. */
  lastFiles: ReadonlyMap<string, KnownFile>;
  /** The last refusal of the workspace, and how long it holds. */
  refusal: { error: SnapshotRefusal; untilMs: number } | undefined;
}

export function createSnapshotter(options: SnapshotterOptions): Snapshotter {
  const state: SnapshotterState = { ...options, lastFiles: new Map(), refusal: undefined };
  return {
    take: (signal, before) => take(state, signal, before),
    lastHashes: () => new Set([...state.lastFiles.values()].map((file) => file.state.hash)),
  };
}

async function take(
  snapshotter: SnapshotterState,
  signal: AbortSignal,
  before: Tree | undefined,
): Promise<Tree> {
  const startedMs = snapshotter.clock.now().getTime();
  const { files, skippedPaths, ignore } = await list(snapshotter, signal, before);
  const states = new Map<string, FileState>();
  const settledFiles = new Map<string, KnownFile>();
  const takeAll = forEachInParallel(files, async (file) => {
    signal.throwIfAborted();
    const { path, stats } = file;
    const knownFile = await read(snapshotter, file);
    if (knownFile === undefined) {
      skippedPaths.push(path);
      return;
    }
    states.set(path, knownFile.state);
    if (Number(stats.ctimeMs) < startedMs - settledMs) settledFiles.set(path, knownFile);
  });
  await takeAll.catch((error: unknown) => {
    // The next attempt need not read these files again.
    snapshotter.lastFiles = new Map([...snapshotter.lastFiles, ...settledFiles]);
    throw error;
  });
  snapshotter.lastFiles = settledFiles;
  return { files: states, skippedPaths: new Set(skippedPaths), ignore };
}

async function list(
  snapshotter: SnapshotterState,
  signal: AbortSignal,
  before: Tree | undefined,
): Promise<Listing> {
  const { workspace, limits, refusal, clock } = snapshotter;
  if (refusal !== undefined && clock.monotonicMs() < refusal.untilMs) throw refusal.error;
  try {
    return await listFiles(workspace, { limits, ignore: before?.ignore }, signal);
  } catch (error) {
    if (error instanceof SnapshotRefusal)
      snapshotter.refusal = { error, untilMs: clock.monotonicMs() + refusalMs };
    throw error;
  }
}

/** Undefined for a file that tools may not read. */
async function read(
  snapshotter: SnapshotterState,
  { path, stats }: ListedFile,
): Promise<KnownFile | undefined> {
  const { workspace, contents, limits, lastFiles, clock } = snapshotter;
  const identity = identityOf(stats);
  const existing = lastFiles.get(path);
  const nowMs = clock.monotonicMs();
  if (existing?.identity === identity && (await hasContent(snapshotter, existing))) {
    const isRecent = nowMs - existing.renewedMs < renewalMs;
    return isRecent ? existing : { ...existing, renewedMs: nowMs };
  }
  // The file may have grown since it was listed.
  const content = await workspace.read(path, limits.maxFileBytes).catch(skipRefused);
  if (content === undefined) return undefined;
  const state = { hash: await contents.put(content), mode: Number(stats.mode & 0o777n) };
  return { identity, state, renewedMs: nowMs };
}

/** Whether the content store still has the content: other processes delete old contents. */
async function hasContent(
  { contents, isShared, clock }: SnapshotterState,
  { state, renewedMs }: KnownFile,
): Promise<boolean> {
  return !isShared || clock.monotonicMs() - renewedMs < renewalMs || contents.renew(state.hash);
}

function identityOf({ ino, size, mode, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${ino} ${size} ${mode} ${mtimeNs} ${ctimeNs}`;
}

/** Runs the work for all items, a few of them at a time. */
async function forEachInParallel<Item>(
  items: readonly Item[],
  work: (item: Item) => Promise<void>,
): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length) {
      const item = items[next] as Item;
      next += 1;
      await work(item);
    }
  };
  await Promise.all(Array.from({ length: parallelReads }, worker));
}
