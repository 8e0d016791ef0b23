// Builds the published packages of clients/ with tsc: ESM, types and source maps into each `dist`.
// The shared code is compiled into the two clients, so that neither needs another package;
// @townhall/react is built on the gateway's client. A failed build keeps the last good one.
//
//   node scripts/build-clients.ts [--into DIR] [--no-check]
//
// --into writes whole packages into DIR as they are published, and does not change clients/.
// --no-check is for installing: it emits without the type check, and only what has changed since
// the last build.

import { execFile } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { digestFiles } from './generate/files.ts';
import { packageVersion } from './generate/tools.ts';

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '..');
const { values: options } = parseArgs({
  options: { into: { type: 'string' }, check: { type: 'boolean', default: true } },
  allowNegative: true,
});

const startedMs = performance.now();
try {
  await Promise.all(['gateway', 'agent'].filter((name) => !isCurrent(name)).map(build));
  // It compiles against the types of the gateway's client.
  if (!isCurrent('react')) await build('react');
  console.log(`build-clients: gateway, agent, react (${Math.round(performance.now() - startedMs)} ms)`);
} catch (error) {
  const { stdout = '', message } = error as { stdout?: string; message: string };
  console.error(`build-clients: ${stdout || message}`);
  process.exitCode = 1;
}

/** Whether an install finds the build of the present sources. */
function isCurrent(name: string): boolean {
  if (options.check || options.into !== undefined) return false;
  return (
    existsSync(path.join(root, 'clients', name, 'dist')) &&
    existsSync(stampFile(name)) &&
    readFileSync(stampFile(name), 'utf8') === inputDigest(name)
  );
}

function stampFile(name: string): string {
  return path.join(root, 'build', `client-${name}.stamp`);
}

function inputDigest(name: string): string {
  const sources = [
    `clients/${name}/src`,
    `clients/${name}/tsconfig.json`,
    ...(name === 'react' ? ['clients/gateway/src', 'clients/gateway/tsconfig.json'] : []),
    'clients/shared/src',
    'tsconfig.json',
  ];
  return digestFiles(root, [...sources, 'scripts/build-clients.ts'], [packageVersion('typescript')]);
}

async function build(name: string): Promise<void> {
  const source = path.join(root, 'clients', name);
  const folder = options.into === undefined ? source : path.join(path.resolve(options.into), name);
  mkdirSync(path.join(root, 'build'), { recursive: true });
  const staging = mkdtempSync(path.join(root, 'build/client-'));
  try {
    const compiledFolder = path.join(staging, 'dist');
    await run(process.execPath, [
      path.join(root, 'node_modules/typescript/bin/tsc'),
      '-p',
      source,
      '--outDir',
      compiledFolder,
      ...(options.check ? [] : ['--noCheck']),
    ]);
    if (!existsSync(path.join(compiledFolder, name, 'src/index.js')))
      throw new Error(`tsc wrote no entry for ${name}`);
    if (options.into !== undefined) {
      for (const file of ['package.json', 'README.md', 'LICENSE'])
        cpSync(path.join(source, file), path.join(folder, file));
      cpSync(compiledFolder, path.join(folder, 'dist'), { recursive: true });
      return;
    }
    // Rename the folder before its removal, so that a program that starts now misses it only for an
    // instant.
    const current = path.join(folder, 'dist');
    if (existsSync(current)) renameSync(current, path.join(staging, 'previous'));
    renameSync(compiledFolder, current);
    writeFileSync(stampFile(name), inputDigest(name));
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}
