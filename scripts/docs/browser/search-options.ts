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
    // A synonym is in the index; a second term of a query would have to match as well.
    processTerm: stem,
    prefix: (term) => term.length > 1,
    fuzzy: (term) => (term.length > 5 ? 0.15 : 0),
    combineWith: 'AND',
  },
};

/**
 * A guide explains what an operation, a program or an error code shows, so it comes before them.
 */
function weightOf(address: string): number {
  if (address.startsWith('guides/error-codes.html')) return 0.8;
  if (address.startsWith('guides/') || address.startsWith('start.html')) return 1.4;
  return address.startsWith('operations/') ? 1 : 0.6;
}
