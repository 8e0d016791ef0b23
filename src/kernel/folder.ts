// Folders: created level by level, synced, and those of settings checked before a server opens anything.
import { constants } from 'node:fs';
import { access, mkdir, open, stat } from 'node:fs/promises';
import { dirname, resolve, sep } from 'node:path';
import { errorCode, isMissing } from './file-errors.ts';
import { SettingError } from './settings.ts';

/** Whether a path is the folder or lies below it; both absolute and without links. */
export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

/**
 * Creates the folder and its parents, readable by their owner only. Throws the system's error.
 * Node's own recursive mkdir never returns where a parent exists and the system still answers
 * ENOENT, as below /proc.
 */
export async function makeFolder(path: string): Promise<void> {
  const folder = resolve(path);
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    if (errorCode(error) === 'EEXIST' && (await stat(folder)).isDirectory()) return;
    const parent = dirname(folder);
    if (!isMissing(error) || parent === folder) throw error;
    // Another call may have created the parent since.
    if (!(await pathExists(parent))) await makeFolder(parent);
    await mkdir(folder, { mode: 0o700 }).catch((secondError: unknown) => {
      if (errorCode(secondError) !== 'EEXIST') throw secondError;
    });
  }
}

/** Syncs a folder, so that its new names survive a power loss. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } catch (error) {
    // Some systems cannot sync a folder; there a rename is as durable as they make it.
    if (!['EINVAL', 'EPERM', 'EISDIR', 'ENOTSUP'].includes(errorCode(error) ?? '')) throw error;
  } finally {
    await handle.close();
  }
}

/**
 * Creates the folder of a setting. Throws a SettingError with the setting's name when this user
 * cannot use the path as a folder.
 */
export async function makeSettingFolder(setting: string, path: string): Promise<void> {
  try {
    await makeFolder(path);
  } catch (error) {
    throw unusableError(setting, path, error);
  }
}

/**
 * Throws a SettingError with the setting's name unless the folder is writable or can be created.
 * Creates nothing.
 */
export async function requireFolder(setting: string, path: string): Promise<void> {
  let folder = resolve(path);
  try {
    while (!(await pathExists(folder))) folder = dirname(folder);
    if (!(await stat(folder)).isDirectory())
      throw Object.assign(new Error('not a folder'), { code: 'ENOTDIR' });
    await access(folder, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw unusableError(setting, path, error);
  }
}

async function pathExists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    (error: unknown) => {
      if (isMissing(error)) return false;
      throw error;
    },
  );
}

const reasons: Readonly<Record<string, string>> = {
  ENOTDIR: 'a part of this path is not a folder',
  EEXIST: 'it is not a folder',
  EACCES: 'this user may not write there',
  EPERM: 'this user may not write there',
  EROFS: 'the file system is read-only',
  ENOENT: 'no folder can be created there',
};

// Other errors, such as a full disk, are not caused by the setting, so they are returned unchanged.
function unusableError(setting: string, path: string, error: unknown): unknown {
  const reason = reasons[errorCode(error) ?? ''];
  return reason === undefined
    ? error
    : new SettingError(`${setting}: the folder ${path} cannot be used: ${reason}. Name another folder.`);
}
