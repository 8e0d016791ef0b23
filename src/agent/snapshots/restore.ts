// Restores files to an earlier state, unless they have changed since.
import { errorCode, isMissing } from '../../kernel/file-errors.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Workspace } from '../plugins/index.ts';
import { hashOf, type ContentStore } from './content-store.ts';
import { isSame, type FileState } from './tree.ts';

/** A file to change from one state to another. */
export interface Restoration {
  path: string;
  from: FileState | null;
  to: FileState | null;
}

/**
 * Null where there is no file, but possibly a folder; `occupied` for a file that is too large or that tools
 * may not read, and for anything else.
 */
type CurrentState = FileState | null | 'occupied';

/**
 * Returns the paths of the files that are in neither of their two states, because they have changed since. A
 * file that is in its final state already is no conflict, so that a restoration may be repeated.
 */
export async function findConflicts(
  workspace: Workspace,
  restorations: readonly Restoration[],
  { maxFileBytes, signal }: { maxFileBytes: number; signal: AbortSignal },
): Promise<string[]> {
  const conflicts: string[] = [];
  for (const { path, from, to } of restorations) {
    signal.throwIfAborted();
    const current = await readCurrentState(workspace, path, maxFileBytes);
    const isExpected = current !== 'occupied' && (isSame(current, from) || isSame(current, to));
    if (!isExpected) conflicts.push(path);
  }
  return conflicts;
}

/** Reads the contents to restore, by hash; undefined when one of them is no longer stored. */
export async function readContents(
  contents: ContentStore,
  restorations: readonly Restoration[],
): Promise<Map<string, Buffer> | undefined> {
  const contentsByHash = new Map<string, Buffer>();
  for (const { to } of restorations) {
    if (to === null || contentsByHash.has(to.hash)) continue;
    const content = await contents.get(to.hash);
    if (content === undefined) return undefined;
    contentsByHash.set(to.hash, content);
  }
  return contentsByHash;
}

/**
 * Restores files. If one cannot be written, rolls back the files before it and returns its path. Also rolls
 * back when the signal is aborted, and then throws the signal's reason.
 */
export async function restoreFiles(
  workspace: Workspace,
  restorations: readonly Restoration[],
  { contentOf, signal }: { contentOf: ContentOf; signal?: AbortSignal },
): Promise<string | undefined> {
  const restoredFiles: Restoration[] = [];
  const rollBack = async () => {
    for (const { path, from } of restoredFiles.reverse())
      await put(workspace, path, from, contentOf).catch(() => {});
  };
  for (const restoration of restorations) {
    try {
      await put(workspace, restoration.path, restoration.to, contentOf);
      restoredFiles.push(restoration);
    } catch (error) {
      await rollBack();
      if (!(error instanceof Problem)) throw error;
      return restoration.path;
    }
    if (signal?.aborted === true) {
      await rollBack();
      throw signal.reason;
    }
  }
  return undefined;
}

type ContentOf = (hash: string) => Promise<Buffer | undefined>;

async function put(
  workspace: Workspace,
  path: string,
  state: FileState | null,
  contentOf: ContentOf,
): Promise<void> {
  if (state === null) {
    await workspace.remove(path, { withFolders: true }).catch(async (error: unknown) => {
      if (!(await isFree(workspace, path, error))) throw error;
    });
    return;
  }
  const content = await contentOf(state.hash);
  if (content === undefined)
    throw new Problem(
      'conflict',
      'nothing_to_undo',
      `The content of ${JSON.stringify(path)} is no longer kept.`,
    );
  await workspace.write(path, content, state.mode);
}

async function readCurrentState(
  workspace: Workspace,
  path: string,
  maxFileBytes: number,
): Promise<CurrentState> {
  try {
    return await workspace.open(path, async (file) => {
      const { mode, size } = await file.stat();
      if (size > maxFileBytes) return 'occupied';
      return { hash: hashOf(await file.readFile()), mode: mode & 0o777 };
    });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return (await isFree(workspace, path, error)) ? null : 'occupied';
  }
}

/**
 * Whether the error means that there is no file at the path. There may be a folder, or a file in the place of
 * a folder above it: where the two have replaced each other, removals make the place free, and otherwise the
 * writes fail.
 */
async function isFree(workspace: Workspace, path: string, error: unknown): Promise<boolean> {
  if (!(error instanceof Problem)) return false;
  if (isMissing(error.cause) || errorCode(error.cause) === 'ENOTDIR') return true;
  return workspace.folder(path).then(
    () => true,
    () => false,
  );
}
