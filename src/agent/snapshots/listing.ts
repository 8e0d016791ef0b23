// Lists the files of the workspace that belong in a snapshot: no secrets, no links, no packages, nothing that
// git would ignore.
import type { BigIntStats } from 'node:fs';
import { Problem } from '../../kernel/problem.ts';
import type { Workspace } from '../plugins/index.ts';
import { isIgnored, parseIgnoreFile, type IgnoreLevel } from './ignore-rules.ts';

export interface ListedFile {
  /** Relative to the workspace. */
  path: string;
  stats: BigIntStats;
}

export interface SnapshotLimits {
  maxFiles: number;
  /** The limit of all files in total. */
  maxBytes: number;
  /** Larger files are left out. */
  maxFileBytes: number;
}

/** There is no snapshot; the message is the reason, for a person to read. */
export class SnapshotRefusal extends Error {
  override readonly name = 'SnapshotRefusal';
}

// The folders of version control contain the history itself, and package folders are generated.
const skippedFolders: ReadonlySet<string> = new Set(['.git', '.hg', '.svn', '.jj', 'node_modules']);
const maxIgnoreBytes = 64 * 1024;
// How many entries are visited at most, for each file that a snapshot may have.
const visitsPerFile = 5;

export interface Listing {
  files: ListedFile[];
  skippedPaths: string[];
  /** The text of each `.gitignore` by its folder. */
  ignore: ReadonlyMap<string, string>;
}

/**
 * With `ignore`, the rules of an earlier listing apply: a change of the rules would look like files
 * that were created or deleted. Throws a SnapshotRefusal for a workspace that is too large, and the
 * signal's reason.
 */
export async function listFiles(
  workspace: Workspace,
  { limits, ignore }: { limits: SnapshotLimits; ignore: ReadonlyMap<string, string> | undefined },
  signal: AbortSignal,
): Promise<Listing> {
  const counter = createCounter(limits);
  const walk: Walk = { workspace, ignore, counter, texts: new Map(), signal };
  await visit(walk, [], []);
  return { files: counter.files, skippedPaths: counter.skippedPaths, ignore: walk.texts };
}

interface Walk {
  workspace: Workspace;
  /** The rules of an earlier listing, which replace those in the files. */
  ignore: ReadonlyMap<string, string> | undefined;
  counter: ReturnType<typeof createCounter>;
  /** The text of each `.gitignore` so far, by its folder. */
  texts: Map<string, string>;
  signal: AbortSignal;
}

/** `names` lead to the folder; `above` are the rules of the folders above it. */
async function visit(walk: Walk, names: readonly string[], above: readonly IgnoreLevel[]): Promise<void> {
  const { workspace, counter, signal } = walk;
  signal.throwIfAborted();
  const folder = names.length === 0 ? '.' : names.join('/');
  const content = await workspace.content(folder).catch((error: unknown) => {
    if (names.length === 0) throw error;
    return skipRefused(error);
  });
  if (content === undefined) {
    counter.skippedPaths.push(folder);
    return;
  }
  const { files, folders, others } = content;
  counter.countVisits(files.length + folders.length + others.length);
  counter.skippedPaths.push(...others.map((name) => [...names, name].join('/')));
  const hasRules = files.some(({ name }) => name === '.gitignore');
  const levels = [...above, ...(await readLevel(walk, names, hasRules))];
  for (const { name, stats } of files) {
    const path = [...names, name];
    if (!isIgnored(levels, path, false)) counter.add({ path: path.join('/'), stats });
  }
  for (const name of folders) {
    const path = [...names, name];
    if (!skippedFolders.has(name) && !isIgnored(levels, path, true)) await visit(walk, path, levels);
  }
}

/** The rules of one folder; none when it has no `.gitignore`. */
async function readLevel(
  { workspace, ignore, texts }: Walk,
  names: readonly string[],
  hasFile: boolean,
): Promise<IgnoreLevel[]> {
  const folder = names.length === 0 ? '.' : names.join('/');
  let text: string | undefined;
  if (ignore !== undefined) text = ignore.get(folder);
  else if (hasFile) text = await readRules(workspace, folder);
  if (text === undefined) return [];
  texts.set(folder, text);
  return [parseIgnoreFile(text, names.length)];
}

function createCounter({ maxFiles, maxBytes, maxFileBytes }: SnapshotLimits) {
  const files: ListedFile[] = [];
  const skippedPaths: string[] = [];
  let bytes = 0;
  let visits = 0;
  return {
    files,
    skippedPaths,
    add(file: ListedFile): void {
      const { size, nlink } = file.stats;
      // A hard link may have a second name outside of the workspace.
      if (nlink > 1n || size > maxFileBytes) {
        skippedPaths.push(file.path);
        return;
      }
      files.push(file);
      bytes += Number(size);
      if (files.length > maxFiles) throw new SnapshotRefusal(`the workspace has more than ${maxFiles} files`);
      if (bytes > maxBytes)
        throw new SnapshotRefusal(`the files of the workspace have more than ${maxBytes / 1024 ** 2} MiB`);
    },
    countVisits(count: number): void {
      visits += count;
      if (visits > visitsPerFile * maxFiles)
        throw new SnapshotRefusal(
          `the workspace has more than ${visitsPerFile * maxFiles} files and folders`,
        );
    },
  };
}

async function readRules(workspace: Workspace, folder: string): Promise<string | undefined> {
  const path = folder === '.' ? '.gitignore' : `${folder}/.gitignore`;
  return (await workspace.read(path, maxIgnoreBytes).catch(skipRefused))?.toString('utf8');
}

/** Handles a rejection: returns undefined when the workspace refuses a path, and throws any other error. */
export function skipRefused(error: unknown): undefined {
  if (!(error instanceof Problem)) throw error;
}
