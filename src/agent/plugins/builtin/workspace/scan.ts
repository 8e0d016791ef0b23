// Finds the entries of a workspace that a program in the sandbox must not see or change.
// It decides by names, and runs before each start of a program, so that it covers new files as well.
import { access, chmod, constants, lstat, readdir, readlink, stat } from 'node:fs/promises';
import type { Dirent, Stats } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { errorCode } from '../../../../kernel/file-errors.ts';
import { isWithin } from '../../../../kernel/folder.ts';
import { refusal } from '../../../refusal.ts';
import { pathsOfConfig } from './git-config.ts';
import { isPackageFile, isEnvironmentFile, type SecretPlaces } from './secret-places.ts';
import { isProtectedName, isProtectedPath, repositoryParts } from './protected-files.ts';

export interface WorkspaceScan {
  /** Absolute paths of secrets; no link is among them. */
  hidden: readonly string[];
  /**
   * Absolute paths of files and folders that other programs run or read as
   * configuration. A repository's folder is listed besides its parts, so that it is not moved.
   */
  protected: readonly ProtectedEntry[];
  /** Paths that the configuration of repositories names; they need not exist. */
  configPaths: readonly string[];
  /** Folders that no path can address: their names are not UTF-8, or their paths are too long. */
  unreadableNames: readonly string[];
}

export interface ProtectedEntry {
  path: string;
  /** Device and inode of the entry. */
  identity: string;
  /** Device and inode of its folder. */
  folderIdentity: string;
  /** The target of a link, else null. */
  target: string | null;
}

// Reading so many entries takes about two seconds; packages do not count, since their entries are skipped.
const maxEntries = 200_000;

export interface ScanOptions {
  root: string;
  secrets: SecretPlaces;
  /** Absolute paths of files that count as protected under any name. */
  programs: ReadonlySet<string>;
  /**
   * Whether to make a folder readable whose mode prevents reading it; otherwise the scan hides it. Set for
   * the scan after a command, which must find the protected files whatever else the command created: it goes
   * on beyond `maxEntries` and past folders whose paths are too long.
   */
  makesUsable?: ((folder: string) => boolean) | undefined;
}

interface Scan extends ScanOptions {
  hidden: string[];
  protected: ProtectedEntry[];
  configPaths: Set<string>;
  unreadableNames: string[];
  /** How many entries the scan has read. */
  count: number;
}

/** Throws a Problem when the workspace has too many files to scan. */
export async function scanWorkspace(options: ScanOptions): Promise<WorkspaceScan> {
  const scan: Scan = {
    ...options,
    hidden: [],
    protected: [],
    configPaths: new Set(),
    unreadableNames: [],
    count: 0,
  };
  await walk(scan, options.root, { isProtected: false });
  const { hidden, protected: protectedEntries, configPaths, unreadableNames } = scan;
  return { hidden, protected: protectedEntries, configPaths: [...configPaths], unreadableNames };
}

async function walk(scan: Scan, folder: string, { isProtected }: { isProtected: boolean }): Promise<void> {
  const dirents = await readUsableFolder(scan, folder);
  if (dirents === null) {
    // Hide it as a whole: a program of the same user could make it readable.
    scan.hidden.push(folder);
    return;
  }
  scan.count += dirents.length;
  if (scan.count > maxEntries && scan.makesUsable === undefined)
    throw refusal(
      `The workspace holds more than ${maxEntries} files outside of node_modules, too many to ` +
        'find its secrets; choose a smaller folder.',
    );
  if (dirents.some(({ name }) => name === 'HEAD') && dirents.some(({ name }) => name === 'objects'))
    await addRepository(scan, folder);
  for (const dirent of dirents) await visit(scan, { folder, dirent, isFolderProtected: isProtected });
}

// Within a protected folder the scan collects only secrets: the folder protects all other entries.
async function visit(
  scan: Scan,
  { folder, dirent, isFolderProtected }: { folder: string; dirent: Dirent; isFolderProtected: boolean },
): Promise<void> {
  const path = join(folder, dirent.name);
  if (await isSecret(scan, folder, dirent)) {
    scan.hidden.push(path);
    return;
  }
  const isProtected =
    isProtectedName(dirent.name) ||
    isProtectedPath(relative(scan.root, path)) ||
    (!dirent.isDirectory() && scan.programs.has(path));
  if (isProtected && !isFolderProtected) await addProtected(scan, path);
  if (dirent.name === '.git' && dirent.isFile()) await addConfigured(scan, path);
  if (!dirent.isDirectory() || isPackageFile(path)) return;
  if (dirent.name.includes('\ufffd') && (await readStats(path)) === undefined)
    scan.unreadableNames.push(path);
  if (dirent.name === '.git') await addRepository(scan, path);
  else await walk(scan, path, { isProtected: isFolderProtected || isProtected });
}

async function isSecret({ secrets }: Scan, folder: string, dirent: Dirent): Promise<boolean> {
  if (dirent.isSymbolicLink()) return false;
  return (await secrets.hides(folder, dirent)) || (dirent.isFile() && isEnvironmentFile(dirent.name));
}

async function addRepository(scan: Scan, folder: string): Promise<void> {
  for (const part of repositoryParts) await addProtected(scan, join(folder, part));
  await addConfigured(scan, folder);
}

/** Adds the paths that the configuration of a repository names. */
async function addConfigured(scan: Scan, gitPath: string): Promise<void> {
  const { root, configPaths } = scan;
  for (const path of await pathsOfConfig(gitPath)) {
    if (path === root || !isWithin(path, root) || isWithin(gitPath, path)) continue;
    if (configPaths.has(path) || isProtectedPath(relative(root, path))) continue;
    configPaths.add(path);
    await addProtected(scan, path);
  }
}

async function addProtected(scan: Scan, path: string): Promise<void> {
  const [stats, folderStats] = await Promise.all([readStats(path), readStats(dirname(path))]);
  if (stats === undefined || folderStats === undefined) return;
  scan.protected.push({
    path,
    identity: identityOf(stats),
    folderIdentity: identityOf(folderStats),
    target: stats.isSymbolicLink() ? await readlink(path).catch(() => '') : null,
  });
}

/** The entry itself, not the target of a link; undefined when there is none. */
async function readStats(path: string): Promise<Stats | undefined> {
  return lstat(path).catch(() => undefined);
}

async function readUsableFolder(scan: Scan, folder: string): Promise<Dirent[] | null> {
  const { root, makesUsable } = scan;
  if (makesUsable !== undefined && (await isTooLong(folder))) {
    scan.unreadableNames.push(folder);
    return [];
  }
  const dirents = await readFolder(root, folder);
  if (dirents !== null || makesUsable?.(folder) !== true) return dirents;
  await makeUsable(folder);
  return readFolder(root, folder);
}

async function isTooLong(folder: string): Promise<boolean> {
  return lstat(folder).then(
    () => false,
    (error: unknown) => errorCode(error) === 'ENAMETOOLONG',
  );
}

/**
 * Null for a folder whose mode prevents reading its entries; throws a Problem for the workspace itself.
 */
async function readFolder(root: string, folder: string): Promise<Dirent[] | null> {
  try {
    const dirents = await readdir(folder, { withFileTypes: true });
    if (dirents.length > 0) await access(folder, constants.X_OK);
    return dirents;
  } catch (cause) {
    const code = errorCode(cause);
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    if ((code === 'EACCES' || code === 'EPERM') && folder !== root) return null;
    const name = relative(root, folder) || '.';
    throw refusal(
      `The folder ${JSON.stringify(name.slice(0, 200))} of the workspace cannot be read ` +
        `(${code ?? 'unknown'}), so its secrets cannot be found; make it readable.`,
      cause,
    );
  }
}

/** Gives the owner of a folder all permissions on it. */
export async function makeUsable(folder: string): Promise<void> {
  const { mode } = await stat(folder);
  // A folder of another user keeps its mode; the caller's access to it then fails.
  if ((mode & 0o700) !== 0o700) await chmod(folder, (mode & 0o7777) | 0o700).catch(() => {});
}

function identityOf({ dev, ino }: { dev: number; ino: number }): string {
  return `${dev}:${ino}`;
}
