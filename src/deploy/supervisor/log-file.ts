// The log file of a detached supervisor: readable by its owner only, and rotated, so that its size
// stays bounded.
import { closeSync, openSync, renameSync, statSync, writeSync } from 'node:fs';
import { errorCode, isMissing } from '../../kernel/file-errors.ts';

export interface LogFile {
  write(chunk: Buffer | string): void;
  close(): void;
}

const defaultMaxBytes = 16 * 1024 * 1024;
const maxFiles = 3;

/** The names that the file and its rotated predecessors have, the newest first. */
export function logFileNames(path: string): string[] {
  return Array.from({ length: maxFiles }, (_, age) => (age === 0 ? path : `${path}.${age}`));
}

export function openLogFile(
  path: string,
  { maxBytes = defaultMaxBytes }: { maxBytes?: number } = {},
): LogFile {
  let fd = openSync(path, 'a', 0o600);
  let size = statSync(path).size;

  // Close the old file last: if the new file cannot be opened, writes continue to the old one.
  function rotate(): void {
    const [oldestName = path, ...newerNames] = logFileNames(path).toReversed();
    let target = oldestName;
    for (const name of newerNames) {
      renameIfExists(name, target);
      target = name;
    }
    const oldFd = fd;
    fd = openSync(path, 'a', 0o600);
    size = 0;
    closeSync(oldFd);
  }

  return {
    write(chunk) {
      const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
      try {
        if (size > 0 && size + bytes.length > maxBytes) rotate();
        writeSync(fd, bytes);
        size += bytes.length;
      } catch (error) {
        // A full disk must not crash the supervisor, and the City with it.
        if (errorCode(error) !== 'ENOSPC') throw error;
      }
    },
    close: () => closeSync(fd),
  };
}

function renameIfExists(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}
