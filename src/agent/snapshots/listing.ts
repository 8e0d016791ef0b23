// Lists the files of the workspace that a snapshot has: no secrets, no links, no packages, nothing that git
// would ignore.
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
  /** The limit of all files together. */
  maxBytes: number;
  /** Larger files are left out. */
  maxFileBytes: number;
}

/** Why there is no snapshot, for a person to read. */
export class SnapshotRefusal extends Error {
  override readonly name = 'SnapshotRefusal';
}

// The folders of repositories hold the history itself, and those of packages are generated.
const skippedFolders: ReadonlySet<string> = new Set(['.git', '.hg', '.svn', '.jj', 'node_modules']);
const maxIgnoreBytes = 64 * 1024;
// Entries that are looked at and not taken.
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
  const { files, skippedPaths } = counter;
  const texts = new Map<string, string>();

  async function levelsOf(
    folder: string,
    names: readonly string[],
    hasFile: boolean,
  ): Promise<IgnoreLevel[]> {
    const text = ignore === undefined ? hasFile && (await readRules(workspace, folder)) : ignore.get(folder);
    if (typeof text !== 'string') return [];
    texts.set(folder, text);
    return [parseIgnoreFile(text, names.length)];
  }

  async function visit(
    folder: string,
    names: readonly string[],
    above: readonly IgnoreLevel[],
  ): Promise<void> {
    signal.throwIfAborted();
    const content = await workspace.content(folder).catch((error: unknown) => {
      if (folder === '.') throw error;
      return skipRefused(error);
    });
    if (content === undefined) {
      skippedPaths.push(folder);
      return;
    }
    counter.countVisits(content.files.length + content.folders.length + content.others.length);
    const pathOf = (name: string) => (folder === '.' ? name : `${folder}/${name}`);
    skippedPaths.push(...content.others.map(pathOf));
    const hasRules = content.files.some(({ name }) => name === '.gitignore');
    const levels = [...above, ...(await levelsOf(folder, names, hasRules))];
    for (const { name, stats } of content.files)
      if (!isIgnored(levels, [...names, name], false)) counter.add({ path: pathOf(name), stats });
    for (const name of content.folders) {
      const path = [...names, name];
      if (!skippedFolders.has(name) && !isIgnored(levels, path, true))
        await visit(pathOf(name), path, levels);
    }
  }

  await visit('.', [], []);
  return { files, skippedPaths, ignore: texts };
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

/** Undefined for a refusal of the workspace; throws every other error. */
export function skipRefused(error: unknown): undefined {
  if (!(error instanceof Problem)) throw error;
}
