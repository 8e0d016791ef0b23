// The full-text index of `local/guide`: the documentation, split into sections at its headings.
import MiniSearch from 'minisearch';
import { listFiles, readText } from '../../../../kernel/assets.ts';
import { isMissing } from '../../../../kernel/file-errors.ts';

export interface Section {
  id: number;
  /** Path below the documentation folder, such as `guides/local-models.md`. */
  file: string;
  page: string;
  /** The section's heading; the page's title for the text before the first section. */
  heading: string;
  body: string;
}

export interface SearchResult {
  section: Section;
  score: number;
}

export interface GuideIndex {
  /** Best matches first; empty when less than half of the question's words match. */
  search(question: string): SearchResult[];
  /** Titles of all pages. */
  pages(): string[];
}

const stopWords = new Set(
  (
    'a about an and are as at be been but by can could did do does for from get had has have how i if in into is it its me my no not of on or our ' +
    'should so some tell than that the their them then there these they this to us was we were what ' +
    'when where which who why will with would you your please'
  ).split(' '),
);

/** Reads all Markdown files below the folder; a missing folder is an empty documentation. */
export async function buildGuideIndex(directory: string): Promise<GuideIndex> {
  const names = await listFiles(directory).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  const files = names.filter((name) => name.endsWith('.md')).sort();
  const sections: Section[] = [];
  for (const name of files) {
    for (const section of sectionsOf(await readText(`${directory}/${name}`), name))
      sections.push({ id: sections.length, ...section });
  }
  const index = new MiniSearch<Section>({
    fields: ['heading', 'page', 'body'],
    extractField: (section, field) =>
      field === 'id' ? section.id : plainWords(String(section[field as keyof Section])),
    processTerm: (term) => {
      const lowerTerm = term.toLowerCase();
      return stopWords.has(lowerTerm) ? null : stem(lowerTerm);
    },
    searchOptions: {
      boost: { heading: 3, page: 2 },
      prefix: (term) => term.length > 3,
      fuzzy: (term) => (term.length > 5 ? 0.15 : 0),
    },
  });
  // Index in chunks, so that no turn of the event loop takes long.
  await index.addAllAsync(sections, { chunkSize: 5 });
  return {
    search(question) {
      const terms = termsOf(question);
      // At least half of the terms must match: a single common word is not enough.
      const minMatches = Math.max(1, Math.ceil(terms.length / 2));
      return index.search(terms.join(' ')).flatMap(({ id, score, queryTerms }) => {
        const section = sections[id as number];
        return section !== undefined && queryTerms.length >= minMatches ? [{ section, score }] : [];
      });
    },
    pages: () => [...new Set(sections.map((section) => section.page))],
  };
}

// These limits keep one search below a few milliseconds; the cost of a fuzzy term grows with its length.
const maxQuestionLength = 1_000;
const maxTerms = 32;
const maxTermLength = 32;

/** The distinct words of the question without stop words. */
function termsOf(question: string): string[] {
  const terms =
    plainWords(question.slice(0, maxQuestionLength))
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? [];
  return [...new Set(terms.filter((term) => !stopWords.has(term) && term.length <= maxTermLength))].slice(
    0,
    maxTerms,
  );
}

function sectionsOf(markdown: string, file: string): Omit<Section, 'id'>[] {
  const sections: Omit<Section, 'id'>[] = [];
  let page = file.replace(/^.*\//, '').replace(/\.md$/, '');
  let section = { heading: page, lines: [] as string[] };
  const closeSection = () => {
    // Comments in Markdown are not documentation.
    const body = section.lines
      .join('\n')
      .replace(/<!--[\s\S]*?-->\n?/g, '')
      .trim();
    if (body !== '') sections.push({ file, page, heading: section.heading, body });
  };
  let isInCodeBlock = false;
  for (const line of markdown.split(/\r?\n/)) {
    if (/^\s*(```|~~~)/.test(line)) isInCodeBlock = !isInCodeBlock;
    // In a code block, # begins a comment and not a heading.
    const [, marks = '', title = ''] = (isInCodeBlock ? null : /^(#{1,4})\s+(.+?)\s*#*\s*$/.exec(line)) ?? [];
    if (marks === '') {
      section.lines.push(line);
      continue;
    }
    closeSection();
    if (marks.length === 1) page = title;
    section = { heading: title, lines: [] };
  }
  closeSection();
  return sections;
}

/** Writes "log in" and "set up" as one word, since "log" and "set" alone would match other sections. */
function plainWords(text: string): string {
  return text
    .replace(/\b(?:log|sign)(?:ging|ged|s)?[ -]in(?:to)?\b/gi, 'login')
    .replace(/\bset[ -]up\b/gi, 'setup');
}

/** A minimal English stemmer: `tokens` matches `token`, and `streaming` matches `stream`. */
function stem(term: string): string {
  if (term.length > 5 && term.endsWith('ing')) return term.slice(0, -3);
  if (term.length > 4 && term.endsWith('ies')) return `${term.slice(0, -3)}y`;
  if (term.length > 4 && term.endsWith('ed')) return term.slice(0, -2);
  return term.length > 3 && term.endsWith('s') && !term.endsWith('ss') ? term.slice(0, -1) : term;
}
