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
// After a rotation that failed on a full disk, the next attempt follows 1 MiB later.
const retriesPerFile = 16;

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
  let rotationSize = maxBytes;

  // Open the new file first: if the disk is too full for it, all files keep their names.
  function rotate(): void {
    const newFd = openSync(`${path}.new`, 'a', 0o600);
    try {
      const [oldestName = path, ...newerNames] = logFileNames(path).toReversed();
      let target = oldestName;
      for (const name of newerNames) {
        renameIfExists(name, target);
        target = name;
      }
      renameSync(`${path}.new`, path);
    } catch (error) {
      closeSync(newFd);
      throw error;
    }
    closeSync(fd);
    fd = newFd;
    size = 0;
    rotationSize = maxBytes;
  }

  function rotateUnlessFull(): void {
    try {
      rotate();
    } catch (error) {
      if (errorCode(error) !== 'ENOSPC') throw error;
      // Continue with the old file, and do not repeat the attempt at every write.
      rotationSize = size + Math.ceil(maxBytes / retriesPerFile);
    }
  }

  return {
    write(chunk) {
      const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
      if (size > 0 && size + bytes.length > rotationSize) rotateUnlessFull();
      try {
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
