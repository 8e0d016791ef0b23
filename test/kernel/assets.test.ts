// Files of a folder on a disk.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { listFiles } from '../../src/kernel/assets.ts';

test.each(['', '/', '//'])('listFiles returns relative paths for a folder that ends in "%s"', async (end) => {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-files-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await mkdir(join(folder, 'below'));
  await writeFile(join(folder, 'b.txt'), '');
  await writeFile(join(folder, 'below/a.txt'), '');
  expect(await listFiles(`${folder}${end}`)).toEqual(['b.txt', 'below/a.txt']);
});
