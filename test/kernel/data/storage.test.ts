// Storage in a folder.
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { directoryStorage, type Storage } from '../../../src/kernel/storage/storage.ts';

let folder: string;
let storage: Storage;
beforeEach(async () => {
  folder = join(await mkdtemp(join(tmpdir(), 'townhall-storage-')), 'store');
  storage = directoryStorage(folder);
});
afterEach(() => rm(join(folder, '..'), { recursive: true, force: true }));

async function read(key: string): Promise<Buffer | null> {
  const file = await storage.open(key);
  if (file === null) return null;
  const pieces: Uint8Array[] = [];
  for await (const piece of file.content) pieces.push(piece);
  const bytes = Buffer.concat(pieces);
  expect(bytes.length).toBe(file.size);
  return bytes;
}

describe('directoryStorage', () => {
  it('returns contents of any size until removal', async () => {
    const content = Buffer.alloc(300_000, 'abc');
    await storage.put('med_1', content);
    await storage.put('med_2', Buffer.alloc(0));
    expect(await read('med_1')).toEqual(content);
    expect(await read('med_2')).toEqual(Buffer.alloc(0));
    await storage.remove('med_1');
    await storage.remove('med_1');
    expect(await read('med_1')).toBeNull();
    expect(await read('med_3')).toBeNull();
  });

  it('creates files and folders that only their owner can read', async () => {
    await storage.put('med_1', Buffer.from('x'));
    expect((await stat(join(folder, 'med_1'))).mode & 0o777).toBe(0o600);
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
    expect(await readdir(folder)).toEqual(['med_1']);
  });

  it('never exposes a partial write', async () => {
    const [oldContent, newContent] = [Buffer.alloc(2_000_000, 'a'), Buffer.alloc(2_000_000, 'b')];
    await storage.put('med_1', oldContent);
    let isWriting = true;
    const write = storage.put('med_1', newContent).finally(() => (isWriting = false));
    while (isWriting) {
      const content = await read('med_1');
      expect(content?.equals(oldContent) === true || content?.equals(newContent) === true).toBe(true);
    }
    await write;
    expect((await read('med_1'))?.equals(newContent)).toBe(true);
  });

  it('refuses a key that is not a plain name of up to 128 characters', async () => {
    for (const key of ['..', '../x', 'a/b', '', '.hidden', 'a\0b', 'x'.repeat(129)]) {
      await expect(storage.put(key, Buffer.from('x'))).rejects.toThrow('storage key');
      await expect(storage.open(key)).rejects.toThrow('storage key');
      await expect(storage.remove(key)).rejects.toThrow('storage key');
    }
  });

  const openFilesFolder = '/proc/self/fd';
  it.runIf(existsSync(openFilesFolder))('keeps no file open for an unread content', async () => {
    await storage.put('med_1', Buffer.alloc(300_000));
    const openFiles = async () => (await readdir(openFilesFolder)).length;
    const filesBefore = await openFiles();
    for (let count = 0; count < 50; count += 1) {
      await storage.open('med_1');
      const file = await storage.open('med_1');
      for await (const _piece of file?.content ?? []) break;
    }
    expect(await openFiles()).toBeLessThan(filesBefore + 20);
  });
});
