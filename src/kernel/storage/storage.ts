// Storage for bytes that are too large for the database: an interface, and its implementation on a
// folder. Content under a key is always complete and never changes.
import { chmod, open, rename, rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { randomUUID } from 'node:crypto';
import { isMissing } from '../file-errors.ts';
import { makeFolder, syncFolder } from '../folder.ts';

export interface StoredBytes {
  size: number;
  /** Readable once; closes its resources at its end or when the reader stops. */
  content: AsyncIterable<Uint8Array>;
}

/** The operations of any object store. Keys are our own ids, `[A-Za-z0-9_-]`. */
export interface Storage {
  /**
   * Resolves when the bytes would survive a power failure. Rethrows errors of the content and then
   * stores nothing.
   */
  put(key: string, content: Uint8Array | AsyncIterable<Uint8Array>): Promise<void>;
  /** Null for an unknown key. */
  open(key: string): Promise<StoredBytes | null>;
  /** No effect for an unknown key. */
  remove(key: string): Promise<void>;
}

const keyShape = /^[A-Za-z0-9_-]{1,128}$/;
const pieceBytes = 64 * 1024;

/** Stores each key as a file readable by its owner only. The first write creates the folder. */
export function directoryStorage(path: string): Storage {
  const folder = resolve(path);

  function fileOf(key: string): string {
    // A key with slashes or dots could lead out of the folder.
    if (!keyShape.test(key)) throw new Error('A storage key is too long or contains invalid characters.');
    return join(folder, key);
  }

  return {
    async put(key, content) {
      const file = fileOf(key);
      await makeFolder(folder);
      // Write to a temporary name first, so that readers see all or nothing.
      const unfinishedPath = join(folder, `.${key}.${randomUUID()}`);
      try {
        await writeDurably(unfinishedPath, content);
        await rename(unfinishedPath, file);
      } catch (error) {
        await rm(unfinishedPath, { force: true });
        throw error;
      }
      await syncFolder(folder);
    },
    async open(key) {
      const file = fileOf(key);
      try {
        const { size } = await stat(file);
        return { size, content: readPieces(file) };
      } catch (error) {
        if (isMissing(error)) return null;
        throw error;
      }
    },
    async remove(key) {
      await rm(fileOf(key), { force: true });
    },
  };
}

async function writeDurably(path: string, content: Uint8Array | AsyncIterable<Uint8Array>): Promise<void> {
  const handle = await open(path, 'wx', 0o600);
  try {
    await handle.writeFile(content);
    await handle.sync();
  } finally {
    await handle.close();
  }
  // The umask only removes bits from the mode; restore them.
  await chmod(path, 0o600);
}

// Opens the file at the first read, so unread content holds no file open.
async function* readPieces(file: string): AsyncGenerator<Uint8Array> {
  const handle = await open(file, 'r');
  try {
    for (;;) {
      const { bytesRead, buffer } = await handle.read({ buffer: Buffer.allocUnsafe(pieceBytes) });
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await handle.close();
  }
}
