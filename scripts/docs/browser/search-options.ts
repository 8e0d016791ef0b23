// The entries and options of the portal's search index. An index can only be read
// with the options that it was written with, so the build and the pages share them.

import type { Options } from 'minisearch';
import { indexedTerms, stem } from './search-terms.ts';

/** One entry of the index: its address and the text that a result shows. */
export interface SearchEntry {
  id: number;
  /** Relative to the portal. */
  address: string;
  title: string;
  page: string;
  text: string;
  excerpt: string;
}

export const searchOptions: Options<SearchEntry> = {
  fields: ['title', 'page', 'text'],
  storeFields: ['address', 'title', 'page', 'excerpt'],
  processTerm: indexedTerms,
  searchOptions: {
    boost: { title: 4, page: 2 },
    boostDocument: (_id, _term, fields) =>
      weightOf(String(fields?.['address'])) * (fields?.['title'] === fields?.['page'] ? 1.25 : 1),
    // Synonyms are in the index. Added to a query, they would be further terms that must match.
    processTerm: stem,
    prefix: (term) => term.length > 1,
    fuzzy: (term) => (term.length > 5 ? 0.15 : 0),
    combineWith: 'AND',
  },
};

/**
 * Ranks guides first: they explain what operations, examples and error codes only show.
 */
function weightOf(address: string): number {
  if (address.startsWith('guides/error-codes.html')) return 0.8;
  if (address.startsWith('guides/') || address.startsWith('start.html')) return 1.4;
  return address.startsWith('operations/') ? 1 : 0.6;
}
