// The pages of Redoc, one for each document of the contract.
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { type Document, operationsOf } from '../generate/document.ts';
import type { Surface } from '../generate/surfaces.ts';
import { runRedocly } from '../generate/tools.ts';
import type { DocumentEntry } from './index-page.ts';
import { writeHeader } from './layout.ts';
import { sealPage } from './seal.ts';
import { readStyle } from './styles.ts';

const root = path.join(import.meta.dirname, '../..');

interface DescribedDocument extends Document {
  info: { title: string; version: string; summary?: string };
}

/** A document of the contract with the page of Redoc that shows it. */
export interface ReferencePage {
  surface: Surface;
  bundle: string;
  text: string;
  document: DescribedDocument;
  entry: DocumentEntry;
}

export function readReference(surface: Surface): ReferencePage {
  const bundle = path.join(root, 'src/contract', surface.name, 'bundle.json');
  if (!existsSync(bundle))
    throw new Error(`there is no bundle of ${surface.name}; run "npm run generate" first`);
  const text = readFileSync(bundle, 'utf8');
  const document = JSON.parse(text) as DescribedDocument;
  const entry = {
    page: `${surface.name}.html`,
    document: `${surface.name}.json`,
    title: surface.title,
    summary: document.info.summary ?? '',
    version: document.info.version,
    operations: operationsOf(document).length,
  };
  return { surface, bundle, text, document, entry };
}

/** Builds the reference page. The document itself is beside it, for tools. */
export async function buildReference(
  { surface, bundle, text, entry }: ReferencePage,
  staging: string,
): Promise<[string, string][]> {
  const page = path.join(staging, entry.page);
  const { code, stdout, stderr } = await runRedocly(root, [
    'build-docs',
    bundle,
    '--inlineBundle',
    '--title',
    surface.title,
    '--output',
    page,
  ]);
  if (code !== 0 || !existsSync(page))
    throw new Error(`redocly build-docs of ${surface.name}:\n${stdout}\n${stderr}`);
  return [
    [
      entry.page,
      sealPage(readFileSync(page, 'utf8'), {
        header: writeHeader(entry.page, ''),
        style: `${readStyle('header.css')}${readStyle('redoc.css')}`,
      }),
    ],
    [entry.document, text],
  ];
}
