// Builds the published packages of clients/ with tsc: ESM, types and source maps into each `dist`.
// The shared code is compiled into both, so that neither package needs another. A failed build
// keeps the last good one.
//
//   node scripts/build-clients.ts [--into DIR]
//
// --into writes whole packages into DIR as they are published, and does not change clients/.

import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { parseArgs, promisify } from 'node:util';

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '..');
const { values: options } = parseArgs({ options: { into: { type: 'string' } } });

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
  const source = path.join(root, 'clients', name);
  const folder = options.into === undefined ? source : path.join(path.resolve(options.into), name);
  mkdirSync(path.join(root, 'build'), { recursive: true });
  const staging = mkdtempSync(path.join(root, 'build/client-'));
  try {
    const compiled = path.join(staging, 'dist');
    await run(process.execPath, [
      path.join(root, 'node_modules/typescript/bin/tsc'),
      '-p',
      source,
      '--outDir',
      compiled,
    ]);
    if (!existsSync(path.join(compiled, name, 'src/index.js')))
      throw new Error(`tsc wrote no entry for ${name}`);
    if (options.into !== undefined) {
      for (const file of ['package.json', 'README.md', 'LICENSE'])
        cpSync(path.join(source, file), path.join(folder, file));
      cpSync(compiled, path.join(folder, 'dist'), { recursive: true });
      return;
    }
    // Renamed before its removal, so that a program that starts now misses the folder only for an
    // instant.
    const current = path.join(folder, 'dist');
    if (existsSync(current)) renameSync(current, path.join(staging, 'previous'));
    renameSync(compiled, current);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}
