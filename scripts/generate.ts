// The only generator of the project: lints the contract, bundles its documents, and makes from them the types that
// handlers are written against, the `Operations` maps, the problem codes, the code samples and the generated halves of
// both clients.
// Nothing it makes is committed. It changes nothing unless everything succeeded.
//
//   node scripts/generate.ts [--force] [--draft] [--root DIR]
//
// --force makes everything anew; --draft writes although the lint has findings, and still exits 1.

import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { type Document, checkReferences, operationsOf } from './generate/document.ts';
import { digest, filesBelow, publish, writeIfChanged } from './generate/files.ts';
import { generateClient } from './generate/hey-api.ts';
import { completeErrorCodes, writeErrorCodes } from './generate/error-codes.ts';
import { addSharedHeaders } from './generate/headers.ts';
import { writeOperations } from './generate/operations.ts';
import { writeProblemCodes } from './generate/problem-codes.ts';
import { addSamples, sampleFolder } from './generate/samples.ts';
import { type Surface, surfaces } from './generate/surfaces.ts';
import { packageVersion, runRedocly } from './generate/tools.ts';

const { values: options } = parseArgs({
  options: {
    force: { type: 'boolean', default: false },
    draft: { type: 'boolean', default: false },
    root: { type: 'string', default: path.join(import.meta.dirname, '..') },
  },
});
const root = path.resolve(options.root);
const contractFolder = 'src/contract';
const stampFile = path.join(root, contractFolder, 'stamp.json');

interface Stamp {
  inputs: string;
  outputs: string;
}

const started = performance.now();
try {
  process.exitCode = await main();
} catch (error) {
  console.error(`generate: ${(error as Error).message}`);
  process.exitCode = 1;
}

async function main(): Promise<number> {
  const inputs = inputDigest();
  if (!options.force && isCurrent(inputs)) {
    report('the contract is unchanged', started);
    return 0;
  }
  mkdirSync(path.join(root, 'build'), { recursive: true });
  const staging = mkdtempSync(path.join(root, 'build/generate-'));
  try {
    const [clean] = await Promise.all([lint(), bundle(staging)]);
    if (!clean && !options.draft) return 1;
    const documents = surfaces.map((surface) => ({ ...surface, document: withSamples(staging, surface) }));
    await Promise.all(documents.map((surface) => generateSurface(staging, surface, surface.document)));
    writeFileSync(path.join(staging, 'contract/problem-code.gen.ts'), writeProblemCodes(documents));
    // Without its stamp a run that is cut short here is made again.
    rmSync(stampFile, { force: true });
    const changes = publishAll(staging);
    // Findings are found again by the next run, so a draft leaves no stamp.
    if (clean) writeIfChanged(stampFile, JSON.stringify({ inputs, outputs: outputDigest() } satisfies Stamp));
    report(
      `${documents.map(({ name, document }) => `${name} ${operationsOf(document).length}`).join(', ')} operations; ${changes} files changed`,
      started,
    );
    return clean ? 0 : 1;
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

async function lint(): Promise<boolean> {
  const start = performance.now();
  const { code, stdout, stderr } = await runRedocly(root, [
    'lint',
    '--format=json',
    '--max-problems=1000',
    ...surfaces.map(({ name }) => name),
  ]);
  const totals = Array.from(
    stdout.matchAll(/"errors": (\d+),\s*"warnings": (\d+)/g),
    (match) => Number(match[1]) + Number(match[2]),
  );
  if (totals.length !== surfaces.length)
    throw new Error(`redocly lint did not report on all documents:\n${stdout}\n${stderr}`);
  const findings = totals.reduce((sum, count) => sum + count, 0);
  report(`lint: ${findings === 0 ? 'no finding' : `${findings} findings`}`, start);
  if (findings === 0 && code === 0) return true;
  const readable = await runRedocly(root, [
    'lint',
    '--format=codeframe',
    ...surfaces.map(({ name }) => name),
  ]);
  console.error(`${readable.stdout}\n${readable.stderr}`);
  return false;
}

async function bundle(staging: string): Promise<void> {
  const start = performance.now();
  // A run each: one run over several documents names its output after the file, and two of ours are "openapi".
  const runs = surfaces.map(async (surface) => {
    const { code, stdout, stderr } = await runRedocly(root, [
      'bundle',
      surface.name,
      '--output',
      bundleFile(staging, surface),
      '--ext=json',
    ]);
    if (code !== 0 || !existsSync(bundleFile(staging, surface)))
      throw new Error(`redocly bundle of ${surface.name}:\n${stdout}\n${stderr}`);
  });
  await Promise.all(runs);
  report('bundle', start);
}

function readBundle(staging: string, surface: Surface): Document {
  const file = bundleFile(staging, surface);
  const document = JSON.parse(readFileSync(file, 'utf8')) as Document;
  addSharedHeaders(document, surface, path.join(root, 'openapi/shared/headers'));
  completeErrorCodes(document, surface);
  writeFileSync(file, JSON.stringify(document, null, 2));
  if (operationsOf(document).length === 0) throw new Error(`the bundle of ${surface.name} has no operation`);
  checkReferences(document, surface);
  return document;
}

async function generateSurface(staging: string, surface: Surface, document: Document): Promise<void> {
  const start = performance.now();
  const client = path.join(staging, 'clients', surface.name);
  const contract = path.join(staging, 'contract', surface.name);
  await generateClient(surface, { bundle: bundleFile(staging, surface), output: client, root });
  writeFileSync(path.join(client, 'error-codes.gen.ts'), writeErrorCodes(document));
  mkdirSync(contract, { recursive: true });
  cpSync(bundleFile(staging, surface), path.join(contract, 'bundle.json'));
  // The server's types are the client's: one contract, one set of names.
  cpSync(path.join(client, 'types.gen.ts'), path.join(contract, 'types.gen.ts'));
  writeFileSync(path.join(contract, 'operations.gen.ts'), writeOperations(document, surface));
  report(`${surface.name}: types, operations, client`, start);
}

function publishAll(staging: string): number {
  const clients = surfaces.map((surface) =>
    publish(path.join(staging, 'clients', surface.name), path.join(root, surface.clientFolder)),
  );
  return (
    publish(path.join(staging, 'contract'), path.join(root, contractFolder)) +
    clients.reduce((sum, count) => sum + count, 0)
  );
}

function bundleFile(staging: string, { name }: Surface): string {
  return path.join(staging, 'bundles', `${name}.json`);
}

/** The document with its code samples, which its bundle has from then on too. */
function withSamples(staging: string, surface: Surface): Document {
  const document = readBundle(staging, surface);
  addSamples(document, surface, root);
  writeFileSync(bundleFile(staging, surface), JSON.stringify(document, null, 2));
  return document;
}

function inputDigest(): string {
  const versions = ['@redocly/cli', '@hey-api/openapi-ts', 'typescript'].map(
    (name) => `${name}@${packageVersion(name)}`,
  );
  const own = digest(path.join(import.meta.dirname, '..'), [
    'scripts/generate.ts',
    'scripts/generate',
    'scripts/docs/samples.ts',
  ]);
  return digest(root, ['openapi', 'redocly.yaml', sampleFolder], [...versions, own]);
}

// What was made counts too: a generated file that was edited or removed by hand is made again.
function outputDigest(): string {
  const stamp = path.relative(root, stampFile);
  return digest(
    root,
    generatedFiles().filter((file) => file !== stamp),
  );
}

function generatedFiles(): string[] {
  return [contractFolder, ...surfaces.map(({ clientFolder }) => clientFolder)].flatMap((folder) =>
    filesBelow(root, folder),
  );
}

function isCurrent(inputs: string): boolean {
  try {
    const stamp = JSON.parse(readFileSync(stampFile, 'utf8')) as Stamp;
    return stamp.inputs === inputs && stamp.outputs === outputDigest();
  } catch {
    return false;
  }
}

function report(what: string, start: number): void {
  console.log(`generate: ${what} (${Math.round(performance.now() - start)} ms)`);
}
