// The folder that tools may use, and the only way to a file in it. Whatever path the model names and whatever links exist,
// nothing outside the folder is read or written.
import { randomUUID } from 'node:crypto';
import { constants, type Dirent } from 'node:fs';
import { lstat, mkdir, open, readdir, realpath, rename, rm, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { Problem } from '../../../kernel/problem.ts';
import { secretPlaces, type SecretPlaces } from './secret-places.ts';
import {
  errorCode,
  fileSystemRefusal,
  pathGuard,
  pathRefusal,
  pathSegments,
  requireNoEnvironmentFile,
  requireNoHardLink,
  requireSameFile,
  type PathGuard,
} from './workspace-paths.ts';

export interface WorkspaceEntry {
  name: string;
  type: 'file' | 'folder' | 'link' | 'other';
  /** Of files only. */
  bytes?: number;
}

/** Paths are relative to the root. Each function throws a Problem for a path that tools may not use. */
export interface Workspace {
  /** The folder itself, absolute and without symbolic links. */
  root: string;
  /** The absolute path of a folder. */
  folder(path: string): Promise<string>;
  /** The entries of a folder by name, at most `limit`, and whether there were more. */
  list(path: string, limit: number): Promise<{ entries: WorkspaceEntry[]; truncated: boolean }>;
  /** The bytes of a plain file; throws for one larger than `maxBytes`. */
  read(path: string, maxBytes: number): Promise<Buffer>;
  /** Creates the file and its folders, or replaces the file atomically. */
  write(path: string, content: Buffer): Promise<{ created: boolean }>;
}

export interface WorkspaceOptions {
  folder: string;
  /** Folders and files that tools never open even when they lie inside, such as the agent's own data and tokens. */
  hidden: readonly string[];
}

/** Throws when `folder` does not exist or is not a folder. */
export async function openWorkspace({ folder, hidden }: WorkspaceOptions): Promise<Workspace> {
  const root = await realpath(folder);
  if (!(await lstat(root)).isDirectory()) throw new Error(`The workspace ${folder} is not a folder.`);
  const secrets = secretPlaces(root, await Promise.all(hidden.map(futureRealPath)));
  const guard = pathGuard(root, secrets);
  return {
    root,
    async folder(path) {
      const realPath = await guard.locate(path);
      if (!(await lstat(realPath)).isDirectory()) throw pathRefusal(path, 'is not a folder');
      return realPath;
    },
    list: async (path, limit) => listFolder(path, await guard.locate(path), { limit, secrets }),
    read: async (path, maxBytes) => readPlainFile(path, await guard.locate(path), maxBytes),
    async write(path, content) {
      const names = pathSegments(path);
      const name = names.pop();
      if (name === undefined) throw pathRefusal(path, 'is the workspace itself');
      const target = join(await makeFolders(path, names, { root, guard }), name);
      await guard.requireReachable(path, target);
      requireNoEnvironmentFile(path, target);
      const before = await lstat(target).catch(() => undefined);
      if (before && !before.isFile())
        throw pathRefusal(path, before.isSymbolicLink() ? 'is a link' : 'is not a plain file');
      await replaceFile(path, target, content, before?.mode);
      return { created: before === undefined };
    },
  };
}

async function listFolder(
  path: string,
  folder: string,
  { limit, secrets }: { limit: number; secrets: SecretPlaces },
): Promise<{ entries: WorkspaceEntry[]; truncated: boolean }> {
  const dirents = await readdir(folder, { withFileTypes: true }).catch((cause: unknown) => {
    throw fileSystemRefusal(path, cause);
  });
  if ((await realpath(folder)) !== folder) throw pathRefusal(path, 'changed while it was opened');
  const entries: WorkspaceEntry[] = [];
  for (const dirent of dirents.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (await secrets.hides(folder, dirent)) continue;
    if (entries.length === limit) return { entries, truncated: true };
    const type = typeOf(dirent);
    const bytes = type === 'file' ? await fileSize(join(folder, dirent.name)) : undefined;
    entries.push({ name: dirent.name, type, ...(bytes === undefined ? {} : { bytes }) });
  }
  return { entries, truncated: false };
}

function typeOf(dirent: Dirent): WorkspaceEntry['type'] {
  if (dirent.isFile()) return 'file';
  if (dirent.isDirectory()) return 'folder';
  return dirent.isSymbolicLink() ? 'link' : 'other';
}

async function fileSize(path: string): Promise<number | undefined> {
  return lstat(path).then(
    ({ size }) => size,
    () => undefined,
  );
}

async function readPlainFile(path: string, realPath: string, maxBytes: number): Promise<Buffer> {
  // O_NONBLOCK: opening a named pipe would otherwise wait for its writer.
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(realPath, flags).catch((cause: unknown) => {
    throw fileSystemRefusal(path, cause);
  });
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) throw pathRefusal(path, 'is not a plain file');
    requireNoEnvironmentFile(path, realPath);
    requireNoHardLink(path, realPath, stats.nlink);
    await requireSameFile(path, handle, realPath);
    return await readUpTo(handle, path, maxBytes);
  } finally {
    await handle.close();
  }
}

async function readUpTo(handle: FileHandle, path: string, maxBytes: number): Promise<Buffer> {
  // Reading one byte more than the limit also bounds a file that grows, or whose size is reported as 0.
  const buffer = Buffer.alloc(maxBytes + 1);
  let length = 0;
  while (length < buffer.length) {
    const { bytesRead } = await handle.read(buffer, length, buffer.length - length, null);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  if (length > maxBytes)
    throw pathRefusal(path, `is larger than the ${maxBytes / 1024} KiB that can be read`);
  return buffer.subarray(0, length);
}

/** Creates the folders along the names and checks each, so that no link leads outside on the way. */
async function makeFolders(
  path: string,
  names: readonly string[],
  { root, guard }: { root: string; guard: PathGuard },
): Promise<string> {
  let folder = root;
  for (const name of names) {
    const child = join(folder, name);
    await guard.requireReachable(path, child);
    await mkdir(child).catch((cause: unknown) => {
      if (errorCode(cause) !== 'EEXIST') throw fileSystemRefusal(path, cause);
    });
    folder = await realpath(child).catch((cause: unknown) => {
      throw fileSystemRefusal(path, cause);
    });
    await guard.requireReachable(path, folder);
  }
  return folder;
}

// Writes a temporary file and renames it over the target: a reader sees the old bytes or the new ones, a link that was
// put there meanwhile is replaced and not followed, and other hard links of the old file keep its bytes.
async function replaceFile(
  path: string,
  target: string,
  content: Buffer,
  mode: number | undefined,
): Promise<void> {
  const temporary = join(dirname(target), `.${randomUUID()}.tmp`);
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  try {
    const handle = await open(temporary, flags, mode === undefined ? 0o644 : mode & 0o777);
    try {
      await requireSameFile(path, handle, temporary);
      await handle.writeFile(content);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, target);
  } catch (cause) {
    await rm(temporary, { force: true });
    throw cause instanceof Problem ? cause : fileSystemRefusal(path, cause);
  }
}

/** The real path of a file or, before it exists, the one that it will have. */
async function futureRealPath(path: string): Promise<string> {
  return realpath(path).catch(async () =>
    join(await realpath(dirname(path)).catch(() => dirname(path)), basename(path)),
  );
}
