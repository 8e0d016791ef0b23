// Installs the packages of folders that have a package.json of their own, so that `npm ci` in the
// root installs only what `npm start` needs: SDKs for `examples`, tools of releases for `scripts`,
// tools and SDKs for `test`. Files below such a folder find its packages by Node's own rule. It does
// nothing for a folder that already has the versions of its lock file.
//
//   node scripts/packages.ts [FOLDER…]
//
// Without an argument it installs the packages of all three folders.

import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { tryLockFolder, type FolderLock } from '../src/kernel/data/embedded/folder-lock.ts';
import { parseCommandLine } from './command-line.ts';
import { runNpm } from './pack/npm.ts';

interface LockedPackage {
  version?: string;
  /** npm leaves out an optional package of another platform. */
  optional?: boolean;
}

const root = path.join(import.meta.dirname, '..');
const allFolders = ['examples', 'scripts', 'test'];
const lockFolder = path.join(root, 'build/packages-lock');

const { positionals } = parseCommandLine(import.meta.filename, { allowPositionals: true });
const folders = positionals.length > 0 ? positionals : allFolders;
try {
  for (const folder of folders)
    if (!allFolders.includes(folder))
      throw new Error(`"${folder}" has no packages of its own; use one of ${allFolders.join(', ')}.`);
  if (!folders.every(isInstalled)) await installAlone();
} catch (error) {
  console.error(`packages: ${(error as Error).message}`);
  process.exitCode = 1;
}

/**
 * Installs under a lock: of two scripts that start at once, such as lint and tests, the second would
 * delete what the first installs.
 */
async function installAlone(): Promise<void> {
  const lock = await waitForLock();
  try {
    for (const folder of folders) if (!isInstalled(folder)) await install(folder);
  } finally {
    lock.release();
  }
}

/** Waits without a limit: the lock ends when its process exits, whose npm times out after ten minutes. */
async function waitForLock(): Promise<FolderLock> {
  mkdirSync(lockFolder, { recursive: true });
  for (let attempt = 1; ; attempt += 1) {
    const lock = tryLockFolder(lockFolder);
    if (lock !== null) return lock;
    if (attempt === 1) console.error('packages: waiting for another process that installs packages …');
    await sleep(500);
  }
}

/** npm writes the list of packages last, so an unfinished installation has no list. */
function isInstalled(folder: string): boolean {
  const installedPackages = readPackages(folder, 'node_modules/.package-lock.json');
  if (installedPackages === undefined) return false;
  const lockedPackages = readPackages(folder, 'package-lock.json') ?? {};
  return Object.entries(lockedPackages).every(([place, { version, optional }]) => {
    if (place === '') return true;
    const installedPackage = installedPackages[place];
    return installedPackage === undefined ? optional === true : installedPackage.version === version;
  });
}

function readPackages(folder: string, file: string): Record<string, LockedPackage> | undefined {
  try {
    const { packages } = JSON.parse(readFileSync(path.join(root, folder, file), 'utf8')) as {
      packages: Record<string, LockedPackage>;
    };
    return packages;
  } catch (error) {
    // A SyntaxError means that npm is writing the list at this moment.
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

async function install(folder: string): Promise<void> {
  const startedMs = performance.now();
  console.error(`packages: installing the packages of ${folder}/ into ${folder}/node_modules, once …`);
  try {
    await runNpm(['ci'], path.join(root, folder));
  } catch (error) {
    const advice = `This needs the npm registry, once. Try again with: npm ci --prefix ${folder}`;
    throw new Error(`${(error as Error).message}\n${advice}`, { cause: error });
  }
  console.error(`packages: installed in ${Math.round((performance.now() - startedMs) / 1000)} s`);
}
