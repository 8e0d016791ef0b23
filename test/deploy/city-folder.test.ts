// The record of the last deployment in the folder of a City.
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { cityFolder } from '../../src/deploy/index.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'th-folder-'));
});
afterEach(() => rm(directory, { recursive: true }));

describe('the folder of a City', () => {
  test('has no state and no versions before the first deployment', async () => {
    const folder = cityFolder(directory);
    expect([await folder.readState(), await folder.versions()]).toEqual([null, []]);
  });

  test('reports a state that cannot be read instead of none', async () => {
    const folder = cityFolder(directory);
    await mkdir(join(folder.root, 'city.json'), { recursive: true });
    await expect(folder.readState()).rejects.toThrow('EISDIR');
  });
});
