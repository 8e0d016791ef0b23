// The index of the search, made when the portal is built and read by the pages: one entry a section of a page, and one
// an operation. Both sides share the options, since an index is read only with those it was written with.

import MiniSearch, { type Options } from 'minisearch';

/** What is found: where it is and what is shown of it. */
export interface Found {
  id: number;
  /** Relative to the portal. */
  address: string;
  title: string;
  page: string;
  text: string;
  excerpt: string;
}

export const searchOptions: Options<Found> = {
  fields: ['title', 'page', 'text'],
  storeFields: ['address', 'title', 'page', 'excerpt'],
  searchOptions: {
    boost: { title: 4, page: 2 },
    prefix: (term) => term.length > 1,
    fuzzy: (term) => (term.length > 4 ? 0.15 : 0),
    combineWith: 'AND',
  },
};

/** The text of search-index.js. */
export function writeSearchIndex(entries: readonly Omit<Found, 'id' | 'excerpt'>[]): string {
  const index = new MiniSearch<Found>(searchOptions);
  index.addAll(entries.map((entry, id) => ({ ...entry, id, excerpt: entry.text.trim().slice(0, 110) })));
  return `globalThis.townhallSearch = ${JSON.stringify(JSON.stringify(index))};\n`;
}
