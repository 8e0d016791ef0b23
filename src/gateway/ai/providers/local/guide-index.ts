// The search behind `local/guide`: our documentation cut into sections by its headings, and an index over them.
import MiniSearch from 'minisearch';
import { listFiles, readText } from '../../../../kernel/assets.ts';

export interface Section {
  id: number;
  /** From the documentation's folder, such as `guides/local-models.md`. */
  file: string;
  page: string;
  /** The section's heading; that of the page for what stands before the first one below it. */
  heading: string;
  body: string;
}

export interface Found {
  section: Section;
  score: number;
}

export interface GuideIndex {
  /** The best sections first; none when the question's words are not in the documentation. */
  search(question: string): Found[];
  /** The titles of all pages. */
  pages(): string[];
}

// Words that are in every question and say nothing of what it is about.
const stopWords = new Set(
  (
    'a about an and are as at be been but by can could did do does for from get had has have how i if in into is it its me my no not of on or our ' +
    'should so some tell than that the their them then there these they this to us was we were what when where which who why will with would you your please'
  ).split(' '),
);

/** Reads all Markdown files below the folder; one that is not there is an empty documentation. */
export async function buildGuideIndex(directory: string): Promise<GuideIndex> {
  const names = await listFiles(directory).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
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
      const plain = term.toLowerCase();
      return stopWords.has(plain) ? null : stem(plain);
    },
    searchOptions: {
      boost: { heading: 3, page: 2 },
      prefix: (term) => term.length > 3,
      fuzzy: (term) => (term.length > 5 ? 0.15 : 0),
    },
  });
  // In chunks, between which other calls get their turn.
  await index.addAllAsync(sections, { chunkSize: 5 });
  return {
    search(question) {
      const terms = termsOf(question);
      // Half of what is asked about must be there: a single word in common is no answer.
      const needed = Math.max(1, Math.ceil(terms.length / 2));
      return index.search(terms.join(' ')).flatMap(({ id, score, queryTerms }) => {
        const section = sections[id as number];
        return section !== undefined && queryTerms.length >= needed ? [{ section, score }] : [];
      });
    },
    pages: () => [...new Set(sections.map((section) => section.page))],
  };
}

// A search of so much takes a few milliseconds: the fuzzy search of one term grows with its length.
const maximumQuestion = 1_000;
const maximumTerms = 32;
const maximumTerm = 32;

/** The different words of the question's beginning that say what it is about. */
function termsOf(question: string): string[] {
  const terms =
    plainWords(question.slice(0, maximumQuestion))
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? [];
  return [...new Set(terms.filter((term) => !stopWords.has(term) && term.length <= maximumTerm))].slice(
    0,
    maximumTerms,
  );
}

function sectionsOf(markdown: string, file: string): Omit<Section, 'id'>[] {
  const sections: Omit<Section, 'id'>[] = [];
  let page = file.replace(/^.*\//, '').replace(/\.md$/, '');
  let current = { heading: page, lines: [] as string[] };
  const close = () => {
    // Comments are for those who write the pages.
    const body = current.lines
      .join('\n')
      .replace(/<!--[\s\S]*?-->\n?/g, '')
      .trim();
    if (body !== '') sections.push({ file, page, heading: current.heading, body });
  };
  let fenced = false;
  for (const line of markdown.split(/\r?\n/)) {
    if (/^\s*(```|~~~)/.test(line)) fenced = !fenced;
    // A line in a code block that begins with # is a comment of the code.
    const [, marks = '', title = ''] = (fenced ? null : /^(#{1,4})\s+(.+?)\s*#*\s*$/.exec(line)) ?? [];
    if (marks === '') {
      current.lines.push(line);
      continue;
    }
    close();
    if (marks.length === 1) page = title;
    current = { heading: title, lines: [] };
  }
  close();
  return sections;
}

// One word however it is written, as the first part of it alone means something else.
function plainWords(text: string): string {
  return text
    .replace(/\b(?:log|sign)(?:ging|ged|s)?[ -]in(?:to)?\b/gi, 'login')
    .replace(/\bset[ -]up\b/gi, 'setup');
}

// Enough of English endings that `tokens` finds `token` and `streaming` finds `stream`.
function stem(term: string): string {
  if (term.length > 5 && term.endsWith('ing')) return term.slice(0, -3);
  if (term.length > 4 && term.endsWith('ies')) return `${term.slice(0, -3)}y`;
  if (term.length > 4 && term.endsWith('ed')) return term.slice(0, -2);
  return term.length > 3 && term.endsWith('s') && !term.endsWith('ss') ? term.slice(0, -1) : term;
}
