// Builds the published packages of clients/ with tsc: ESM, types and maps into each `dist`, the shared source compiled
// into both, so that neither package needs another. A failed build leaves the last good one in place.
//
//   node scripts/build-clients.ts

import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '..');
const compiler = path.join(root, 'node_modules/typescript/bin/tsc');

const started = performance.now();
try {
  await Promise.all(['gateway', 'agent'].map(build));
  console.log(`build-clients: gateway, agent (${Math.round(performance.now() - started)} ms)`);
} catch (error) {
  const { stdout = '', message } = error as { stdout?: string; message: string };
  console.error(`build-clients: ${stdout || message}`);
  process.exitCode = 1;
}

async function build(name: string): Promise<void> {
  const folder = path.join(root, 'clients', name);
  mkdirSync(path.join(root, 'build'), { recursive: true });
  const staging = mkdtempSync(path.join(root, 'build/client-'));
  try {
    await run(process.execPath, [compiler, '-p', folder, '--outDir', path.join(staging, 'dist')]);
    const entry = path.join(staging, 'dist', name, 'src/index.js');
    if (!existsSync(entry)) throw new Error(`tsc wrote no entry for ${name}`);
    // Set aside before it is removed, so that a program that starts now misses the folder for an instant only.
    const current = path.join(folder, 'dist');
    if (existsSync(current)) renameSync(current, path.join(staging, 'previous'));
    renameSync(path.join(staging, 'dist'), current);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}
