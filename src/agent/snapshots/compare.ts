// Describes changed files: counts of lines, and unified diffs.
import { isUtf8 } from 'node:buffer';
import { nextTurn } from '../../kernel/async.ts';
import { diffTexts } from '../../kernel/line-diff.ts';
import type { ContentStore } from './content-store.ts';
import type { StoredChange } from './store.ts';
import type { FileChange, FileState } from './tree.ts';

export type ChangeKind = 'created' | 'changed' | 'deleted';

/** A changed file as the contract describes it. */
export interface ChangedFile {
  path: string;
  change: ChangeKind;
  additions: number | null;
  deletions: number | null;
}

export interface FileDiff extends ChangedFile {
  /** Null for files that are not text or exceed the size limits. */
  diff: string | null;
}

// Larger files are listed without a comparison.
const maxComparedBytes = 256 * 1024;
const maxDiffCharacters = 256 * 1024;
const maxTotalCharacters = 1024 * 1024;

export async function countLines(
  contents: ContentStore,
  changes: readonly FileChange[],
): Promise<StoredChange[]> {
  const storedChanges: StoredChange[] = [];
  for (const change of changes) {
    const texts = await readTexts(contents, change);
    const counts = texts === undefined ? undefined : diffTexts(texts.before, texts.after);
    storedChanges.push({
      ...change,
      additions: counts?.additions ?? null,
      deletions: counts?.deletions ?? null,
    });
    await nextTurn();
  }
  return storedChanges;
}

export async function writeDiffs(
  contents: ContentStore,
  changes: readonly StoredChange[],
): Promise<FileDiff[]> {
  let remainingCharacters = maxTotalCharacters;
  const files: FileDiff[] = [];
  for (const change of changes) {
    const diff = remainingCharacters > 0 ? await writeDiff(contents, change) : null;
    const hasRoom = diff !== null && diff.length <= Math.min(remainingCharacters, maxDiffCharacters);
    if (hasRoom) remainingCharacters -= diff.length;
    files.push({ ...toChangedFile(change), diff: hasRoom ? diff : null });
    await nextTurn();
  }
  return files;
}

export function toChangedFile({ path, before, after, additions, deletions }: StoredChange): ChangedFile {
  return { path, change: changeKind(before, after), additions, deletions };
}

function changeKind(before: unknown, after: unknown): ChangedFile['change'] {
  if (before === null) return 'created';
  return after === null ? 'deleted' : 'changed';
}

async function writeDiff(contents: ContentStore, change: StoredChange): Promise<string | null> {
  const texts = await readTexts(contents, change);
  if (texts === undefined) return null;
  const { path, before, after } = change;
  const hasNewMode = before !== null && after !== null && before.mode !== after.mode;
  const modes = hasNewMode ? `old mode ${formatMode(before)}\nnew mode ${formatMode(after)}\n` : '';
  const { hunks } = diffTexts(texts.before, texts.after);
  if (hunks === '') return modes;
  const from = before === null ? '/dev/null' : `a/${path}`;
  const to = after === null ? '/dev/null' : `b/${path}`;
  return `${modes}--- ${from}\n+++ ${to}\n${hunks}`;
}

function formatMode({ mode }: FileState): string {
  return `100${mode.toString(8).padStart(3, '0')}`;
}

/** Undefined when one of the two contents is not text, too large or no longer stored. */
async function readTexts(
  contents: ContentStore,
  { before, after }: FileChange,
): Promise<{ before: string; after: string } | undefined> {
  const [oldText, newText] = await Promise.all([readText(contents, before), readText(contents, after)]);
  return oldText === undefined || newText === undefined ? undefined : { before: oldText, after: newText };
}

async function readText(contents: ContentStore, state: FileState | null): Promise<string | undefined> {
  if (state === null) return '';
  const content = await contents.get(state.hash);
  if (content === undefined || content.length > maxComparedBytes || content.includes(0) || !isUtf8(content))
    return undefined;
  return content.toString('utf8');
}
