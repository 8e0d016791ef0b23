// The installation of the packages of a folder, with a script instead of npm.
import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '../..');
const lock = JSON.stringify({ packages: { '': {}, 'node_modules/one': { version: '1.0.0' } } });
// Like npm, it deletes the installed packages first and writes its list at the end. The sleep makes
// concurrent installations overlap.
const npm = `#!/bin/sh
rm -rf node_modules && mkdir node_modules && echo run >> runs && sleep 0.5
cp package-lock.json node_modules/.package-lock.json
`;

describe('packages', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'townhall-packages-'));
    for (const name of ['scripts', 'test', 'bin']) await mkdir(path.join(folder, name));
    for (const name of ['packages.ts', 'command-line.ts'])
      await copyFile(path.join(root, 'scripts', name), path.join(folder, 'scripts', name));
    await symlink(path.join(root, 'scripts/pack'), path.join(folder, 'scripts/pack'));
    await symlink(path.join(root, 'src'), path.join(folder, 'src'));
    await writeFile(path.join(folder, 'package.json'), '{"type":"module"}');
    await writeFile(path.join(folder, 'test/package-lock.json'), lock);
    await writeFile(path.join(folder, 'bin/npm'), npm, { mode: 0o755 });
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  const install = () =>
    run(process.execPath, [path.join(folder, 'scripts/packages.ts'), 'test'], {
      env: { ...process.env, PATH: `${path.join(folder, 'bin')}:${process.env['PATH']}` },
    });
  const countRuns = async () =>
    (await readFile(path.join(folder, 'test/runs'), 'utf8')).split('\n').length - 1;

  test('installs once for scripts that start at once', async () => {
    await Promise.all([install(), install(), install()]);
    await install();
    expect(await countRuns()).toBe(1);
  });

  test('repeats an incomplete installation', async () => {
    await mkdir(path.join(folder, 'test/node_modules'));
    await writeFile(path.join(folder, 'test/node_modules/.package-lock.json'), lock.slice(0, 20));
    await install();
    expect(await countRuns()).toBe(1);
  });
});
