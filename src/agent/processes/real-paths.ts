// Resolves configured paths to real paths. Everything that is mounted or masked is compared by its real
// path: a link to a folder with secrets would otherwise show them under another name.
import { readlinkSync, realpathSync } from 'node:fs';
import { dirname, isAbsolute, join, resolve, sep } from 'node:path';
import { isWithin } from '../../kernel/folder.ts';
import { refusal } from '../refusal.ts';

export interface ResolvedPaths {
  /** Real paths that exist, except paths in a folder that programs may write. */
  paths: string[];
  /** Configured paths that lead to these real paths through a link. */
  links: { path: string; target: string }[];
}

/**
 * `writablePaths` are the real folders that programs may change. Throws a Problem where a path leads through
 * one of them and out again, since a program may have made that link. Paths that do not exist are left out.
 */
export function resolvePaths(paths: readonly string[], writablePaths: readonly string[]): ResolvedPaths {
  const result: ResolvedPaths = { paths: [], links: [] };
  for (const path of paths) {
    const target = realPathOf(path);
    if (target === undefined) continue;
    refuseLinkOutOfWritable(path, target, writablePaths);
    if (writablePaths.some((folder) => isWithin(target, folder))) continue;
    result.paths.push(target);
    if (target !== path) result.links.push({ path, target });
  }
  return result;
}

function refuseLinkOutOfWritable(path: string, target: string, writablePaths: readonly string[]): void {
  const folder = writableFolderLeft(path, target, writablePaths);
  if (folder === undefined) return;
  throw refusal(
    `The configured path ${path} leads through a link in ${folder}, which programs may change; ` +
      'configure the path that the link leads to.',
  );
}

/** Whether the path leads into one of the writable folders and through a link out of it again. */
export function leavesFolder(path: string, writablePaths: readonly string[]): boolean {
  const target = realPathOf(path);
  return target !== undefined && writableFolderLeft(path, target, writablePaths) !== undefined;
}

/** The writable folder through which the path leads although its target is elsewhere. */
function writableFolderLeft(
  path: string,
  target: string,
  writablePaths: readonly string[],
): string | undefined {
  const passedFolders = foldersOnTheWay(path);
  return writablePaths.find(
    (folder) =>
      !isWithin(target, folder) && passedFolders.some((passedFolder) => isWithin(passedFolder, folder)),
  );
}

// Linux follows at most this many links in one path.
const maxLinks = 40;

/**
 * The real folder of each name in the path, and of each name in the targets of links on the way: a user's
 * link may lead to a link that a program made.
 */
function foldersOnTheWay(path: string): string[] {
  const folders: string[] = [];
  const names = resolve(path).split(sep);
  let folder: string = sep;
  let linkCount = 0;
  for (let name = names.shift(); name !== undefined; name = names.shift()) {
    if (name === '' || name === '.') continue;
    if (name === '..') {
      folder = dirname(folder);
      continue;
    }
    folders.push(folder);
    const entry = join(folder, name);
    const target = linkTarget(entry);
    if (target === undefined || linkCount === maxLinks) {
      folder = entry;
      continue;
    }
    linkCount += 1;
    names.unshift(...target.split(sep));
    if (isAbsolute(target)) folder = sep;
  }
  return folders;
}

/** Undefined for a path that is not a link. */
function linkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

/** Undefined for a path that does not exist. */
export function realPathOf(path: string): string | undefined {
  try {
    return realpathSync(path);
  } catch {
    return undefined;
  }
}
