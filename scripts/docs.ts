// Builds the reference portal into build/docs: one page of our own and a Redoc page for each document of the contract.
// Every page stands alone. None asks for anything from another host, which its own policy enforces in the browser and
// the last step here checks in the text.
//
//   node scripts/docs.ts [--output DIR]

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { type Entry, writeIndexPage } from './docs/index-page.ts';
import { findForeignAssets, sealPage } from './docs/seal.ts';
import { type Document, operationsOf } from './generate/document.ts';
import { writeIfChanged } from './generate/files.ts';
import { type Surface, surfaces } from './generate/surfaces.ts';
import { runRedocly } from './generate/tools.ts';

const root = path.join(import.meta.dirname, '..');
const { values: options } = parseArgs({
  options: { output: { type: 'string', default: path.join(root, 'build/docs') } },
});

interface DescribedDocument extends Document {
  info: { title: string; version: string; summary?: string };
}

const started = performance.now();
try {
  await main(path.resolve(options.output));
} catch (error) {
  console.error(`docs: ${(error as Error).message}`);
  process.exitCode = 1;
}

async function main(output: string): Promise<void> {
  mkdirSync(path.join(root, 'build'), { recursive: true });
  const staging = mkdtempSync(path.join(root, 'build/docs-'));
  try {
    const entries = await Promise.all(surfaces.map((surface) => buildReference(surface, staging, output)));
    place(output, 'index.html', writeIndexPage(entries));
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
  console.log(`docs: ${path.relative(process.cwd(), output) || '.'} (${Math.round(performance.now() - started)} ms)`);
}

async function buildReference(surface: Surface, staging: string, output: string): Promise<Entry> {
  const bundle = path.join(root, 'src/contract', surface.name, 'bundle.json');
  if (!existsSync(bundle)) throw new Error(`there is no bundle of ${surface.name}; run "npm run generate" first`);
  const text = readFileSync(bundle, 'utf8');
  const document = JSON.parse(text) as DescribedDocument;
  const page = path.join(staging, `${surface.name}.html`);
  const { code, stdout, stderr } = await runRedocly(root, [
    'build-docs',
    bundle,
    '--inlineBundle',
    '--title',
    surface.title,
    '--output',
    page,
  ]);
  if (code !== 0 || !existsSync(page)) throw new Error(`redocly build-docs of ${surface.name}:\n${stdout}\n${stderr}`);
  place(output, `${surface.name}.html`, sealPage(readFileSync(page, 'utf8')));
  // The document itself lies beside its page, for tools.
  writeIfChanged(path.join(output, `${surface.name}.json`), text);
  return {
    page: `${surface.name}.html`,
    document: `${surface.name}.json`,
    title: surface.title,
    summary: document.info.summary ?? '',
    version: document.info.version,
    operations: operationsOf(document).length,
  };
}

function place(output: string, name: string, html: string): void {
  const foreign = findForeignAssets(html);
  if (foreign.length > 0) throw new Error(`${name} would ask another host for ${foreign.join(', ')}`);
  writeIfChanged(path.join(output, name), html);
}
