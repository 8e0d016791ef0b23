// Installs into test/node_modules the packages that only tests, lint and releases import, so that `npm ci` in
// the root installs half as much. It does nothing when the versions of test/package-lock.json are there.
//
//   node scripts/test-packages.ts

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { runNpm } from './pack/npm.ts';

interface LockedPackage {
  version?: string;
  /** npm leaves out an optional package of another platform. */
  optional?: boolean;
}

const folder = path.join(import.meta.dirname, '../test');

try {
  if (!isInstalled()) await install();
} catch (error) {
  console.error(
    `test-packages: ${(error as Error).message}\nThis needs the npm registry, once. Try again with: npm ci --prefix test`,
  );
  process.exitCode = 1;
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
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

async function install(): Promise<void> {
  const startedMs = performance.now();
  console.error('test-packages: installing the packages of tests and lint into test/node_modules, once …');
  await runNpm(['ci'], folder);
  console.error(`test-packages: installed in ${Math.round((performance.now() - startedMs) / 1000)} s`);
}
