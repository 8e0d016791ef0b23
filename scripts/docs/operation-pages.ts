// The pages of all operations and their guides as one set: the list of pages, their search entries,
// and the operations of each guide.

import { isAlias } from '../generate/aliases.ts';
import { type PlacedOperation, operationsOf, type Document } from '../generate/document.ts';
import type { Surface } from '../generate/surfaces.ts';
import type { SearchEntry } from './browser/search-options.ts';
import { type GuideText, mentions } from './operation-guides.ts';
import { methodTag, pageOfOperation, writeOperationBody, writeOperationIndex } from './operation-page.ts';
import { escapeHtml } from './text.ts';

export interface DocumentedSurface {
  surface: Surface;
  document: Document;
  /** The reference page of the document. */
  reference: string;
}

interface Entry extends DocumentedSurface {
  endpoint: PlacedOperation;
  page: string;
  guides: GuideText[];
}

export interface OperationPage {
  page: string;
  title: string;
  body: string;
}

export interface OperationPages {
  pages: OperationPage[];
  search: Omit<SearchEntry, 'id' | 'excerpt'>[];
  /** HTML that follows a guide's text; empty without operations. */
  operationsOfGuide: (guide: string) => string;
}

/** `render` renders Markdown of the contract on a page. */
export function collectOperationPages(
  surfaces: readonly DocumentedSurface[],
  options: {
    guides: readonly GuideText[];
    knownCodes: ReadonlySet<string>;
    render: (markdown: string, page: string) => string;
  },
): OperationPages {
  const entries = surfaces.flatMap((surface) => entriesOf(surface, surfaces, options.guides));
  const pages = entries.map((entry) => ({
    page: entry.page,
    title: entry.endpoint.operation.summary ?? entry.endpoint.id,
    body: writeOperationBody({
      ...entry,
      knownCodes: options.knownCodes,
      reference: `${entry.reference}${operationAnchor(entry.endpoint)}`,
      render: (markdown) => options.render(markdown, entry.page),
    }),
  }));
  const index = {
    page: 'operations/index.html',
    title: 'Operations',
    body: writeOperationIndex(groupByTag(entries)),
  };
  return {
    pages: [index, ...pages],
    search: entries.map(searchEntry),
    operationsOfGuide: (guide) => writeOperationsOfGuide(entries.filter((entry) => isShownBy(entry, guide))),
  };
}

const tagOf = ({ operation }: PlacedOperation): string => (operation as { tags?: string[] }).tags?.[0] ?? '';

/** The operation's anchor on the reference page. */
function operationAnchor(endpoint: PlacedOperation): string {
  return `#/${tagOf(endpoint)}/${endpoint.id.toLowerCase()}`;
}

function entriesOf(
  described: DocumentedSurface,
  surfaces: readonly DocumentedSurface[],
  guides: readonly GuideText[],
): Entry[] {
  const { surface, document } = described;
  const base = surface.name.endsWith('-classic')
    ? surfaces.find((candidate) => candidate.surface.name === surface.name.replace('-classic', ''))
    : undefined;
  const baseOperations = base === undefined ? [] : operationsOf(base.document);
  return (
    operationsOf(document)
      // The page of the original lists its further paths.
      .filter(({ operation }) => !isAlias(operation))
      .filter((endpoint) => !baseOperations.some((candidate) => isSameOperation(candidate, endpoint)))
      .map((endpoint) => ({
        ...described,
        endpoint,
        page: pageOfOperation(surface, endpoint.id),
        guides: guides.filter(({ markdown }) => mentions(markdown, endpoint, surface.name !== 'gateway')),
      }))
  );
}

// Operations that are equal in both variants of the agent have one page.
function isSameOperation(operation: PlacedOperation, candidate: PlacedOperation): boolean {
  const text = ({ id, method, path, operation: definition }: PlacedOperation) =>
    JSON.stringify([id, method, path, { ...definition, 'x-codeSamples': undefined }]);
  return text(operation) === text(candidate);
}

function groupByTag(entries: readonly Entry[]) {
  return [...Map.groupBy(entries, ({ surface }) => surface.title)].map(([title, surfaceEntries]) => ({
    title,
    tags: Map.groupBy(surfaceEntries, ({ endpoint }) => tagOf(endpoint)),
  }));
}

function searchEntry({ endpoint, page, surface }: Entry): Omit<SearchEntry, 'id' | 'excerpt'> {
  const { id, method, path, operation } = endpoint;
  const { summary = id, description = '' } = operation as { summary?: string; description?: string };
  return {
    address: page,
    title: summary,
    // The name weighs more than the text, so that a search for an operation finds its page first.
    page: `${surface.title}, ${id}`,
    text: `${method.toUpperCase()} ${path} ${description}`,
  };
}

function isShownBy({ guides }: Entry, guide: string): boolean {
  return guides.some(({ page }) => page === guide);
}

function writeOperationsOfGuide(entries: readonly Entry[]): string {
  if (entries.length === 0) return '';
  const items = entries.map(
    ({ page, endpoint: { method, path, id, operation } }) =>
      `<li><a href="../${escapeHtml(page)}">${escapeHtml(operation.summary ?? id)}</a> <span class="endpoint">${methodTag(method)} <code>${escapeHtml(path)}</code></span></li>`,
  );
  return `<h2 id="operations-on-this-page">Operations on this page</h2>\n<ul class="operations">${items.join('')}</ul>\n`;
}
