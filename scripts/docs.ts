// Builds the portal into build/docs: guides, operations, error codes and examples as our own pages,
// and a Redoc page for each document of the contract. Pages load nothing from other hosts: a
// content security policy enforces it in the browser, and a text search checks it here. A broken
// link, a sample that differs from its example, or an error code without a text fails the build.
//
//   node scripts/docs.ts [--output DIR] [--update] [--no-check] [--if-changed]
//
// --update rewrites the samples of the guides. --no-check leaves out the type check of the samples, for
// a server that builds the portal at its first request. --if-changed does nothing where the portal was
// built from the present sources.

import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { build } from 'rolldown';
import { groupGuides } from './docs/guide-order.ts';
import { type DocumentEntry, writeIndexBody } from './docs/index-page.ts';
import { type NavigationGroup, writeHeader, writePage } from './docs/layout.ts';
import { findBrokenLinks } from './docs/links.ts';
import { firstSentence, markdownPage, writeLlmsText } from './docs/llms-text.ts';
import { type RenderedMarkdown, renderMarkdown } from './docs/markdown.ts';
import { missingPage, writeMissingPage } from './docs/missing-page.ts';
import { collectOperationPages, type OperationPages } from './docs/operation-pages.ts';
import { type PictureFile, pictureWriter, readPictures } from './docs/pictures.ts';
import { writeProblemCodes } from './docs/problem-codes.ts';
import { checkTypes, fencesOf } from './docs/sample-types.ts';
import { checkSamples, readSample, updateSamples } from './docs/samples.ts';
import { findForeignAssets, sealPage } from './docs/seal.ts';
import type { SearchEntry } from './docs/browser/search-options.ts';
import { writeSearchIndex } from './docs/search-index.ts';
import { type Document, operationsOf } from './generate/document.ts';
import { digestFiles, writeIfChanged } from './generate/files.ts';
import type { SampledOperation } from './generate/samples.ts';
import { type Surface, surfaces } from './generate/surfaces.ts';
import { packageVersion, runRedocly } from './generate/tools.ts';

const root = path.join(import.meta.dirname, '..');
const { values: options } = parseArgs({
  options: {
    output: { type: 'string', default: path.join(root, 'build/docs') },
    root: { type: 'string', default: root },
    update: { type: 'boolean', default: false },
    check: { type: 'boolean', default: true },
    'if-changed': { type: 'boolean', default: false },
  },
  allowNegative: true,
});

interface DescribedDocument extends Document {
  info: { title: string; version: string; summary?: string };
}

/** A document of the contract with the page of Redoc that shows it. */
interface ReferencePage {
  surface: Surface;
  bundle: string;
  text: string;
  document: DescribedDocument;
  entry: DocumentEntry;
}

/** One of our own pages before the layout is added. */
interface Page extends RenderedMarkdown {
  page: string;
  source: string;
  markdown: string;
}

/** Documents beside the guides that the portal shows too. */
const internals = ['docs/architecture.md', 'docs/glossary.md', 'docs/benchmarks.md'];
const internalsPage = (source: string): string => `${path.basename(source, '.md')}.html`;

const operationsHeading = { depth: 2, text: 'Operations on this page', anchor: 'operations-on-this-page' };

const startedMs = performance.now();
try {
  await main(path.resolve(options.root), path.resolve(options.output));
} catch (error) {
  console.error(`docs: ${(error as Error).message}`);
  process.exitCode = 1;
}

async function main(folder: string, output: string): Promise<void> {
  mkdirSync(path.join(root, 'build'), { recursive: true });
  if (options.update) updateGuides(folder);
  const stamp = `${output}.stamp`;
  const inputs = inputDigest(folder);
  if (options['if-changed'] && isCurrent(output, { stamp, inputs })) {
    console.log('docs: the portal is up to date');
    return;
  }
  const staging = mkdtempSync(path.join(root, 'build/docs-'));
  try {
    publish(output, await buildPortal(folder, staging));
    writeIfChanged(stamp, inputs);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
  console.log(
    `docs: ${path.relative(process.cwd(), output) || '.'} (${Math.round(performance.now() - startedMs)} ms)`,
  );
}

/** Whether the portal exists and was built from these inputs. */
function isCurrent(output: string, { stamp, inputs }: { stamp: string; inputs: string }): boolean {
  return existsSync(output) && existsSync(stamp) && readFileSync(stamp, 'utf8') === inputs;
}

type PortalFiles = ReadonlyMap<string, string | Uint8Array>;

/**
 * Returns the files by their paths in the portal. The cheapest checks run first: texts, then links, then
 * types; the reference pages are built meanwhile.
 */
async function buildPortal(folder: string, staging: string): Promise<PortalFiles> {
  const references = surfaces.map(readReference);
  const pictures = readPictures(folder);
  const { pages, checkSampleTypes } = renderPages(folder, references, pictures);
  const operations = collectOperations(pages, references);
  const navigation = navigate(pages, references);
  const ownPages = writeOwnPages({ pages, operations, navigation, references, pictures });
  checkLinks(ownPages, references, pictures);
  const builds = Promise.all(references.map((reference) => buildReference(reference, staging)));
  // The await below throws the failure; until then an unhandled rejection would end the process.
  builds.catch(() => {});
  if (options.check) checkSampleTypes();
  return new Map<string, string | Uint8Array>([
    ...ownPages,
    ...(await builds).flat(),
    ...[...pictures].map(([name, { bytes }]): [string, Uint8Array] => [name, bytes]),
    ...writeTexts(pages, navigation, references),
    ['portal.css', `${readStyle('header.css')}${readStyle('portal.css')}`],
    ['portal.js', await bundleScript()],
    [missingPage, writeMissingPage(navigation)],
    ['search-index.js', writeSearchIndex([...pages.flatMap(sectionsOf), ...operations.search])],
    // The JSON schema with which editors validate a project's declaration; they download it from here.
    ['townhall.schema.json', readFileSync(path.join(root, 'src/deploy/townhall.schema.json'), 'utf8')],
  ]);
}

function readStyle(name: string): string {
  return readFileSync(path.join(import.meta.dirname, 'docs', name), 'utf8');
}

interface PortalParts {
  pages: readonly Page[];
  operations: OperationPages;
  navigation: NavigationGroup[];
  references: readonly ReferencePage[];
  pictures: ReadonlyMap<string, PictureFile>;
}

function writeOwnPages({ pages, operations, navigation, references, pictures }: PortalParts) {
  const descriptions = new Map(pages.map(({ page, markdown }) => [page, firstSentence(markdown)]));
  const firstCall = operationsOf(references[0]?.document ?? {}).find(({ id }) => id === 'ai.generateText');
  const body = writeIndexBody({
    entries: references.map(({ entry }) => entry),
    guides: navigation.filter(({ title }) => title !== 'Reference'),
    descriptions,
    samples: (firstCall?.operation as SampledOperation | undefined)?.['x-codeSamples'] ?? [],
    picture: pictureWriter(pictures, 'index.html')(
      'docs/pictures/console.webp',
      'A conversation in the console',
    ),
  });
  const guides = navigation.filter(({ title }) => title !== 'Reference').flatMap(({ links }) => links);
  return new Map<string, string>([
    [
      'index.html',
      writePage({ page: 'index.html', title: 'Townhall', headings: [], body, navigation, kind: 'home' }),
    ],
    ...pages.map((page): [string, string] => [
      page.page,
      writeOwnPage(page, { operations, navigation, guides, description: descriptions.get(page.page) }),
    ]),
    ...operations.pages.map((page): [string, string] => [
      page.page,
      writePage({ ...page, headings: [], kind: 'wide' }),
    ]),
  ]);
}

function checkLinks(
  pages: ReadonlyMap<string, string>,
  references: readonly ReferencePage[],
  pictures: ReadonlyMap<string, PictureFile>,
): void {
  const brokenLinks = findBrokenLinks(
    pages,
    new Set([
      ...references.flatMap(({ entry }) => [entry.page, entry.document]),
      ...pictures.keys(),
      ...[...pages.keys()].map(markdownPage),
      'portal.css',
      'portal.js',
      'search-index.js',
      'llms.txt',
    ]),
  );
  if (brokenLinks.length > 0) throw new Error(`broken links:\n  ${brokenLinks.join('\n  ')}`);
}

/** llms.txt and the guides as Markdown, whose links name sources and not pages of the portal. */
function writeTexts(
  pages: readonly Page[],
  navigation: NavigationGroup[],
  references: readonly ReferencePage[],
): [string, string][] {
  const texts = pages.filter(hasMarkdown);
  const entries = references.map(({ entry }) => entry);
  return [
    ...texts.map(({ page, markdown }): [string, string] => [markdownPage(page), markdown]),
    ['llms.txt', writeLlmsText(texts, navigation, entries)],
  ];
}

function hasMarkdown({ page }: Page): boolean {
  return page.startsWith('guides/') || page === 'start.html';
}

function inputDigest(folder: string): string {
  const bundles = surfaces.map(({ name }) => `src/contract/${name}/bundle.json`);
  const scripts = ['scripts/docs.ts', 'scripts/docs', 'src/deploy/townhall.schema.json'];
  const tools = ['@redocly/cli', 'highlight.js', 'marked', 'minisearch'];
  const versions = tools.map((name) => `${name}@${packageVersion(name)}`);
  return digestFiles(
    root,
    [...scripts, ...bundles],
    [...versions, digestFiles(folder, ['docs', 'examples', 'README.md'])],
  );
}

function renderPages(
  folder: string,
  references: readonly ReferencePage[],
  pictures: ReadonlyMap<string, PictureFile>,
): { pages: Page[]; checkSampleTypes: () => void } {
  const sources = readSources(folder);
  const { guides, readme, programs, examples } = sources;
  const documentation = new Map([...guides, ['README.md', readme]]);
  refuse(
    [...documentation].flatMap(([name, markdown]) =>
      checkSamples(markdown, path.join(folder, 'examples')).map(
        ({ line, message }) => `${name}:${line}: ${message}`,
      ),
    ),
  );
  const pageOf = pageFinder(sources);
  const readDiagram = (target: string): string => readFileSync(path.join(folder, target), 'utf8');
  const render = (markdown: string, source: string, page: string): Page => ({
    page,
    source,
    markdown,
    ...renderMarkdown(markdown, {
      source,
      page,
      pageOf,
      readDiagram,
      writePicture: pictureWriter(pictures, page),
    }),
  });
  // The navigation replaces this section.
  const [introduction = ''] = readme.split(/^## Where to go next$/m);
  const problemCodes = writeProblemCodes(references.map(({ document }) => document));
  const pages = [
    ...[...guides].map(([source, markdown]) =>
      render(markdown, source, `guides/${path.basename(source, '.md')}.html`),
    ),
    render(introduction.replace(/^# .*$/m, '# What it is'), 'README.md', 'start.html'),
    render(problemCodes, 'docs/guides/error-codes.md', 'guides/error-codes.html'),
    ...internals.map((name) =>
      render(readFileSync(path.join(folder, name), 'utf8'), name, internalsPage(name)),
    ),
    render(writeExampleList(examples), 'examples/README.md', 'examples/index.html'),
    ...examples.map((name) =>
      render(writeExample(folder, name), `examples/${name}`, `examples/${name}.html`),
    ),
  ];
  return { pages, checkSampleTypes: () => checkAllTypes(folder, documentation, programs) };
}

interface Sources {
  /** The texts of the guides by their paths. */
  guides: ReadonlyMap<string, string>;
  readme: string;
  /** All programs in `examples`. */
  programs: readonly string[];
  /** The programs with a page of their own; the samples of operations appear on the operations' pages. */
  examples: readonly string[];
}

function readSources(folder: string): Sources {
  const guides = readdirSync(path.join(folder, 'docs/guides')).filter((name) => name.endsWith('.md'));
  const programs = readdirSync(path.join(folder, 'examples'), { recursive: true, encoding: 'utf8' }).filter(
    (name) => /\.(?:tsx?|py|sh|json)$/.test(name) && !name.includes('node_modules'),
  );
  return {
    guides: new Map(
      guides.map((name) => [
        `docs/guides/${name}`,
        readFileSync(path.join(folder, 'docs/guides', name), 'utf8'),
      ]),
    ),
    readme: readFileSync(path.join(folder, 'README.md'), 'utf8'),
    programs,
    examples: programs.filter((name) => !name.startsWith(`operations${path.sep}`)),
  };
}

/** The page of the portal that shows a file of the repository; undefined for files without one. */
function pageFinder({ guides, examples }: Sources): (target: string) => string | undefined {
  return (target) => {
    if (target === 'README.md') return 'start.html';
    if (internals.includes(target)) return internalsPage(target);
    if (/^(?:\.\/)?examples\/?$/.test(target)) return 'examples/index.html';
    const [, guide] = /^docs\/guides\/(.+)\.md$/.exec(target) ?? [];
    if (guide !== undefined)
      return guide === 'error-codes' || guides.has(target) ? `guides/${guide}.html` : undefined;
    const [, example] = /^examples\/(.+)$/.exec(target) ?? [];
    return example !== undefined && examples.includes(example) ? `examples/${example}.html` : undefined;
  };
}

function writeExampleList(examples: readonly string[]): string {
  const list = examples.map((name) => `- [${name}](${name})`).join('\n');
  return `# Examples\nWhole programs, typechecked with everything else.\n\n${list}\n`;
}

function writeExample(folder: string, name: string): string {
  const fence = '```';
  const sample = readSample(path.join(folder, 'examples', name));
  return `# ${name}\n\n${fence}${path.extname(name).slice(1)}\n${sample}\n${fence}\n`;
}

function checkAllTypes(
  folder: string,
  texts: ReadonlyMap<string, string>,
  examples: readonly string[],
): void {
  const clients = ['gateway', 'agent', 'react']
    .map((client) => `clients/${client}/README.md`)
    .map((name) => [name, readFileSync(path.join(root, name), 'utf8')] as const);
  const fences = [...texts, ...clients].flatMap(([name, markdown]) => fencesOf(markdown, name));
  const programs = examples
    .filter((name) => /\.tsx?$/.test(name))
    .map((name) => path.join(folder, 'examples', name));
  refuse(checkTypes(root, { fences, examples: programs }));
}

/** Writes a page with the operations that it shows below its text. */
function writeOwnPage(
  own: Page,
  {
    operations,
    navigation,
    guides,
    description,
  }: {
    operations: OperationPages;
    navigation: NavigationGroup[];
    /** The guides in the order of the navigation. */
    guides: readonly { page: string; title: string }[];
    description: string | undefined;
  },
): string {
  const { page, title, headings, html } = own;
  const operationList = page.startsWith('guides/') ? operations.operationsOfGuide(page) : '';
  const position = guides.findIndex((guide) => guide.page === page);
  return writePage({
    page,
    title,
    ...(description === undefined || description === '' ? {} : { description }),
    headings: operationList === '' ? headings : [...headings, operationsHeading],
    body: `${html}${operationList}`,
    navigation,
    footer: {
      ...(position < 0 ? {} : { previous: guides[position - 1], next: guides[position + 1] }),
      markdown: hasMarkdown(own) ? markdownPage(page) : undefined,
    },
  });
}

function collectOperations(pages: readonly Page[], references: readonly ReferencePage[]): OperationPages {
  const codes = pages.find(({ page }) => page === 'guides/error-codes.html')?.headings ?? [];
  return collectOperationPages(
    references.map(({ surface, document, entry }) => ({ surface, document, reference: entry.page })),
    {
      guides: pages.filter(({ page }) => page.startsWith('guides/') && page !== 'guides/error-codes.html'),
      knownCodes: new Set(codes.map(({ text }) => text)),
      render: (markdown, page) =>
        renderMarkdown(markdown, {
          source: 'openapi/openapi.yaml',
          page,
          // Links of the documents go to tags of their own reference page.
          pageOf: () => undefined,
          readDiagram: () => '',
          writePicture: () => '',
        }).html,
    },
  );
}

function refuse(problems: readonly string[]): void {
  if (problems.length > 0) throw new Error(`samples:\n  ${problems.join('\n  ')}`);
}

function navigate(pages: readonly Page[], references: readonly ReferencePage[]): NavigationGroup[] {
  const titles = new Map(pages.map(({ page, title }) => [page, title]));
  const guides = pages
    .filter(({ page }) => /^(?:start|guides\/.+)\.html$/.test(page))
    .map(({ page }) => page);
  return [
    ...groupGuides(guides).map(({ title, pages: names }) => ({
      title,
      links: names.map((page) => ({ page, title: titles.get(page) ?? page })),
    })),
    {
      title: 'Reference',
      links: [
        { page: 'operations/index.html', title: 'Operations' },
        ...references.map(({ entry }) => ({ page: entry.page, title: entry.title })),
        { page: 'guides/error-codes.html', title: 'Error codes' },
        { page: 'examples/index.html', title: 'Examples' },
        ...internals.map((name) => ({
          page: internalsPage(name),
          title: titles.get(internalsPage(name)) ?? name,
        })),
      ],
    },
  ];
}

function sectionsOf({ page, title, sections }: Page): Omit<SearchEntry, 'id' | 'excerpt'>[] {
  return sections.map(({ anchor, heading, text }) => ({
    address: anchor === '' ? page : `${page}#${anchor}`,
    title: heading || title,
    page: title,
    text,
  }));
}

function readReference(surface: Surface): ReferencePage {
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

/** The reference page, and beside it the document itself for tools. */
async function buildReference(
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

async function bundleScript(): Promise<string> {
  const { output } = await build({
    input: path.join(import.meta.dirname, 'docs/browser/portal.ts'),
    write: false,
    transform: { target: 'es2022' },
    output: { format: 'iife', minify: true, comments: false },
    logLevel: 'warn',
  });
  return output[0].code;
}

function updateGuides(folder: string): void {
  const files = [
    ...readdirSync(path.join(folder, 'docs/guides')).map((name) => path.join(folder, 'docs/guides', name)),
    path.join(folder, 'README.md'),
  ];
  for (const file of files)
    if (file.endsWith('.md'))
      writeIfChanged(file, updateSamples(readFileSync(file, 'utf8'), path.join(folder, 'examples')));
}

/** Writes changed files and removes pages that no longer exist. */
function publish(output: string, files: PortalFiles): void {
  for (const [name, text] of files) {
    const foreignAssets = typeof text === 'string' && name.endsWith('.html') ? findForeignAssets(text) : [];
    if (foreignAssets.length > 0)
      throw new Error(`${name} would ask another host for ${foreignAssets.join(', ')}`);
  }
  for (const [name, text] of files) {
    mkdirSync(path.dirname(path.join(output, name)), { recursive: true });
    writeIfChanged(path.join(output, name), text);
  }
  for (const entry of readdirSync(output, { recursive: true, withFileTypes: true })) {
    const name = path.relative(output, path.join(entry.parentPath, entry.name)).split(path.sep).join('/');
    if (entry.isFile() && !files.has(name)) rmSync(path.join(output, name));
  }
}
