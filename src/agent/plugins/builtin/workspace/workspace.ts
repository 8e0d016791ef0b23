// The folder that tools may use, and the only access to its files. No path of the
// model and no link leads to a read or write outside the folder.
import { randomUUID } from 'node:crypto';
import { constants, type BigIntStats, type Dirent } from 'node:fs';
import {
  lstat,
  mkdir,
  open,
  readdir,
  realpath,
  rename,
  rm,
  rmdir,
  unlink,
  type FileHandle,
} from 'node:fs/promises';
import { basename, dirname, join, relative, sep } from 'node:path';
import { errorCode } from '../../../../kernel/file-errors.ts';
import { isWithin } from '../../../../kernel/folder.ts';
import { Problem } from '../../../../kernel/problem.ts';
import { pathsOfConfig } from './git-config.ts';
import { foldCase, isProtectedPath } from './protected-files.ts';
import { openChild, openFolder, withFolder, type FolderHandle } from './folder-handle.ts';
import { isEnvironmentFile, secretPlaces, type SecretPlaces } from './secret-places.ts';
import {
  fileSystemRefusal,
  pathGuard,
  pathRefusal,
  pathSegments,
  requireNoEnvironmentFile,
  requireNoHardLink,
  type PathGuard,
} from './paths.ts';
import { scanWorkspace, type WorkspaceScan } from './scan.ts';

export interface WorkspaceEntry {
  name: string;
  type: 'file' | 'folder' | 'link' | 'other';
  /** The size of a file; absent for other entries. */
  bytes?: number;
}

/** The direct content of a folder, without secrets and environment files. */
export interface FolderContent {
  files: { name: string; stats: BigIntStats }[];
  folders: string[];
  /** Links, sockets and the like. */
  others: string[];
}

/** Paths are relative to the root. Each function throws a Problem for a path that tools may not use. */
export interface Workspace {
  /** The folder itself, absolute and without symbolic links. */
  root: string;
  /** The absolute path of a folder. */
  folder(path: string): Promise<string>;
  /** The path with all links followed, relative to the root; unchanged if tools may not use it. */
  resolve(path: string): Promise<string>;
  /** The entries of a folder by name, at most `limit`, and whether there were more. */
  list(path: string, limit: number): Promise<{ entries: WorkspaceEntry[]; truncated: boolean }>;
  /** The files and folders of a folder, in the order of the file system. */
  content(path: string): Promise<FolderContent>;
  /** The bytes of a plain file; throws for one larger than `maxBytes`. */
  read(path: string, maxBytes: number): Promise<Buffer>;
  /** Calls `use` with the open plain file and closes it afterwards. */
  open<T>(path: string, use: (file: FileHandle) => Promise<T>): Promise<T>;
  /**
   * Creates the file and its folders, or replaces the file atomically. Without a `mode`, an existing file
   * keeps its own.
   */
  write(path: string, content: Buffer, mode?: number): Promise<{ created: boolean }>;
  /**
   * Removes a plain file; throws for a path through a link. `withFolders` also removes the folders above the
   * file that are empty afterwards.
   */
  remove(path: string, options?: { withFolders: boolean }): Promise<void>;
  /** Finds the files that programs must not see or change. Takes as long as a listing of all files. */
  scan(makesUsable?: (folder: string) => boolean): Promise<WorkspaceScan>;
  /**
   * Protects further files, such as programs that the agent itself starts. The paths are absolute; paths
   * outside of the workspace are ignored.
   */
  protect(paths: readonly string[]): Promise<void>;
  /** Whether a write to the path needs an approval of its own; as of the last scan or update. */
  isProtected(path: string): boolean;
  /** Reads again which paths the workspace's own repository names in its configuration. */
  updateProtected(): Promise<void>;
  /** Absolute paths outside and inside of the workspace that no program may see. */
  hidden: readonly string[];
  /** The absolute path of a worktree's repository; null for a workspace that is not a worktree. */
  repository: string | null;
}

/** The workspace with this root. Throws a Problem for a folder that is not a workspace of the agent. */
export type WorkspaceAt = (root: string) => Workspace;

export interface WorkspaceOptions {
  folder: string;
  /**
   * Folders and files that tools never open even within the workspace, such as the agent's own data
   * and tokens.
   */
  hidden: readonly string[];
  /**
   * The repository of a worktree: programs may read it, and write it where they may change
   * protected files.
   */
  repository?: string | null;
}

/** Throws when `folder` does not exist or is not a folder. */
export async function openWorkspace({
  folder,
  hidden,
  repository = null,
}: WorkspaceOptions): Promise<Workspace> {
  const root = await realpath(folder);
  if (!(await lstat(root)).isDirectory()) throw new Error(`The workspace ${folder} is not a folder.`);
  const hiddenPaths = await Promise.all(hidden.map(resolveRealPath));
  const secrets = secretPlaces(root, hiddenPaths);
  const guard = pathGuard(root, secrets);
  const protection = createProtection(root, secrets);
  await protection.updateProtected();
  return {
    root,
    hidden: hiddenPaths,
    repository,
    ...protection,
    async folder(path) {
      const realPath = await guard.locate(path);
      if (!(await lstat(realPath)).isDirectory()) throw pathRefusal(path, 'is not a folder');
      return realPath;
    },
    resolve: (path) =>
      guard.locate(path).then(
        (realPath) => relative(root, realPath) || '.',
        () => path,
      ),
    list: async (path, limit) => listFolder(path, await guard.locate(path), { root, limit, secrets }),
    content: async (path) => readContent(path, await guard.locate(path), { root, secrets }),
    read: async (path, maxBytes) =>
      openPlainFile(path, await guard.locate(path), root, (file) => readUpTo(file, path, maxBytes)),
    open: async (path, use) => openPlainFile(path, await guard.locate(path), root, use),
    write: (path, content, mode) => writeFile(path, content, { root, guard, mode }),
    async remove(path, { withFolders } = { withFolders: false }) {
      const realPath = await guard.locate(path);
      const place = join(root, ...pathSegments(path));
      // A permission for the path must not remove a file at another path. The names may differ in letter case
      // on some file systems; on others, `place` may still be a link, which `removePlainFile` refuses.
      if (foldCase(realPath) !== foldCase(place)) throw linkRefusal(path);
      await removePlainFile(path, place, root);
      if (withFolders) await removeEmptyFolders(root, dirname(place));
    },
  };
}

/** Which files of the workspace need an approval to be changed. */
function createProtection(
  root: string,
  secrets: SecretPlaces,
): Pick<Workspace, 'scan' | 'protect' | 'isProtected' | 'updateProtected'> {
  const programs = new Set<string>();
  // The protected paths of the last scan, and those of the repository of the workspace itself.
  let scanPaths: readonly string[] = [];
  let configPaths: readonly string[] = [];
  return {
    async scan(makesUsable) {
      const result = await scanWorkspace({ root, secrets, programs, makesUsable });
      scanPaths = result.configPaths;
      return result;
    },
    async protect(paths) {
      for (const path of paths) {
        // Protect a link as well as its target: replacing either one changes the program.
        const folder = await realpath(dirname(path)).catch(() => dirname(path));
        for (const place of [join(folder, basename(path)), await resolveRealPath(path)])
          if (place !== root && isWithin(place, root)) programs.add(place);
      }
    },
    isProtected(path) {
      const place = join(root, path);
      return (
        isProtectedPath(path) ||
        programs.has(place) ||
        [...scanPaths, ...configPaths].some((folder) => isWithin(place, folder))
      );
    },
    async updateProtected() {
      const paths = await pathsOfConfig(join(root, '.git'));
      configPaths = paths.filter((path) => path !== root && isWithin(path, root));
    },
  };
}

async function removePlainFile(path: string, place: string, root: string): Promise<void> {
  if (place === root) throw pathRefusal(path, 'is the workspace itself');
  requireNoEnvironmentFile(path, place);
  const folder = await openAt(path, root, dirname(place));
  try {
    const entry = folder.entry(basename(place));
    const stats = await lstat(entry);
    if (stats.isSymbolicLink()) throw linkRefusal(path);
    if (!stats.isFile()) throw pathRefusal(path, 'is not a plain file');
    await unlink(entry);
  } catch (cause) {
    throw cause instanceof Problem ? cause : fileSystemRefusal(path, cause);
  } finally {
    await folder.close();
  }
}

// Removing a folder that is not empty fails, which ends the loop.
async function removeEmptyFolders(root: string, start: string): Promise<void> {
  for (let folder = start; folder !== root && isWithin(folder, root); folder = dirname(folder)) {
    const isRemoved = await withFolder(root, namesBelow(root, dirname(folder)), (parent) =>
      rmdir(parent.entry(basename(folder))),
    ).then(
      () => true,
      () => false,
    );
    if (!isRemoved) return;
  }
}

async function readContent(
  path: string,
  realPath: string,
  { root, secrets }: { root: string; secrets: SecretPlaces },
): Promise<FolderContent> {
  const folder = await openAt(path, root, realPath);
  try {
    const dirents = await readDirents(path, folder);
    const content: FolderContent = { files: [], folders: [], others: [] };
    for (const dirent of dirents) {
      const { name } = dirent;
      if ((await secrets.hides(realPath, dirent)) || (dirent.isFile() && isEnvironmentFile(name))) continue;
      const stats = dirent.isFile()
        ? await lstat(folder.entry(name), { bigint: true }).catch(() => undefined)
        : undefined;
      if (stats?.isFile() === true) content.files.push({ name, stats });
      else (dirent.isDirectory() ? content.folders : content.others).push(name);
    }
    return content;
  } finally {
    await folder.close();
  }
}

function readDirents(path: string, folder: FolderHandle): Promise<Dirent[]> {
  return readdir(folder.path, { withFileTypes: true }).catch((cause: unknown) => {
    throw fileSystemRefusal(path, cause);
  });
}

async function writeFile(
  path: string,
  content: Buffer,
  { root, guard, mode }: { root: string; guard: PathGuard; mode: number | undefined },
): Promise<{ created: boolean }> {
  const names = pathSegments(path);
  const name = names.pop();
  if (name === undefined) throw pathRefusal(path, 'is the workspace itself');
  const folder = await makeFolders(path, names, { root, guard });
  try {
    return await writeEntry(path, content, { guard, folder, target: join(root, ...names, name), mode });
  } finally {
    await folder.close();
  }
}

async function writeEntry(
  path: string,
  content: Buffer,
  {
    guard,
    folder,
    target,
    mode,
  }: { guard: PathGuard; folder: FolderHandle; target: string; mode: number | undefined },
): Promise<{ created: boolean }> {
  const name = basename(target);
  await guard.requireReachable(path, target);
  requireNoEnvironmentFile(path, target);
  const existingStats = await lstat(folder.entry(name)).catch(() => undefined);
  if (existingStats && !existingStats.isFile())
    throw pathRefusal(path, existingStats.isSymbolicLink() ? 'is a link' : 'is not a plain file');
  await replaceFile(path, { folder, name }, content, mode ?? existingStats?.mode);
  return { created: existingStats === undefined };
}

async function listFolder(
  path: string,
  realPath: string,
  { root, limit, secrets }: { root: string; limit: number; secrets: SecretPlaces },
): Promise<{ entries: WorkspaceEntry[]; truncated: boolean }> {
  const folder = await openAt(path, root, realPath);
  try {
    const dirents = await readDirents(path, folder);
    const entries: WorkspaceEntry[] = [];
    for (const dirent of dirents.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      if (await secrets.hides(realPath, dirent)) continue;
      if (entries.length === limit) return { entries, truncated: true };
      const type = typeOf(dirent);
      const bytes = type === 'file' ? await readFileSize(folder.entry(dirent.name)) : undefined;
      entries.push({ name: dirent.name, type, ...(bytes === undefined ? {} : { bytes }) });
    }
    return { entries, truncated: false };
  } finally {
    await folder.close();
  }
}

// The real path had no links when it was checked; if a link has replaced a folder since, the open fails.
async function openAt(path: string, root: string, realPath: string): Promise<FolderHandle> {
  return openFolder(root, namesBelow(root, realPath)).catch((cause: unknown) => {
    throw errorCode(cause) === 'ELOOP'
      ? pathRefusal(path, 'changed while it was opened', cause)
      : fileSystemRefusal(path, cause);
  });
}

/** The names along the path from the root; none for the root itself. */
function namesBelow(root: string, path: string): string[] {
  return relative(root, path)
    .split(sep)
    .filter((name) => name !== '');
}

function typeOf(dirent: Dirent): WorkspaceEntry['type'] {
  if (dirent.isFile()) return 'file';
  if (dirent.isDirectory()) return 'folder';
  return dirent.isSymbolicLink() ? 'link' : 'other';
}

async function readFileSize(path: string): Promise<number | undefined> {
  return lstat(path).then(
    ({ size }) => size,
    () => undefined,
  );
}

async function openPlainFile<T>(
  path: string,
  realPath: string,
  root: string,
  use: (file: FileHandle) => Promise<T>,
): Promise<T> {
  if (realPath === root) throw pathRefusal(path, 'is a folder');
  const folder = await openAt(path, root, dirname(realPath));
  // O_NONBLOCK: opening a named pipe would otherwise wait for its writer.
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  try {
    const handle = await open(folder.entry(basename(realPath)), flags).catch((cause: unknown) => {
      throw fileSystemRefusal(path, cause);
    });
    try {
      const stats = await handle.stat();
      if (!stats.isFile()) throw pathRefusal(path, 'is not a plain file');
      requireNoEnvironmentFile(path, realPath);
      requireNoHardLink(path, realPath, stats.nlink);
      return await use(handle);
    } finally {
      await handle.close();
    }
  } finally {
    await folder.close();
  }
}

const minBufferBytes = 4 * 1024;

async function readUpTo(handle: FileHandle, path: string, maxBytes: number): Promise<Buffer> {
  const { size } = await handle.stat();
  // One byte more than the limit also bounds a file that grows, or whose size is reported as 0.
  let buffer = Buffer.allocUnsafe(Math.min(maxBytes, Math.max(size, minBufferBytes)) + 1);
  let length = 0;
  while (length <= maxBytes) {
    if (length === buffer.length) buffer = Buffer.concat([buffer], Math.min(maxBytes + 1, 2 * buffer.length));
    const { bytesRead } = await handle.read(buffer, length, buffer.length - length, null);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  if (length > maxBytes)
    throw pathRefusal(path, `is larger than the ${maxBytes / 1024} KiB that can be read`);
  return buffer.subarray(0, length);
}

/**
 * Creates the folders along the names and opens the last one. A link on the way is
 * refused, wherever it leads.
 */
async function makeFolders(
  path: string,
  names: readonly string[],
  { root, guard }: { root: string; guard: PathGuard },
): Promise<FolderHandle> {
  let realPath = root;
  let folder = await openFolder(root, []);
  try {
    for (const name of names) {
      realPath = join(realPath, name);
      await guard.requireReachable(path, realPath);
      await mkdir(folder.entry(name)).catch((cause: unknown) => {
        if (errorCode(cause) !== 'EEXIST') throw fileSystemRefusal(path, cause);
      });
      const next = await openChild(folder, name).catch(async (cause: unknown) => {
        const stats = await lstat(folder.entry(name)).catch(() => undefined);
        throw stats?.isSymbolicLink() === true ? linkRefusal(path, cause) : fileSystemRefusal(path, cause);
      });
      await folder.close();
      folder = next;
    }
    return folder;
  } catch (error) {
    await folder.close();
    throw error;
  }
}

function linkRefusal(path: string, cause?: unknown): Problem {
  return pathRefusal(path, 'leads through a link; name the real folder', cause);
}

// Writes a temporary file and renames it over the target, both in the open folder: a
// reader sees the old bytes or the new ones, a link that was put there meanwhile is
// replaced and not followed, and other hard links keep the old bytes.
async function replaceFile(
  path: string,
  { folder, name }: { folder: FolderHandle; name: string },
  content: Buffer,
  mode: number | undefined,
): Promise<void> {
  const temporaryEntry = folder.entry(`.${randomUUID()}.tmp`);
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  try {
    const handle = await open(temporaryEntry, flags, mode === undefined ? 0o644 : mode & 0o777);
    try {
      await handle.writeFile(content);
      // The umask of the process removes bits from the mode of a new file.
      if (mode !== undefined) await handle.chmod(mode & 0o777);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporaryEntry, folder.entry(name));
  } catch (cause) {
    await rm(temporaryEntry, { force: true });
    throw cause instanceof Problem ? cause : fileSystemRefusal(path, cause);
  }
}

/** The real path of a file, or the real path that it will have once it exists. */
async function resolveRealPath(path: string): Promise<string> {
  return realpath(path).catch(async () =>
    join(await realpath(dirname(path)).catch(() => dirname(path)), basename(path)),
  );
}
