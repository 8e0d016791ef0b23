// Contents of files in the data folder, each under its SHA-256. No file is changed once it is written.
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface ContentStore {
  /** Returns the hash. */
  put(content: Buffer): Promise<string>;
  /** Undefined where the content is missing or damaged. */
  get(hash: string): Promise<Buffer | undefined>;
  /** All contents with their sizes, a folder of them at a time. */
  list(): AsyncGenerator<{ hash: string; bytes: number }[]>;
  remove(hash: string): Promise<void>;
}

/** Creates the folder with the first content. */
export function contentStore(folder: string): ContentStore {
  const folderOf = (hash: string) => join(folder, hash.slice(0, 2));
  const fileOf = (hash: string) => join(folderOf(hash), hash);
  const createdFolders = new Set<string>();

  async function create(hash: string, content: Buffer): Promise<void> {
    if (!createdFolders.has(folderOf(hash))) {
      await mkdir(folderOf(hash), { recursive: true, mode: 0o700 });
      createdFolders.add(folderOf(hash));
    }
    try {
      await writeFile(fileOf(hash), content, { mode: 0o600, flag: 'wx' });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== 'EEXIST') {
        // The folder may have been deleted by hand.
        createdFolders.delete(folderOf(hash));
        throw error;
      }
      // A crash of the machine may leave a file with fewer bytes: contents are not synced.
      if ((await sizeOf(fileOf(hash))) !== content.length)
        await writeFile(fileOf(hash), content, { mode: 0o600 });
    }
  }

  return {
    async put(content) {
      const hash = hashOf(content);
      await create(hash, content);
      return hash;
    },
    async get(hash) {
      const content = await readFile(fileOf(hash)).catch(() => undefined);
      return content !== undefined && hashOf(content) === hash ? content : undefined;
    },
    async *list() {
      for (const name of await readdir(folder).catch(() => [])) {
        const files = await readdir(join(folder, name)).catch(() => []);
        yield await Promise.all(
          files.map(async (hash) => ({ hash, bytes: (await sizeOf(join(folder, name, hash))) ?? 0 })),
        );
      }
    },
    remove: (hash) => rm(fileOf(hash), { force: true }),
  };
}

export function hashOf(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

async function sizeOf(file: string): Promise<number | undefined> {
  return stat(file).then(
    ({ size }) => size,
    () => undefined,
  );
}
