// Opens folders of the workspace component by component without following links
// (openat with O_NOFOLLOW), and addresses entries through the open folder. A link
// that replaces a folder in the meantime then cannot lead anywhere else.
import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';

export interface FolderHandle {
  /** The path of the folder itself, for as long as the handle is open. */
  readonly path: string;
  /** The path of an entry; only its last component may be a link. */
  entry(name: string): string;
  close(): Promise<void>;
}

const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
// Node has no openat; /proc/self/fd/N as a prefix does the same. Other systems have
// no such path and rely on the caller's check of the real path.
const hasDescriptorPaths = process.platform === 'linux';

/**
 * Opens the folder at the names below an absolute path without links. Rejects with
 * ELOOP or ENOTDIR at a link.
 */
export async function openFolder(root: string, names: readonly string[]): Promise<FolderHandle> {
  if (!hasDescriptorPaths) return plainFolder(join(root, ...names));
  let folder = folderOf(await open(root, flags));
  for (const name of names) {
    const parent = folder;
    try {
      folder = await openChild(parent, name);
    } finally {
      await parent.close();
    }
  }
  return folder;
}

/** Opens a folder in an open folder. Rejects with ELOOP or ENOTDIR when it is a link. */
export async function openChild(parent: FolderHandle, name: string): Promise<FolderHandle> {
  const path = parent.entry(name);
  if (hasDescriptorPaths) return folderOf(await open(path, flags));
  await (await open(path, flags)).close();
  return plainFolder(path);
}

/** Calls `use` with the folder and closes it afterwards. */
export async function withFolder<T>(
  root: string,
  names: readonly string[],
  use: (folder: FolderHandle) => Promise<T>,
): Promise<T> {
  const folder = await openFolder(root, names);
  try {
    return await use(folder);
  } finally {
    await folder.close();
  }
}

function folderOf(handle: FileHandle): FolderHandle {
  const path = `/proc/self/fd/${handle.fd}`;
  return { path, entry: (name) => `${path}/${name}`, close: () => handle.close() };
}

function plainFolder(path: string): FolderHandle {
  return { path, entry: (name) => join(path, name), close: async () => {} };
}
