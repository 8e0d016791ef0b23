// The log of a City that runs detached: one file for its owner alone, which is set aside when it has grown, so that it
// never takes more than a few times its size.
import { closeSync, openSync, renameSync, statSync, writeSync } from 'node:fs';

export interface LogFile {
  write(piece: Buffer | string): void;
  close(): void;
}

const maximumBytes = 16 * 1024 * 1024;
const keptFiles = 3;

export function openLogFile(path: string, { maxBytes = maximumBytes }: { maxBytes?: number } = {}): LogFile {
  let fd = openSync(path, 'a', 0o600);
  let size = statSync(path).size;

  function setAside(): void {
    closeSync(fd);
    for (let age = keptFiles - 1; age >= 1; age -= 1)
      moveIfThere(age === 1 ? path : `${path}.${age - 1}`, `${path}.${age}`);
    fd = openSync(path, 'a', 0o600);
    size = 0;
  }

  return {
    write(piece) {
      const bytes = typeof piece === 'string' ? Buffer.from(piece) : piece;
      if (size > 0 && size + bytes.length > maxBytes) setAside();
      try {
        writeSync(fd, bytes);
        size += bytes.length;
      } catch (error) {
        // A full disk must not end what serves.
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    },
    close: () => closeSync(fd),
  };
}

function moveIfThere(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
