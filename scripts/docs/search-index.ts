// Writes the search index of the portal: one entry for each section of a page and for each operation.

import MiniSearch from 'minisearch';
import { type SearchEntry, searchOptions } from './browser/search-options.ts';

/** The text of search-index.js. */
export function writeSearchIndex(entries: readonly Omit<SearchEntry, 'id' | 'excerpt'>[]): string {
  const index = new MiniSearch<SearchEntry>(searchOptions);
  index.addAll(entries.map((entry, id) => ({ ...entry, id, excerpt: entry.text.trim().slice(0, 110) })));
  return `globalThis.townhallSearch = ${JSON.stringify(JSON.stringify(index))};\n`;
}
