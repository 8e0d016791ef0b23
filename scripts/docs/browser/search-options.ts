// The entries and options of the portal's search index. An index can only be read
// with the options that it was written with, so the build and the pages share them.

import type { Options } from 'minisearch';

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
  searchOptions: {
    boost: { title: 4, page: 2 },
    prefix: (term) => term.length > 1,
    fuzzy: (term) => (term.length > 4 ? 0.15 : 0),
    combineWith: 'AND',
  },
};
