// Where bytes that are too big for the database are kept: a small port, and behind it a folder. The rule it keeps: what
// can be read under a key is whole, and never changes.
import { chmod, open, rename, rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { randomUUID } from 'node:crypto';
import { makeFolder } from '../folder.ts';

export interface StoredBytes {
  size: number;
  /** To be read once; whatever it holds open is closed at its end, or when the reader leaves. */
  content: AsyncIterable<Uint8Array>;
}

/** What an object store of any kind can do. Keys are ids of ours, `[A-Za-z0-9_-]`. */
export interface Storage {
  /** Resolves when the bytes would survive a loss of power. What the content throws is thrown, and nothing is kept. */
  put(key: string, content: Uint8Array | AsyncIterable<Uint8Array>): Promise<void>;
  /** Null when there is nothing under the key. */
  open(key: string): Promise<StoredBytes | null>;
  /** Does nothing when there is nothing under the key. */
  remove(key: string): Promise<void>;
}

const keyShape = /^[A-Za-z0-9_-]{1,128}$/;
const pieceBytes = 64 * 1024;

/** Keeps each key as a file that its owner alone can read. The folder is made when something is first put into it. */
export function directoryStorage(path: string): Storage {
  const folder = resolve(path);

  function fileOf(key: string): string {
    // A key with a slash or dots in it would be a way out of the folder.
    if (!keyShape.test(key)) throw new Error('A storage key has characters that it may not have.');
    return join(folder, key);
  }

  async function syncFolder(): Promise<void> {
    const handle = await open(folder, 'r');
    try {
      await handle.sync();
    } catch (error) {
      // Some systems cannot sync a folder; there a rename is as durable as they make it.
      if (!['EINVAL', 'EPERM', 'EISDIR', 'ENOTSUP'].includes((error as NodeJS.ErrnoException).code ?? ''))
        throw error;
    } finally {
      await handle.close();
    }
  }

  return {
    async put(key, content) {
      const file = fileOf(key);
      await makeFolder(folder);
      // Under a name of its own first: a reader finds nothing or the whole.
      const unfinished = join(folder, `.${key}.${randomUUID()}`);
      try {
        const handle = await open(unfinished, 'wx', 0o600);
        try {
          await handle.writeFile(content);
          await handle.sync();
        } finally {
          await handle.close();
        }
        // The umask may have taken from the mode, and never adds to it; this is for one that took too much.
        await chmod(unfinished, 0o600);
        await rename(unfinished, file);
      } catch (error) {
        await rm(unfinished, { force: true });
        throw error;
      }
      await syncFolder();
    },
    async open(key) {
      const file = fileOf(key);
      try {
        const { size } = await stat(file);
        return { size, content: pieces(file) };
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
        throw error;
      }
    },
    async remove(key) {
      await rm(fileOf(key), { force: true });
    },
  };
}

// The file is opened at the first read, so content without a reader costs nothing.
async function* pieces(file: string): AsyncGenerator<Uint8Array> {
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
