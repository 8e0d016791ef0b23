// Folders that settings name.
import { existsSync } from 'node:fs';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeFolder, makeSettingFolder, requireFolder } from '../../src/kernel/folder.ts';
import { SettingError } from '../../src/kernel/settings.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-folder-'));
  await writeFile(join(folder, 'file'), '');
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe('makeFolder', () => {
  test('creates missing parents readable by their owner only', async () => {
    const path = join(folder, 'a', 'b', 'c');
    await Promise.all([makeFolder(path), makeFolder(path)]);
    await makeFolder(path);
    expect((await stat(join(folder, 'a'))).mode & 0o777).toBe(0o700);
    expect((await stat(path)).isDirectory()).toBe(true);
  });

  test('creates folders with the same missing parents at once', async () => {
    for (let round = 0; round < 50; round += 1) {
      const parent = join(folder, `round-${round}`, 'parent');
      const paths = Array.from({ length: 8 }, (_, index) => join(parent, `child-${index}`));
      await Promise.all(paths.map((path) => makeFolder(path)));
      const folders = await Promise.all(paths.map((path) => stat(path)));
      expect(folders.every((entry) => entry.isDirectory())).toBe(true);
    }
  });

  test.runIf(existsSync('/proc/self'))('rejects where the system cannot create a folder', async () => {
    await expect(makeFolder('/proc/x/y')).rejects.toMatchObject({ code: 'ENOENT' });
  });
});

describe('the folder of a setting', () => {
  test.each([
    ['below a file', 'file/x'],
    ['that is a file', 'file'],
  ])('is refused %s with an error that names the setting', async (_title, path) => {
    for (const check of [requireFolder, makeSettingFolder]) {
      const refusal = await check('DATA_PATH', join(folder, path)).catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(SettingError);
      expect((refusal as Error).message).toMatch(/^DATA_PATH: the folder \S+ cannot be used/);
    }
  });

  test('is not created by a check', async () => {
    await requireFolder('DATA_PATH', join(folder, 'later', 'deep'));
    expect(existsSync(join(folder, 'later'))).toBe(false);
  });
});
