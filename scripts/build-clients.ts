// Builds the published packages of clients/ with tsc: ESM, types and source maps. A checkout runs the
// sources themselves, so only packages and their tests need this build. The shared code is compiled
// into the two clients, so that neither needs another package; @townhall/react imports the gateway's
// client.
//
//   node scripts/build-clients.ts [--into DIR]
//
// Without --into, the packages are written into build/clients.

import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { parseCommandLine } from './command-line.ts';
import { clientManifest } from './pack/manifest.ts';

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '..');
const { values: options } = parseCommandLine(import.meta.filename, {
  options: { into: { type: 'string', default: path.join(root, 'build/clients') } },
});

const startedMs = performance.now();
try {
  await Promise.all(['gateway', 'agent'].map(build));
  await build('react');
  console.log(`build-clients: gateway, agent, react (${Math.round(performance.now() - startedMs)} ms)`);
} catch (error) {
  const { stdout = '', message } = error as { stdout?: string; message: string };
  console.error(`build-clients: ${stdout || message}`);
  process.exitCode = 1;
}

async function build(name: string): Promise<void> {
  const source = path.join(root, 'clients', name);
  const folder = path.join(path.resolve(options.into), name);
  mkdirSync(path.join(root, 'build'), { recursive: true });
  const staging = mkdtempSync(path.join(root, 'build/client-'));
  try {
    const tsc = path.join(root, 'node_modules/typescript/bin/tsc');
    await run(process.execPath, [tsc, '-p', source, '--outDir', staging]);
    if (!existsSync(path.join(staging, name, 'src/index.js')))
      throw new Error(`tsc wrote no entry for ${name}`);
    // For @townhall/react tsc also compiles the sources of the gateway's client, which is a package of its
    // own and is left out here.
    const parts = name === 'react' ? ['react'] : [name, 'shared'];
    rmSync(path.join(folder, 'dist'), { recursive: true, force: true });
    for (const part of parts)
      cpSync(path.join(staging, part), path.join(folder, 'dist', part), { recursive: true });
    for (const file of ['README.md', 'LICENSE']) cpSync(path.join(source, file), path.join(folder, file));
    const manifest = clientManifest(path.join(source, 'package.json'), name);
    writeFileSync(path.join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}
