// Assembles the files of the portal. A broken link fails the build.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { build } from 'rolldown';
import { operationsOf } from '../generate/document.ts';
import type { SampledOperation } from '../generate/samples.ts';
import { surfaces } from '../generate/surfaces.ts';
import type { SearchEntry } from './browser/search-options.ts';
import { groupGuides } from './guide-order.ts';
import { writeIndexBody } from './index-page.ts';
import { type NavigationGroup, writePage } from './layout.ts';
import { findBrokenLinks } from './links.ts';
import { firstSentence, markdownPage, writeLlmsText } from './llms-text.ts';
import { renderMarkdown } from './markdown.ts';
import { missingPage, writeMissingPage } from './missing-page.ts';
import { collectOperationPages, type OperationPages } from './operation-pages.ts';
import { type PictureFile, pictureWriter, readPictures } from './pictures.ts';
import { buildReference, readReference, type ReferencePage } from './reference-page.ts';
import { writeSearchIndex } from './search-index.ts';
import { readStyle } from './styles.ts';
import { hasMarkdown, internals, internalsPage, renderPages, type RenderedPage } from './text-pages.ts';

const root = path.join(import.meta.dirname, '../..');
const operationsHeading = { depth: 2, text: 'Operations on this page', anchor: 'operations-on-this-page' };

export type PortalFiles = ReadonlyMap<string, string | Uint8Array>;

/** Where the build reads and writes besides the sources of the portal itself. */
export interface BuildOptions {
  /** The folder with README.md, `docs` and `examples`. */
  folder: string;
  /** An empty folder for Redoc. */
  staging: string;
  /** Whether the samples of the guides are type-checked. */
  checksTypes: boolean;
}

/**
 * Returns the files by their paths in the portal. The cheapest checks run first: texts, then links, then
 * types; the reference pages are built meanwhile.
 */
export async function buildPortal({ folder, staging, checksTypes }: BuildOptions): Promise<PortalFiles> {
  const references = surfaces.map(readReference);
  const pictures = readPictures(folder);
  const { pages, checkSampleTypes } = renderPages(folder, references, pictures);
  const operations = collectOperations(pages, references);
  const navigation = navigate(pages, references);
  const ownPages = writeOwnPages({ pages, operations, navigation, references, pictures });
  checkLinks(ownPages, references, pictures);
  const builds = Promise.all(references.map((reference) => buildReference(reference, staging)));
  // The await below throws the failure. Without this handler, a failure before that would be an unhandled
  // rejection, which ends the process.
  builds.catch(() => {});
  if (checksTypes) checkSampleTypes();
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

interface PortalParts {
  pages: readonly RenderedPage[];
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

/** Writes a page with the operations that it shows below its text. */
function writeOwnPage(
  own: RenderedPage,
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

/** llms.txt, and the guides as Markdown, whose links lead to source files and not to pages of the portal. */
function writeTexts(
  pages: readonly RenderedPage[],
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

function collectOperations(
  pages: readonly RenderedPage[],
  references: readonly ReferencePage[],
): OperationPages {
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

function navigate(pages: readonly RenderedPage[], references: readonly ReferencePage[]): NavigationGroup[] {
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

function sectionsOf({ page, title, sections }: RenderedPage): Omit<SearchEntry, 'id' | 'excerpt'>[] {
  return sections.map(({ anchor, heading, text }) => ({
    address: anchor === '' ? page : `${page}#${anchor}`,
    title: heading || title,
    page: title,
    text,
  }));
}

async function bundleScript(): Promise<string> {
  const { output } = await build({
    input: path.join(import.meta.dirname, 'browser/portal.ts'),
    write: false,
    transform: { target: 'es2022' },
    output: { format: 'iife', minify: true, comments: false },
    logLevel: 'warn',
  });
  return output[0].code;
}
