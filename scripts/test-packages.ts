// Installs into test/node_modules the packages that only tests, lint and releases import, so that `npm ci` in
// the root installs half as much. It does nothing when the versions of test/package-lock.json are there.
//
//   node scripts/test-packages.ts

import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { tryLockFolder, type FolderLock } from '../src/kernel/data/embedded/folder-lock.ts';
import { runNpm } from './pack/npm.ts';

interface LockedPackage {
  version?: string;
  /** npm leaves out an optional package of another platform. */
  optional?: boolean;
}

const folder = path.join(import.meta.dirname, '../test');
const lockFolder = path.join(import.meta.dirname, '../build/test-packages');

try {
  if (!isInstalled()) await installAlone();
} catch (error) {
  console.error(
    `test-packages: ${(error as Error).message}\nThis needs the npm registry, once. Try again with: npm ci --prefix test`,
  );
  process.exitCode = 1;
}

/**
 * Of two scripts that start at once, such as lint and tests, the second would delete what the first
 * installs.
 */
async function installAlone(): Promise<void> {
  const lock = await waitForLock();
  try {
    if (!isInstalled()) await install();
  } finally {
    lock.release();
  }
}

/** The lock ends with the process that holds it, and its npm ends after ten minutes. */
async function waitForLock(): Promise<FolderLock> {
  mkdirSync(lockFolder, { recursive: true });
  for (let attempt = 1; ; attempt += 1) {
    const lock = tryLockFolder(lockFolder);
    if (lock !== null) return lock;
    if (attempt === 1) console.error('test-packages: waiting for another process that installs them …');
    await sleep(500);
  }
}

/** npm writes the list of what it installed at the end of an installation, so half of one has no list. */
function isInstalled(): boolean {
  const installed = readPackages('node_modules/.package-lock.json');
  if (installed === undefined) return false;
  const locked = readPackages('package-lock.json') ?? {};
  return Object.entries(locked).every(([place, { version, optional }]) => {
    if (place === '') return true;
    const present = installed[place];
    return present === undefined ? optional === true : present.version === version;
  });
}

function readPackages(file: string): Record<string, LockedPackage> | undefined {
  try {
    const { packages } = JSON.parse(readFileSync(path.join(folder, file), 'utf8')) as {
      packages: Record<string, LockedPackage>;
    };
    return packages;
  } catch (error) {
    // A SyntaxError is of a list that npm is writing.
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

async function install(): Promise<void> {
  const startedMs = performance.now();
  console.error('test-packages: installing the packages of tests and lint into test/node_modules, once …');
  await runNpm(['ci'], folder);
  console.error(`test-packages: installed in ${Math.round((performance.now() - startedMs) / 1000)} s`);
}
