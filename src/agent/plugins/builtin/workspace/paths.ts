// Resolves paths of the model to places in the workspace that tools may use. Each reason for a refusal
// is worded to follow the path in a sentence.
import { realpath } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { errorCode } from '../../../../kernel/file-errors.ts';
import { isWithin } from '../../../../kernel/folder.ts';
import { Problem } from '../../../../kernel/problem.ts';
import { startOfText } from '../../../../kernel/start-of-text.ts';
import { isEnvironmentFile, isPackageFile, type SecretPlaces } from './secret-places.ts';

export interface PathGuard {
  /**
   * The real path of a path from the model, with all links followed. Throws unless tools may use
   * it.
   */
  locate(path: string): Promise<string>;
  /** Throws unless the real path is within the workspace and not secret. */
  requireReachable(path: string, realPath: string): Promise<void>;
}

/** `root` is absolute and without links. */
export function pathGuard(root: string, secrets: SecretPlaces): PathGuard {
  async function requireReachable(path: string, realPath: string): Promise<void> {
    if (!isWithin(realPath, root)) throw pathRefusal(path, 'leads outside the workspace');
    const reason = await secrets.refusalOf(realPath);
    if (reason !== undefined) throw pathRefusal(path, reason);
  }
  return {
    requireReachable,
    async locate(path) {
      const realPath = await realpath(join(root, ...pathSegments(path))).catch((cause: unknown) => {
        throw fileSystemRefusal(path, cause);
      });
      await requireReachable(path, realPath);
      return realPath;
    },
  };
}

/** Checks the file's own name only: some projects have a folder named `.env`. */
export function requireNoEnvironmentFile(path: string, realPath: string): void {
  if (isEnvironmentFile(basename(realPath)) || isEnvironmentFile(basename(path))) {
    throw pathRefusal(path, 'is an environment file, which usually holds secrets; no tool opens it');
  }
}

/** A hard link may have another name outside the workspace, which cannot be seen from here. */
export function requireNoHardLink(path: string, realPath: string, links: number): void {
  if (links > 1 && !isPackageFile(realPath)) {
    throw pathRefusal(
      path,
      'is a hard link, whose other name may lie outside the workspace; copy it and read the copy',
    );
  }
}

/** The names along a path. Throws for a malformed or absolute path before any file system access. */
export function pathSegments(path: string): string[] {
  if (path.length > 4096) throw pathRefusal(path, 'is too long');
  if (/[\u0000-\u001f\u007f]/.test(path) || !path.isWellFormed())
    throw pathRefusal(path, 'contains control characters or invalid Unicode');
  if (path.includes('\\')) throw pathRefusal(path, 'contains a backslash; separate folders with a slash');
  if (path.startsWith('/') || /^[A-Za-z]:/.test(path))
    throw pathRefusal(path, 'is absolute; use a path relative to the workspace');
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  if (names.includes('..'))
    throw pathRefusal(path, 'contains `..`; use a path relative to the workspace that only leads down');
  return names;
}

export function pathRefusal(path: string, reason: string, cause?: unknown): Problem {
  const label = JSON.stringify(startOfText(path, 200));
  return new Problem('impossible', 'action_refused', `The path ${label} ${reason}.`, {
    param: 'path',
    cause,
  });
}

export function fileSystemRefusal(path: string, cause: unknown): Problem {
  return pathRefusal(path, reasonOf(cause), cause);
}

function reasonOf(cause: unknown): string {
  switch (errorCode(cause)) {
    case 'ENOENT':
      return 'does not exist';
    case 'ENOTDIR':
      return 'goes through something that is not a folder';
    case 'EISDIR':
      return 'is a folder';
    case 'ELOOP':
      return 'is a link';
    case 'EACCES':
    case 'EPERM':
      return 'is not accessible';
    case 'ENOSPC':
    case 'EDQUOT':
      return 'cannot be written: no space is left';
    case 'ENAMETOOLONG':
      return 'is too long';
    default:
      return 'cannot be used';
  }
}
