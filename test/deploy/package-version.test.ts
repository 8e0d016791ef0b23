// Raises and restores the version in package.json, and keeps other changes that are made during a deployment.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readPackageVersion } from '../../src/deploy/package-version.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-version-'));
  await write('{ "version": "0.1.0" }\n');
});
afterEach(() => rm(folder, { recursive: true }));

const write = (text: string): Promise<void> => writeFile(join(folder, 'package.json'), text);
const read = (): Promise<string> => readFile(join(folder, 'package.json'), 'utf8');

describe('the version of a package', () => {
  test('is raised in the current text of the file', async () => {
    const version = await readPackageVersion(folder);
    await write('{ "name": "notes", "version": "0.1.0" }\n');
    await version.raise();
    expect(await read()).toBe('{ "name": "notes", "version": "0.1.1" }\n');
  });

  test('is restored in the current text of the file', async () => {
    const version = await readPackageVersion(folder);
    await version.raise();
    await write('{ "name": "notes", "version": "0.1.1" }\n');
    await version.restore();
    expect(await read()).toBe('{ "name": "notes", "version": "0.1.0" }\n');
  });

  test('is not raised when another program has changed it', async () => {
    const version = await readPackageVersion(folder);
    await write('{ "version": "0.5.0" }\n');
    await expect(version.raise()).rejects.toThrow('from 0.1.0 to 0.5.0 during the deployment');
    await version.restore();
    expect(await read()).toBe('{ "version": "0.5.0" }\n');
  });
});
