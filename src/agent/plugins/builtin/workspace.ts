// The folder that tools may touch, and the only way to a file in it. The rule it keeps: whatever name the model
// gives and whatever links lie about, nothing outside the folder is read, written or told apart from what is absent.
import { constants } from 'node:fs';
import { lstat, mkdir, open, readdir, realpath, rename, rm, type FileHandle } from 'node:fs/promises';
import { randomUUID } from 'node:crypto';
import { basename, dirname, join } from 'node:path';
import { Problem } from '../../../kernel/problem.ts';
import { isEnvironmentFile, isPackageFile, isWithin, secretPlaces } from './secret-places.ts';

export interface WorkspaceEntry {
  name: string;
  type: 'file' | 'folder' | 'link' | 'other';
  /** Of files only. */
  bytes?: number;
}

export interface Workspace {
  /** The folder itself, absolute and without symbolic links. */
  root: string;
  /** Where a folder of it lies, absolute; refuses what is none. */
  folder(path: string): Promise<string>;
  /** What lies in a folder, sorted by name; at most `limit` entries, and whether there were more. */
  list(path: string, limit: number): Promise<{ entries: WorkspaceEntry[]; truncated: boolean }>;
  /** The bytes of a plain file; refuses one larger than `maxBytes`. */
  read(path: string, maxBytes: number): Promise<Buffer>;
  /** Makes the file and its folders, or replaces the file as a whole; a reader sees the old bytes or the new. */
  write(path: string, content: Buffer): Promise<{ created: boolean }>;
}

export interface WorkspaceOptions {
  folder: string;
  /** Folders and files that stay out of reach even when they lie inside, such as the agent's own data and tokens. */
  hidden: readonly string[];
}

/** Opens the folder, which must exist. Throws when it is none. */
export async function openWorkspace({ folder, hidden }: WorkspaceOptions): Promise<Workspace> {
  const root = await realpath(folder);
  if (!(await lstat(root)).isDirectory()) throw new Error(`The workspace ${folder} is not a folder.`);
  const secrets = secretPlaces(root, await Promise.all(hidden.map(realPlace)));

  // Where a path leads once all links are followed, if that is a place that may be touched.
  async function locate(path: string): Promise<string> {
    const place = await realpath(join(root, ...segments(path))).catch((cause: unknown) => {
      throw refusal(path, reason(cause), cause);
    });
    await requireReach(path, place);
    return place;
  }

  async function requireReach(path: string, place: string): Promise<void> {
    if (!isWithin(place, root)) throw refusal(path, 'leads outside the workspace');
    const why = await secrets.refusalOf(place);
    if (why !== undefined) throw refusal(path, why);
  }

  // Checks the names and not the folders on the way: some projects have a folder of the name `.env`.
  function requireNoEnvironmentFile(path: string, place: string): void {
    if (isEnvironmentFile(basename(place)) || isEnvironmentFile(basename(path))) {
      throw refusal(path, 'is an environment file, which usually holds secrets; no tool opens it');
    }
  }

  // A hard link is one file under two names, and where its other name lies cannot be seen from here.
  function requireOneName(path: string, place: string, links: number): void {
    if (links > 1 && !isPackageFile(place)) {
      throw refusal(
        path,
        'is a hard link, whose other name may lie outside the workspace; copy it and read the copy',
      );
    }
  }

  // A link could be put in place between looking and opening, so what was opened is compared with what lies at
  // the place now: the same file, and the place still leads to itself.
  async function requireSame(path: string, handle: FileHandle, place: string): Promise<void> {
    const [opened, now, present] = await Promise.all([handle.stat(), lstat(place), realpath(place)]);
    if (present !== place || opened.ino !== now.ino || opened.dev !== now.dev) {
      throw refusal(path, 'changed while it was opened');
    }
  }

  return {
    root,
    async folder(path) {
      const place = await locate(path);
      if (!(await lstat(place)).isDirectory()) throw refusal(path, 'is not a folder');
      return place;
    },
    async list(path, limit) {
      const place = await locate(path);
      const found = await readdir(place, { withFileTypes: true }).catch((cause: unknown) => {
        throw refusal(path, reason(cause), cause);
      });
      if ((await realpath(place)) !== place) throw refusal(path, 'changed while it was opened');
      const entries: WorkspaceEntry[] = [];
      for (const entry of found.sort((a, b) => (a.name < b.name ? -1 : 1))) {
        if (await secrets.hides(place, entry)) continue;
        if (entries.length === limit) return { entries, truncated: true };
        const type = entry.isFile()
          ? 'file'
          : entry.isDirectory()
            ? 'folder'
            : entry.isSymbolicLink()
              ? 'link'
              : 'other';
        const bytes = type === 'file' ? await size(join(place, entry.name)) : undefined;
        entries.push({ name: entry.name, type, ...(bytes === undefined ? {} : { bytes }) });
      }
      return { entries, truncated: false };
    },
    async read(path, maxBytes) {
      const place = await locate(path);
      // O_NONBLOCK, because opening a pipe would otherwise wait for its writer.
      const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
      const handle = await open(place, flags).catch((cause: unknown) => {
        throw refusal(path, reason(cause), cause);
      });
      try {
        const stats = await handle.stat();
        if (!stats.isFile()) throw refusal(path, 'is not a plain file');
        requireNoEnvironmentFile(path, place);
        requireOneName(path, place, stats.nlink);
        await requireSame(path, handle, place);
        return await readUpTo(handle, path, maxBytes);
      } finally {
        await handle.close();
      }
    },
    async write(path, content) {
      const names = segments(path);
      const name = names.pop();
      if (name === undefined) throw refusal(path, 'is the workspace itself');
      let folder = root;
      for (const part of names) {
        await requireReach(path, join(folder, part));
        await mkdir(join(folder, part)).catch((cause: unknown) => {
          if (codeOf(cause) !== 'EEXIST') throw refusal(path, reason(cause), cause);
        });
        folder = await realpath(join(folder, part)).catch((cause: unknown) => {
          throw refusal(path, reason(cause), cause);
        });
        await requireReach(path, folder);
      }
      const target = join(folder, name);
      await requireReach(path, target);
      requireNoEnvironmentFile(path, target);
      const before = await lstat(target).catch(() => undefined);
      if (before && !before.isFile())
        throw refusal(path, before.isSymbolicLink() ? 'is a link' : 'is not a plain file');
      await replace(path, target, content, before?.mode);
      return { created: before === undefined };
    },
  };

  // Written beside its place and then renamed over it: the name never holds half a file, a link that was put there
  // meanwhile is replaced and not followed, and another name of the same file keeps its bytes.
  async function replace(
    path: string,
    target: string,
    content: Buffer,
    mode: number | undefined,
  ): Promise<void> {
    const beside = join(dirname(target), `.${randomUUID()}.tmp`);
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    try {
      const handle = await open(beside, flags, mode === undefined ? 0o644 : mode & 0o777);
      try {
        await requireSame(path, handle, beside);
        await handle.writeFile(content);
        await handle.sync();
      } finally {
        await handle.close();
      }
      await rename(beside, target);
    } catch (cause) {
      await rm(beside, { force: true });
      throw cause instanceof Problem ? cause : refusal(path, reason(cause), cause);
    }
  }
}

// Where a file lies or, when it is not there yet, will lie.
async function realPlace(path: string): Promise<string> {
  return realpath(path).catch(async () =>
    join(await realpath(dirname(path)).catch(() => dirname(path)), basename(path)),
  );
}

// The names along a path of the model's. Its form is refused here, before the file system has seen it.
function segments(path: string): string[] {
  if (path.length > 4096) throw refusal(path, 'is too long');
  if (/[\u0000-\u001f\u007f]/.test(path) || !path.isWellFormed())
    throw refusal(path, 'holds characters that no path here may hold');
  if (path.includes('\\')) throw refusal(path, 'holds a backslash; separate folders with a slash');
  if (path.startsWith('/') || /^[A-Za-z]:/.test(path))
    throw refusal(path, 'is absolute; paths begin at the workspace');
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  if (names.includes('..'))
    throw refusal(path, 'holds `..`; paths begin at the workspace and only lead down');
  return names;
}

async function size(path: string): Promise<number | undefined> {
  return lstat(path).then(
    ({ size: bytes }) => bytes,
    () => undefined,
  );
}

async function readUpTo(handle: FileHandle, path: string, maxBytes: number): Promise<Buffer> {
  // One byte more than is allowed, so that a file which grows or whose size is not told is bounded as well.
  const buffer = Buffer.alloc(maxBytes + 1);
  let length = 0;
  while (length < buffer.length) {
    const { bytesRead } = await handle.read(buffer, length, buffer.length - length, null);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  if (length > maxBytes) throw refusal(path, `is larger than the ${maxBytes / 1024} KiB that can be read`);
  return buffer.subarray(0, length);
}

function reason(cause: unknown): string {
  switch (codeOf(cause)) {
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

function codeOf(cause: unknown): string | undefined {
  return (cause as NodeJS.ErrnoException).code;
}

function refusal(path: string, why: string, cause?: unknown): Problem {
  const shown = JSON.stringify(path.toWellFormed().slice(0, 200));
  return new Problem('impossible', 'action_refused', `The path ${shown} ${why}.`, { param: 'path', cause });
}
