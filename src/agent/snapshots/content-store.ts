// Contents of files in the data folder, each under its SHA-256. No file is changed once it is written.
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { errorCode } from '../../kernel/file-errors.ts';

export interface ContentStore {
  /** Returns the hash. */
  put(content: Buffer): Promise<string>;
  /** Undefined where the content is missing or damaged. */
  get(hash: string): Promise<Buffer | undefined>;
  /** Sets the time of the content to now, as `put` does. False when it is missing. */
  renew(hash: string): Promise<boolean>;
  /**
   * Lists all contents with their sizes and the times of their last `put` or `renew`, one folder at a time.
   */
  list(): AsyncGenerator<{ hash: string; bytes: number; renewedMs: number }[]>;
  remove(hash: string): Promise<void>;
}

/** The folder is created with the first content. */
export function contentStore(folder: string, clock: Pick<Clock, 'now'>): ContentStore {
  const fileOf = (hash: string) => join(folder, hash.slice(0, 2), hash);
  const createdFolders = new Set<string>();

  async function renew(hash: string): Promise<boolean> {
    const now = clock.now();
    return utimes(fileOf(hash), now, now).then(
      () => true,
      () => false,
    );
  }

  return {
    async put(content) {
      const hash = hashOf(content);
      const file = fileOf(hash);
      const isNew = await create(file, content, createdFolders);
      // Contents are not synced, so a crash of the machine may leave a file with fewer bytes: write it again.
      if (!isNew && ((await statsOf(file)).size !== content.length || !(await renew(hash))))
        await writeFile(file, content, { mode: 0o600 });
      return hash;
    },
    async get(hash) {
      const content = await readFile(fileOf(hash)).catch(() => undefined);
      return content !== undefined && hashOf(content) === hash ? content : undefined;
    },
    renew,
    async *list() {
      for (const name of await readdir(folder).catch(() => [])) {
        const files = await readdir(join(folder, name)).catch(() => []);
        yield await Promise.all(
          files.map(async (hash) => {
            const { size, mtimeMs } = await statsOf(join(folder, name, hash));
            return { hash, bytes: size, renewedMs: mtimeMs };
          }),
        );
      }
    },
    remove: (hash) => rm(fileOf(hash), { force: true }),
  };
}

/** Writes the file and its folder; false where the file exists. */
async function create(file: string, content: Buffer, createdFolders: Set<string>): Promise<boolean> {
  const folder = dirname(file);
  if (!createdFolders.has(folder)) {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    createdFolders.add(folder);
  }
  try {
    await writeFile(file, content, { mode: 0o600, flag: 'wx' });
    return true;
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return false;
    // The folder may have been deleted by hand.
    createdFolders.delete(folder);
    throw error;
  }
}

export function hashOf(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

async function statsOf(file: string): Promise<{ size: number; mtimeMs: number }> {
  return stat(file).catch(() => ({ size: 0, mtimeMs: 0 }));
}
