// Locks a folder for one process. It is a file lock of the operating system, taken through
// node:sqlite because Node has no flock. The kernel releases it when the process exits: a killed process
// leaves no lock behind, a reused process id is harmless, and two processes that start at once cannot
// both get the lock.
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Problem } from '../../problem.ts';

const lockFile = 'townhall.lock';
// The process id is stored beside the lock only for the error message of another opener; no
// decision uses it.
const holderFile = 'townhall.pid';
const sqliteBusy = 5;

export interface FolderLock {
  /** A second call has no effect. */
  release(): void;
}

/**
 * Takes the folder or throws a Problem that names the holder, whether that is another process or this
 * one. Nothing else in this process may open `townhall.lock`: closing any descriptor of it would drop
 * the lock.
 */
export function lockFolder(folder: string): FolderLock {
  const lock = tryLockFolder(folder);
  if (lock !== null) return lock;
  throw new Problem(
    'unavailable',
    'database_unavailable',
    `The data folder ${folder} is held by ${holderName(join(folder, holderFile))}. Only one process can use it at a time: stop that process, or give this one its own folder.`,
  );
}

/**
 * Locks the folder like `lockFolder`, but returns null if it is locked already. Throws the system's
 * error for an unusable or missing folder.
 */
export function tryLockFolder(folder: string): FolderLock | null {
  const holder = join(folder, holderFile);
  const lock = new DatabaseSync(join(folder, lockFile), { timeout: 0 });
  try {
    lock.exec('BEGIN EXCLUSIVE');
    writeFileSync(holder, `${process.pid}\n`, { mode: 0o600 });
  } catch (error) {
    lock.close();
    if ((error as { errcode?: number }).errcode === sqliteBusy) return null;
    throw error;
  }
  return {
    release() {
      if (!lock.isOpen) return;
      rmSync(holder, { force: true });
      lock.close();
    },
  };
}

function holderName(holder: string): string {
  try {
    const pid = Number(readFileSync(holder, 'utf8'));
    if (pid === process.pid) return `process ${pid}, which is this one`;
    if (pid > 0) return `process ${pid}`;
  } catch {
    // The holder has the lock but has not written its pid yet.
  }
  return 'another process';
}
