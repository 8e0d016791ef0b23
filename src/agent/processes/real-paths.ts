// The real paths behind the configured ones. Everything that is mounted or masked is compared by
// real paths: a link to a folder with secrets would otherwise show them under another name.
import { realpathSync } from 'node:fs';
import { dirname } from 'node:path';
import { isWithin } from '../../kernel/folder.ts';
import { refusal } from '../refusal.ts';

export interface ResolvedPaths {
  /** Real paths that exist, without those in a folder that a program may write. */
  paths: string[];
  /** Configured paths that lead there through a link. */
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
    requireOwnLink(path, target, writablePaths);
    if (writablePaths.some((folder) => isWithin(target, folder))) continue;
    result.paths.push(target);
    if (target !== path) result.links.push({ path, target });
  }
  return result;
}

function requireOwnLink(path: string, target: string, writablePaths: readonly string[]): void {
  const folder = folderLeft(path, target, writablePaths);
  if (folder === undefined) return;
  throw refusal(
    `The path ${path} of the configuration leads through a link in ${folder}, which programs ` +
      'may change; name the folder that it leads to.',
  );
}

/** Whether the path leads through one of the real folders and out of it again. */
export function leavesFolder(path: string, writablePaths: readonly string[]): boolean {
  const target = realPathOf(path);
  return target !== undefined && folderLeft(path, target, writablePaths) !== undefined;
}

function folderLeft(path: string, target: string, writablePaths: readonly string[]): string | undefined {
  for (let step = path; step !== dirname(step); step = dirname(step)) {
    const realFolder = realPathOf(dirname(step));
    const folder = writablePaths.find((entry) => realFolder !== undefined && isWithin(realFolder, entry));
    if (folder !== undefined && !isWithin(target, folder)) return folder;
  }
  return undefined;
}

/** Undefined for a path that does not exist. */
export function realPathOf(path: string): string | undefined {
  try {
    return realpathSync(path);
  } catch {
    return undefined;
  }
}
