// The pages of all operations and their guides as one set: the list of pages, their search entries,
// and the operations of each guide.

import { isAlias } from '../generate/aliases.ts';
import { type PlacedOperation, operationsOf, type Document } from '../generate/document.ts';
import type { Surface } from '../generate/surfaces.ts';
import type { SearchEntry } from './browser/search-options.ts';
import type { NavigationGroup } from './layout.ts';
import { type GuideText, mentions } from './operation-guides.ts';
import {
  operationItem,
  pageOfOperation,
  tagAnchor,
  tagOf,
  writeOperationBody,
  writeOperationIndex,
} from './operation-page.ts';

export interface DocumentedSurface {
  surface: Surface;
  document: Document;
  /** The reference page of the document. */
  reference: string;
}

interface OperationEntry extends DocumentedSurface {
  endpoint: PlacedOperation;
  page: string;
  guides: GuideText[];
}

export interface OperationPage {
  page: string;
  title: string;
  body: string;
  /** The links beside the page: the operations of its service and the other services. */
  navigation: NavigationGroup[];
  /** The servers to which its form sends requests; undefined without a form. */
  connections?: string;
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
    navigation: navigationOf(entry, entries),
    connections: entry.surface.name === 'gateway' ? "'self'" : "'self' http://127.0.0.1:* http://localhost:*",
  }));
  const index = {
    page: 'operations/index.html',
    title: 'Operations',
    body: writeOperationIndex(groupByTag(entries)),
    navigation: groupByTag(entries).map(({ surface, tags }) => serviceLinks(surface, [...tags.keys()])),
  };
  return {
    pages: [index, ...pages],
    search: entries.map(searchEntry),
    operationsOfGuide: (guide) => writeOperationsOfGuide(entries.filter((entry) => isShownBy(entry, guide))),
  };
}

/** The operation's anchor on the reference page. */
function operationAnchor(endpoint: PlacedOperation): string {
  return `#/${tagOf(endpoint)}/${endpoint.id.toLowerCase()}`;
}

function entriesOf(
  described: DocumentedSurface,
  surfaces: readonly DocumentedSurface[],
  guides: readonly GuideText[],
): OperationEntry[] {
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

function groupByTag(entries: readonly OperationEntry[]) {
  return [...Map.groupBy(entries, ({ surface }) => surface)].map(([surface, surfaceEntries]) => ({
    surface,
    tags: Map.groupBy(surfaceEntries, ({ endpoint }) => tagOf(endpoint)),
  }));
}

function navigationOf(entry: OperationEntry, entries: readonly OperationEntry[]): NavigationGroup[] {
  const group = groupByTag(entries).find(({ surface }) => surface === entry.surface);
  const tag = tagOf(entry.endpoint);
  const links = (group?.tags.get(tag) ?? []).map(({ page, endpoint }) => ({
    page,
    title: endpoint.operation.summary ?? endpoint.id,
  }));
  const otherTags = [...(group?.tags.keys() ?? [])].filter((name) => name !== tag);
  const documents = [...new Set(entries.map(({ surface }) => surface))].map((surface) => ({
    page: `operations/index.html#${surface.name}`,
    title: surface.title,
  }));
  return [
    { title: tag, links },
    serviceLinks(entry.surface, otherTags),
    { title: 'All operations', links: documents },
  ];
}

function serviceLinks(surface: Surface, tags: readonly string[]): NavigationGroup {
  return {
    title: surface.title,
    links: tags.map((tag) => ({ page: `operations/index.html#${tagAnchor(surface, tag)}`, title: tag })),
  };
}

function searchEntry({ endpoint, page, surface }: OperationEntry): Omit<SearchEntry, 'id' | 'excerpt'> {
  const { id, method, path, operation } = endpoint;
  const { summary = id, description = '' } = operation;
  return {
    address: page,
    title: summary,
    // The name weighs more than the text, so that a search for an operation finds its page first.
    page: `${surface.title}, ${id}`,
    text: `${method.toUpperCase()} ${path} ${description}`,
  };
}

function isShownBy({ guides }: OperationEntry, guide: string): boolean {
  return guides.some(({ page }) => page === guide);
}

function writeOperationsOfGuide(entries: readonly OperationEntry[]): string {
  if (entries.length === 0) return '';
  const items = entries.map(({ page, endpoint }) => operationItem(`../${page}`, endpoint));
  const heading = '<h2 id="operations-on-this-page">Operations on this page</h2>';
  return `${heading}\n<ul class="operations">${items.join('')}</ul>\n`;
}
