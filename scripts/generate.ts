// The project's only generator: lints the contract, bundles its documents, and generates the
// handlers' types, the `Operations` maps, the problem codes, the code samples and the generated
// half of both clients. None of its output is committed. It changes nothing unless every step
// succeeds.
//
//   node scripts/generate.ts [--force] [--draft] [--no-lint] [--root DIR]
//
// --force generates everything again; --draft writes despite lint findings, and still exits 1;
// --no-lint is for installing, since the contract was linted before it was committed.

import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import { parseCommandLine } from './command-line.ts';
import { addAliases, clientDocument } from './generate/aliases.ts';
import { type Document, checkReferences, operationsOf } from './generate/document.ts';
import { digestFiles, filesBelow, publish, writeIfChanged } from './generate/files.ts';
import { generateClients } from './generate/hey-api.ts';
import { completeErrorCodes, writeErrorCodes } from './generate/error-codes.ts';
import { addErrorExamples } from './generate/error-examples.ts';
import { addSharedHeaders } from './generate/headers.ts';
import { writeKeyedOperations } from './generate/keyed-operations.ts';
import { addMethodExamples } from './generate/method-examples.ts';
import { writeOperations } from './generate/operations.ts';
import { writeProblemCodes } from './generate/problem-codes.ts';
import { addSamples, sampleFolder } from './generate/samples.ts';
import { type Surface, surfaces } from './generate/surfaces.ts';
import { packageVersion, runRedocly } from './generate/tools.ts';

const { values: options } = parseCommandLine(import.meta.filename, {
  options: {
    force: { type: 'boolean', default: false },
    draft: { type: 'boolean', default: false },
    lint: { type: 'boolean', default: true },
    root: { type: 'string', default: path.join(import.meta.dirname, '..') },
  },
  allowNegative: true,
});
const root = path.resolve(options.root);
const contractFolder = 'src/contract';
const stampFile = path.join(root, contractFolder, 'stamp.json');

/** The members of redocly.yaml that are used here. */
interface RedoclyConfiguration {
  apis: Record<string, { root: string; output?: string }>;
}

interface Stamp {
  inputs: string;
  outputs: string;
  /** False when the files were generated without a lint. */
  isLinted: boolean;
}

const startedMs = performance.now();
try {
  process.exitCode = await main();
} catch (error) {
  console.error(`generate: ${(error as Error).message}`);
  process.exitCode = 1;
}

async function main(): Promise<number> {
  const inputs = inputDigest();
  const current = options.force ? undefined : readCurrentStamp(inputs);
  if (current !== undefined) {
    if (options.lint && !current.isLinted) return lintCurrent(current);
    report('the contract is unchanged', startedMs);
    return 0;
  }
  mkdirSync(path.join(root, 'build'), { recursive: true });
  const staging = mkdtempSync(path.join(root, 'build/generate-'));
  try {
    const [isClean] = await Promise.all([options.lint ? lint() : true, bundle(staging)]);
    if (!isClean && !options.draft) return 1;
    const documents = surfaces.map((surface) => ({ ...surface, document: withSamples(staging, surface) }));
    const contents = documents.map((surface) => ({ surface, document: clientDocument(surface.document) }));
    await generateAllClients(staging, contents);
    for (const { surface, document } of contents) writeContract(staging, surface, document);
    writeFileSync(path.join(staging, 'contract/problem-code.gen.ts'), writeProblemCodes(documents));
    // Remove the stamp first: if this run is interrupted, the next one generates the files again.
    rmSync(stampFile, { force: true });
    const changes = publishAll(staging);
    // A draft leaves no stamp, so the next run reports its findings again.
    if (isClean) writeStamp({ inputs, outputs: outputDigest(), isLinted: options.lint });
    const counts = documents.map(({ name, document }) => `${name} ${operationsOf(document).length}`);
    report(`${counts.join(', ')} operations; ${changes} files changed`, startedMs);
    return isClean ? 0 : 1;
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/** Lints files that an install has generated; they are not generated again. */
async function lintCurrent(stamp: Stamp): Promise<number> {
  if (!(await lint())) return 1;
  writeStamp({ ...stamp, isLinted: true });
  return 0;
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
  // The JSON has only the counts; this format shows the lines of the sources.
  const readableRun = await runRedocly(root, [
    'lint',
    '--format=codeframe',
    ...surfaces.map(({ name }) => name),
  ]);
  console.error(`${readableRun.stdout}\n${readableRun.stderr}`);
  return false;
}

async function bundle(staging: string): Promise<void> {
  const start = performance.now();
  // One run bundles all documents, since loading the tool takes as long as a bundle. By default redocly
  // names an output after the document's file, and two of our documents are called openapi, so a
  // configuration names the outputs.
  const { apis } = parse(readFileSync(path.join(root, 'redocly.yaml'), 'utf8')) as RedoclyConfiguration;
  const outputs: RedoclyConfiguration['apis'] = {};
  for (const surface of surfaces) {
    const document = path.join(root, apis[surface.name]?.root ?? '');
    outputs[surface.name] = { root: document, output: bundleFile(staging, surface) };
  }
  const configuration = path.join(staging, 'redocly.yaml');
  writeFileSync(configuration, JSON.stringify({ telemetry: 'off', apis: outputs }));
  const { code, stdout, stderr } = await runRedocly(root, ['bundle', `--config=${configuration}`]);
  if (code !== 0 || surfaces.some((surface) => !existsSync(bundleFile(staging, surface))))
    throw new Error(`redocly bundle:\n${stdout}\n${stderr}`);
  report('bundle', start);
}

function readBundle(staging: string, surface: Surface): Document {
  const file = bundleFile(staging, surface);
  const document = JSON.parse(readFileSync(file, 'utf8')) as Document;
  addAliases(document);
  addSharedHeaders(document, surface, path.join(root, 'openapi/shared/headers'));
  completeErrorCodes(document, surface);
  writeFileSync(file, JSON.stringify(document, null, 2));
  if (operationsOf(document).length === 0) throw new Error(`the bundle of ${surface.name} has no operation`);
  checkReferences(document, surface);
  return document;
}

async function generateAllClients(
  staging: string,
  contents: readonly { surface: Surface; document: Document }[],
): Promise<void> {
  const start = performance.now();
  const jobs = contents.map(({ surface, document }) => {
    const clientBundle = path.join(staging, 'bundles', `${surface.name}.client.json`);
    writeFileSync(clientBundle, JSON.stringify(document));
    return { surface, bundle: clientBundle, output: path.join(staging, 'clients', surface.name) };
  });
  await generateClients(jobs, root);
  report('clients', start);
}

/** Writes what belongs to the generated client: the types of handlers, and the maps of codes and keys. */
function writeContract(staging: string, surface: Surface, document: Document): void {
  const client = path.join(staging, 'clients', surface.name);
  const contract = path.join(staging, 'contract', surface.name);
  const methods = path.join(client, 'sdk.gen.ts');
  writeFileSync(methods, addMethodExamples(readFileSync(methods, 'utf8'), document));
  writeFileSync(path.join(client, 'error-codes.gen.ts'), writeErrorCodes(document));
  writeFileSync(path.join(client, 'keyed-operations.gen.ts'), writeKeyedOperations(document));
  mkdirSync(contract, { recursive: true });
  cpSync(bundleFile(staging, surface), path.join(contract, 'bundle.json'));
  // The server uses the client's types: one contract, one set of names.
  cpSync(path.join(client, 'types.gen.ts'), path.join(contract, 'types.gen.ts'));
  writeFileSync(path.join(contract, 'operations.gen.ts'), writeOperations(document, surface));
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

/** Adds the code samples to the document and its bundle, and examples of errors to the bundle. */
function withSamples(staging: string, surface: Surface): Document {
  const document = readBundle(staging, surface);
  addSamples(document, surface, root);
  // The examples have response components of their own, which would only add names to the clients.
  const publishedDocument = structuredClone(document);
  addErrorExamples(publishedDocument, surface);
  writeFileSync(bundleFile(staging, surface), JSON.stringify(publishedDocument, null, 2));
  return document;
}

function inputDigest(): string {
  const versions = ['@redocly/cli', '@hey-api/openapi-ts', 'typescript'].map(
    (name) => `${name}@${packageVersion(name)}`,
  );
  const generatorDigest = digestFiles(path.join(import.meta.dirname, '..'), [
    'scripts/generate.ts',
    'scripts/generate',
    'scripts/docs/samples.ts',
  ]);
  // The examples of errors are rendered by the servers' own code.
  const renderingFiles = ['src/kernel/problem.ts', 'src/kernel/error-dialects.ts'];
  return digestFiles(
    root,
    ['openapi', 'redocly.yaml', sampleFolder, ...renderingFiles],
    [...versions, generatorDigest],
  );
}

// The digest covers the output: a generated file that was edited or removed is generated again.
function outputDigest(): string {
  const stamp = path.relative(root, stampFile);
  return digestFiles(
    root,
    generatedFiles().filter((file) => file !== stamp),
  );
}

function generatedFiles(): string[] {
  return [contractFolder, ...surfaces.map(({ clientFolder }) => clientFolder)].flatMap((folder) =>
    filesBelow(root, folder),
  );
}

function writeStamp(stamp: Stamp): void {
  writeIfChanged(stampFile, JSON.stringify(stamp));
}

/** The stamp of the last run; undefined when the inputs or the generated files have changed since. */
function readCurrentStamp(inputs: string): Stamp | undefined {
  try {
    const stamp = JSON.parse(readFileSync(stampFile, 'utf8')) as Stamp;
    return stamp.inputs === inputs && stamp.outputs === outputDigest() ? stamp : undefined;
  } catch {
    return undefined;
  }
}

function report(label: string, sinceMs: number): void {
  console.log(`generate: ${label} (${Math.round(performance.now() - sinceMs)} ms)`);
}
