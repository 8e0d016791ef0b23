// Compares the gateway's document with the documents of other providers. Nothing is
// fetched: each document is a file in build/compared or is named on the command line.
// A missing document is left out of the table.
//
//   node scripts/compare-contract.ts [openai=FILE …] [--write]
//
// --write updates the table in the page of docs/decisions that explains it.

import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import { parseCommandLine } from './command-line.ts';
import { measureDocument, type Measures, type Share } from './compare/measures.ts';

const root = path.join(import.meta.dirname, '..');
const folder = path.join(root, 'build/compared');
const page = path.join(root, 'docs/decisions/2026-11-23-contract-compared.md');
const providers = {
  openrouter: 'OpenRouter',
  unkey: 'Unkey',
  stripe: 'Stripe',
  openai: 'OpenAI',
  portkey: 'Portkey',
};

const rows: Record<keyof Measures, string> = {
  describedOperations: 'operations described',
  describedMembers: 'members described',
  operationsWithErrors: 'operations with an error body',
  operationsWithCodes: 'operations with error codes',
  discriminatedUnions: 'unions with a discriminator',
  operationsWithHeaders: 'operations with headers of answers',
  operationsWithSamples: 'operations with samples',
};

interface Column {
  title: string;
  measures: Measures;
}

const { values: options, positionals } = parseCommandLine(import.meta.filename, {
  options: { write: { type: 'boolean', default: false } },
  allowPositionals: true,
});

const columns = [
  ...['gateway', 'agent'].map((name) => readColumn(`Townhall ${name}`, `src/contract/${name}/bundle.json`)),
  ...Object.entries(providers).flatMap(([name, title]) => {
    const file = fileOf(name);
    if (file !== undefined) return [readColumn(title, file)];
    console.error(
      `compare-contract: no document of ${title}; pass ${name}=FILE or put it into build/compared`,
    );
    return [];
  }),
];
const table = renderTable(columns);
console.log(table);
for (const line of listRowsBehind(columns)) console.log(`smaller share than others: ${line}`);
if (options.write) writeIntoPage(table);

function fileOf(name: string): string | undefined {
  const argument = positionals.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1);
  const file = argument ?? globSync(path.join(folder, `${name}.{json,yaml,yml}`))[0];
  return file !== undefined && existsSync(file) ? file : undefined;
}

function readColumn(title: string, file: string): Column {
  const document = parse(readFileSync(path.resolve(root, file), 'utf8'), { maxAliasCount: -1 }) as Record<
    string,
    unknown
  >;
  return { title, measures: measureDocument(document) };
}

function renderTable(columns: readonly Column[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [
    line(['', ...columns.map(({ title }) => title)]),
    line(['---', ...columns.map(() => '---')]),
    ...Object.entries(rows).map(([name, title]) =>
      line([title, ...columns.map(({ measures }) => renderShare(measures[name as keyof Measures]))]),
    ),
  ].join('\n');
}

function renderShare({ count, of }: Share): string {
  return of === 0 ? 'none' : `${Math.floor((100 * count) / of)} % of ${of}`;
}

/** The rows in which another document has a larger share than the gateway's. */
function listRowsBehind(columns: readonly Column[]): string[] {
  const [gateway, , ...providerColumns] = columns;
  if (gateway === undefined) return [];
  const ratio = ({ count, of }: Share) => (of === 0 ? 0 : count / of);
  return Object.entries(rows).flatMap(([name, title]) =>
    providerColumns
      .filter(
        ({ measures }) =>
          ratio(measures[name as keyof Measures]) > ratio(gateway.measures[name as keyof Measures]),
      )
      .map((other) => `${title}, by ${other.title}`),
  );
}

function writeIntoPage(text: string): void {
  const previousPage = readFileSync(page, 'utf8');
  const pattern = /<!-- table -->[\s\S]*<!-- \/table -->/;
  if (!pattern.test(previousPage)) throw new Error(`${page} has no place for the table`);
  writeFileSync(
    page,
    previousPage.replace(pattern, () => `<!-- table -->\n${text}\n<!-- /table -->`),
  );
}
