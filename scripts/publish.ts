// Publishes the packages of build/packages. It refuses while a field is missing that the registry and the
// readers need and that only the publisher knows: the public addresses of the project. npm attaches the
// provenance of the build because `publishConfig` in each package.json asks for it.
//
//   node scripts/publish.ts [--check] [--dry-run]
//
// --check only looks for missing fields; --dry-run packs and lets npm do everything but the upload.

import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import { parseCommandLine } from './command-line.ts';
import { runNode } from './generate/tools.ts';
import { runNpm } from './pack/npm.ts';

const root = path.join(import.meta.dirname, '..');
const manifests = [
  'package.json',
  ...['gateway', 'agent', 'react'].map((name) => `clients/${name}/package.json`),
];
const documents = ['gateway/openapi.yaml', 'agent/openapi.yaml', 'agent/openapi.classic.yaml'].map(
  (name) => `openapi/${name}`,
);

type Json = Record<string, unknown>;

/** Lists missing and wrong fields, one line for each field of each file. */
export function findMissing(folder: string): string[] {
  return [
    ...manifests.flatMap((file) => missingInManifest(file, JSON.parse(readText(folder, file)) as Json)),
    ...documents.flatMap((file) => missingInDocument(file, parse(readText(folder, file)) as Json)),
  ];
}

function missingInManifest(file: string, { repository, homepage, bugs }: Json): string[] {
  const { url, directory } = (repository ?? {}) as Json;
  const packageFolder = path.dirname(file);
  return [
    // npm's provenance compares the address with the repository that the build ran in.
    ...(isAddress(url) ? [] : [`${file}: "repository.url", the public address of the repository`]),
    // The registry links a package to its folder in the repository.
    ...(packageFolder === '.' || directory === packageFolder
      ? []
      : [`${file}: "repository.directory" must be "${packageFolder}"`]),
    ...(isAddress(homepage) ? [] : [`${file}: "homepage", the page that explains the project`]),
    ...(isAddress((bugs as Json | undefined)?.['url'])
      ? []
      : [`${file}: "bugs.url", where a reader reports a fault`]),
  ];
}

function missingInDocument(file: string, { info }: Json): string[] {
  const { contact } = (info ?? {}) as { contact?: Json };
  const hasContact = isAddress(contact?.['url']) || typeof contact?.['email'] === 'string';
  return hasContact ? [] : [`${file}: "info.contact" with a "url" or an "email"`];
}

function isAddress(value: unknown): boolean {
  return typeof value === 'string' && /^(?:git\+)?https:\/\//.test(value) && URL.canParse(value);
}

function readText(folder: string, file: string): string {
  return readFileSync(path.join(folder, file), 'utf8');
}

async function main(): Promise<number> {
  const { values: options } = parseCommandLine(import.meta.filename, {
    options: { check: { type: 'boolean', default: false }, 'dry-run': { type: 'boolean', default: false } },
  });
  const missingFields = findMissing(root);
  for (const line of missingFields) console.error(`publish: missing ${line}`);
  if (missingFields.length > 0) {
    console.error('publish: nothing was published; CONTRIBUTING.md says what to set before the first time');
    return 1;
  }
  if (options.check) return 0;
  const packing = runNode(path.join(root, 'scripts/pack.ts'), [], { cwd: root, timeoutMs: 600_000 });
  const { code, stdout, stderr } = await packing;
  if (code !== 0) throw new Error(`pack:\n${stdout}${stderr}`);
  const tarballs = globSync(path.join(root, 'build/packages/*.tgz'));
  // The server and @townhall/react depend on the gateway's client: the server comes last, and
  // `react` follows by name.
  for (const tarball of tarballs.sort(
    (a, b) => Number(isServer(a)) - Number(isServer(b)) || a.localeCompare(b),
  )) {
    await runNpm(['publish', tarball, ...(options['dry-run'] ? ['--dry-run'] : [])], root);
    console.log(`publish: ${path.basename(tarball)}`);
  }
  return 0;
}

function isServer(tarball: string): boolean {
  return /^townhall-\d/.test(path.basename(tarball));
}

if (process.argv[1] === import.meta.filename) process.exitCode = await main();
