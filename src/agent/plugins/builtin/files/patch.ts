// Changes several files at once: all changes are computed before the first file is written, and if a
// write fails, the files that were written before it are restored.
import { isMissing } from '../../../../kernel/file-errors.ts';
import { Problem } from '../../../../kernel/problem.ts';
import { refusal } from '../../../refusal.ts';
import { applyHunks, DiffError, parseUnifiedDiff, type FileDiff } from './unified-diff.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { pathSegments } from '../workspace/paths.ts';

/** Either exact replacements or a unified diff. */
export interface PatchInput {
  edits?: Replacement[];
  diff?: string;
}

export interface Replacement {
  path: string;
  oldText: string;
  newText: string;
  all?: boolean;
}

export interface PatchResult {
  files: { path: string; change: 'created' | 'changed' | 'deleted'; bytes: number }[];
}

interface FileChange {
  path: string;
  /** Null for a file that does not exist yet. */
  before: string | null;
  /** Null for a file that is deleted. */
  after: string | null;
}

export interface PatchFiles {
  workspace: Workspace;
  /** Throws for a file that is too large or not text. */
  readText(path: string): Promise<string>;
  maxBytes: number;
}

/**
 * The paths that the patch changes, each once and without empty and `.` names. Empty for an input
 * that `applyPatch` refuses.
 */
export function patchedPaths({ edits = [], diff }: PatchInput): string[] {
  try {
    const paths = diff === undefined ? edits.map(({ path }) => path) : parseUnifiedDiff(diff).map(pathOf);
    return [...new Set(paths.map((path) => pathSegments(path).join('/')))];
  } catch {
    return [];
  }
}

/**
 * Throws a Problem that names the change that does not fit. No file has changed then, except the files
 * that the Problem lists as changed because they could not be restored after a failed write.
 */
export async function applyPatch(input: PatchInput, files: PatchFiles): Promise<PatchResult> {
  const { edits = [], diff } = input;
  if ((diff === undefined) === (edits.length === 0))
    throw refusal('Send either `edits` or a `diff`, and not both.');
  const changes = diff === undefined ? await planEdits(edits, files) : await planDiff(diff, files);
  for (const { path, after } of changes)
    if (after !== null && Buffer.byteLength(after) > files.maxBytes) throw sizeRefusal(path, files.maxBytes);
  await writeAll(changes, files.workspace);
  return {
    files: changes.map(({ path, before, after }) => ({
      path,
      change: changeKind(before, after),
      bytes: Buffer.byteLength(after ?? ''),
    })),
  };
}

function changeKind(before: string | null, after: string | null): 'created' | 'deleted' | 'changed' {
  if (before === null) return 'created';
  return after === null ? 'deleted' : 'changed';
}

/** The refusal of a change whose result exceeds the limit. */
export function sizeRefusal(path: string, maxBytes: number): Problem {
  return refusal(`The file ${JSON.stringify(path)} would be larger than ${maxBytes / 1024} KiB.`);
}

/** Throws a Problem when the file lacks the old text, or contains it several times without `all`. */
export function replaceText(
  text: string,
  { path, oldText, newText, all = false }: Replacement,
  maxBytes: number,
): { text: string; count: number } {
  const pieces = text.split(oldText);
  const count = pieces.length - 1;
  const label = `The file ${JSON.stringify(path)}`;
  if (count === 0) throw refusal(`${label} does not contain the old text.`);
  if (count > 1 && !all)
    throw refusal(
      `${label} contains the old text ${count} times; add more of the lines around it, or set \`all\`.`,
    );
  // Check the length before joining: replacing every occurrence of one letter by a long text could
  // otherwise allocate gigabytes. A text has at least as many bytes as characters; callers check the bytes.
  if (text.length + count * (newText.length - oldText.length) > maxBytes) throw sizeRefusal(path, maxBytes);
  return { text: pieces.join(newText), count };
}

async function planEdits(edits: readonly Replacement[], files: PatchFiles): Promise<FileChange[]> {
  const changes = new Map<string, FileChange & { after: string }>();
  for (const [index, edit] of edits.entries()) {
    const key = await fileKey(edit.path, files.workspace);
    const earlier = changes.get(key);
    const text = earlier?.after ?? (await files.readText(edit.path));
    try {
      const after = replaceText(text, edit, files.maxBytes).text;
      changes.set(key, { path: earlier?.path ?? edit.path, before: earlier?.before ?? text, after });
    } catch (cause) {
      throw refusal(
        `\`edits[${index}]\` does not fit, and nothing was changed. ${(cause as Error).message}`,
        cause,
      );
    }
  }
  return [...changes.values()];
}

async function planDiff(diff: string, files: PatchFiles): Promise<FileChange[]> {
  const changes = new Map<string, FileChange>();
  for (const file of parseDiff(diff)) {
    const key = await fileKey(pathOf(file), files.workspace);
    if (changes.has(key))
      throw refusal(`The diff names ${JSON.stringify(pathOf(file))} twice; put its hunks under one header.`);
    changes.set(key, await planFile(file, files));
  }
  return [...changes.values()];
}

/** One key for all paths of a file, such as `a.txt`, `./a.txt` and a path through a linked folder. */
function fileKey(path: string, workspace: Workspace): Promise<string> {
  return workspace.resolve(pathSegments(path).join('/'));
}

async function planFile(file: FileDiff, { workspace, readText }: PatchFiles): Promise<FileChange> {
  const path = pathOf(file);
  const before = file.oldPath === null ? null : await readText(path);
  if (before === null && (await pathExists(workspace, path)))
    throw refusal(`The diff creates ${JSON.stringify(path)}, which exists; nothing was changed.`);
  try {
    const after = applyHunks(before ?? '', file.hunks);
    if (file.newPath === null && after !== '')
      throw new DiffError('The diff deletes the file, but its hunks leave lines in it.');
    return { path, before, after: file.newPath === null ? null : after };
  } catch (cause) {
    if (!(cause instanceof DiffError)) throw cause;
    throw refusal(`${JSON.stringify(path)}: ${cause.message} Nothing was changed.`, cause);
  }
}

function parseDiff(diff: string): FileDiff[] {
  try {
    return parseUnifiedDiff(diff);
  } catch (cause) {
    if (!(cause instanceof DiffError)) throw cause;
    throw refusal(cause.message, cause);
  }
}

function pathOf({ oldPath, newPath }: FileDiff): string {
  return newPath ?? oldPath ?? '';
}

/** Anything that is not missing exists, such as a file of more than 0 bytes, which this read refuses. */
async function pathExists(workspace: Workspace, path: string): Promise<boolean> {
  return workspace.read(path, 0).then(
    () => true,
    (error: unknown) => !(error instanceof Problem && isMissing(error.cause)),
  );
}

async function writeAll(changes: readonly FileChange[], workspace: Workspace): Promise<void> {
  const doneChanges: FileChange[] = [];
  try {
    for (const change of changes) {
      await writeOne(workspace, change.path, change.after);
      doneChanges.push(change);
    }
  } catch (error) {
    const failedPaths = await restoreAll(doneChanges.reverse(), workspace);
    if (failedPaths.length === 0) throw error;
    const reason = error instanceof Problem ? error.message : 'A file could not be written.';
    const names = failedPaths.map((path) => JSON.stringify(path)).join(', ');
    throw refusal(`${reason} These files were changed and could not be restored: ${names}.`, error);
  }
}

/** Restores each file that it can, and returns the paths of the others. */
async function restoreAll(changes: readonly FileChange[], workspace: Workspace): Promise<string[]> {
  const failedPaths: string[] = [];
  for (const { path, before } of changes)
    await writeOne(workspace, path, before).catch(() => failedPaths.push(path));
  return failedPaths;
}

async function writeOne(workspace: Workspace, path: string, text: string | null): Promise<void> {
  if (text === null) await workspace.remove(path);
  else await workspace.write(path, Buffer.from(text, 'utf8'));
}
