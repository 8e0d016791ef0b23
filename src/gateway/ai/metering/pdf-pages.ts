// An upper bound for the pages of a PDF, since their price is held before a provider has counted
// them. Pages may be in compressed object streams, names may be escaped (`/P#61ge`) and the
// declared count may be too low, so the largest of all counts is used. Unreadable parts count by
// their bytes.
import { inflateSync } from 'node:zlib';

export interface PageCount {
  /** The upper bound. */
  most: number;
  /** The pages without the unreadable parts, for the estimate. */
  usual: number;
}

/** The work allowed for all PDFs of one request together, since it blocks the event loop. */
export interface PdfBudget {
  names: number;
  streams: number;
  inflatedBytes: number;
}

/** Work of about 30 ms in total. */
export function pdfBudget(): PdfBudget {
  return { names: 50_000, streams: 256, inflatedBytes: 2 * 1024 * 1024 };
}

// No provider of the catalog reads more pages of one file.
const maxUnreadPages = 1_000;
// The smallest known page object has 30 bytes; compression halves that.
const leastPageBytes = 16;

/** Never throws; returns at least one page. Subtracts its work from `budget`. */
export function countPdfPages(bytes: Buffer, budget: PdfBudget): PageCount {
  const tally: Tally = { pages: 0, declared: 0, references: 0, isExact: true };
  const text = bytes.toString('latin1');
  for (const at of readNames(text, tally, budget)) readObjectStream(bytes, { text, at }, tally, budget);
  const readPages = Math.max(tally.pages, tally.declared, tally.references);
  const possiblePages = Math.min(maxUnreadPages, Math.ceil(bytes.length / leastPageBytes));
  return {
    usual: Math.max(readPages, 1),
    most: tally.isExact && readPages > 0 ? readPages : Math.max(readPages, possiblePages, 1),
  };
}

interface Tally {
  /** Objects of the type Page. */
  pages: number;
  /** The largest value of a member `Count`. */
  declared: number;
  /** References in all lists `Kids`, in the page tree and elsewhere. */
  references: number;
  /** False when an unreadable part may contain pages. */
  isExact: boolean;
}

// White space and delimiters of PDF, ISO 32000-1 table 1 and 2.
const blank = '\\0\\t\\n\\f\\r ';
const endOfName = `(?=[${blank}()<>\\[\\]{}/%]|$)`;
const names = new RegExp(
  `/(?:(${escapablePattern('Type')})|(${escapablePattern('Kids')})|(${escapablePattern('Count')})|${escapablePattern('First')})${endOfName}`,
  'g',
);
const pageName = new RegExp(`/${escapablePattern('Page')}${endOfName}`, 'y');
const digits = new RegExp('[+]?\\d{1,10}', 'y');
const reference = new RegExp(`\\d{1,10}[${blank}]{1,8}\\d{1,5}[${blank}]{1,8}R`, 'y');

/** A pattern for the name with any of its letters written as `#` and two hexadecimal digits. */
function escapablePattern(name: string): string {
  const escape = (letter: string) =>
    letter
      .charCodeAt(0)
      .toString(16)
      .replace(/[a-f]/, (digit) => `[${digit}${digit.toUpperCase()}]`);
  return [...name].map((letter) => `(?:${letter}|#${escape(letter)})`).join('');
}

/**
 * Tallies the names of one text. Returns the offsets of the name `First`, which is in the dictionary of every
 * object stream.
 */
function readNames(text: string, tally: Tally, budget: PdfBudget): number[] {
  const streamOffsets: number[] = [];
  names.lastIndex = 0;
  for (let match = names.exec(text); match !== null; match = names.exec(text)) {
    budget.names -= 1;
    if (budget.names < 0) {
      tally.isExact = false;
      return [];
    }
    const valueOffset = skipBlank(text, names.lastIndex);
    if (match[1] !== undefined) readType(text, valueOffset, tally);
    else if (match[2] !== undefined) names.lastIndex = readKids(text, valueOffset, tally);
    else if (match[3] !== undefined) readCount(text, valueOffset, tally);
    else streamOffsets.push(match.index);
  }
  return streamOffsets;
}

const maxBlank = 64;

/** The next offset after white space and comments; -1 when there are more than 64 bytes of them. */
function skipBlank(text: string, start: number): number {
  let isComment = false;
  for (let offset = start; offset < start + maxBlank && offset < text.length; offset += 1) {
    const code = text.charCodeAt(offset);
    if (isComment) isComment = code !== 0x0a && code !== 0x0d;
    else if (code === 0x25) isComment = true;
    // White space is NUL, tab, line feed, form feed, carriage return and space;
    // other controls do not occur in names.
    else if (code > 0x20) return offset;
  }
  return -1;
}

function matchesAt(pattern: RegExp, text: string, offset: number): boolean {
  pattern.lastIndex = offset;
  return pattern.test(text);
}

function readType(text: string, offset: number, tally: Tally): void {
  if (offset < 0 || matchesAt(digits, text, offset)) tally.isExact = false;
  else if (matchesAt(pageName, text, offset)) tally.pages += 1;
}

function readKids(text: string, offset: number, tally: Tally): number {
  if (offset < 0 || text[offset] !== '[') {
    // The list is a separate object, which is not looked up.
    tally.isExact = false;
    return names.lastIndex;
  }
  const end = text.indexOf(']', offset);
  const list = text.slice(offset, end < 0 ? text.length : end);
  // A comment or a string may contain the bracket.
  if (end < 0 || /[%(<]/.test(list)) tally.isExact = false;
  tally.references += list.split('R').length - 1;
  return offset + list.length;
}

function readCount(text: string, offset: number, tally: Tally): void {
  if (offset < 0 || matchesAt(reference, text, offset)) tally.isExact = false;
  else if (matchesAt(digits, text, offset))
    tally.declared = Math.max(
      tally.declared,
      Math.min(Number(text.slice(offset, digits.lastIndex)), maxUnreadPages),
    );
}

// Dictionaries of object streams are short.
const maxDictionary = 1_024;
// The work of reading one dictionary, in names of the budget.
const namesPerDictionary = 16;

/** Tallies the object stream to whose dictionary the name at the offset belongs. */
function readObjectStream(
  bytes: Buffer,
  { text, at }: { text: string; at: number },
  tally: Tally,
  budget: PdfBudget,
): void {
  budget.names -= namesPerDictionary;
  const rest = text.slice(at, at + maxDictionary);
  const length = rest.search(/stream|endobj/);
  const textBefore = text.slice(Math.max(at - maxDictionary, 0), at);
  const start = textBefore.lastIndexOf('obj');
  if (budget.names < 0 || length < 0 || !endsOutsideStrings(rest.slice(0, length))) {
    tally.isExact = false;
    return;
  }
  // The dictionary of an outline also has `First`, but no stream.
  if (rest.startsWith('endobj', length)) return;
  const dictionary = textBefore.slice(start) + rest.slice(0, length);
  if (start < 0 || /#|\/(?:DecodeParms|DP)\b/.test(dictionary)) {
    tally.isExact = false;
    return;
  }
  // A stream without a filter is plain text, which the caller has already read as part of the file.
  if (!/\/F(?:ilter)?\b/.test(dictionary)) return;
  const isDeflated = /\/Filter\s{0,8}\[?\s{0,8}\/Fl(?:ateDecode)?\s{0,8}(?:\]|\/[A-EG-Z]|>)/.test(dictionary);
  const content = isDeflated ? inflate(bytes, at + length + 'stream'.length, budget) : undefined;
  if (content === undefined) tally.isExact = false;
  else readNames(content, tally, budget);
}

/** Whether the text has no comment and no unclosed string; `stream` after it is then a keyword. */
function endsOutsideStrings(text: string): boolean {
  return !text.includes('%') && text.split('(').length === text.split(')').length;
}

/** Undefined for an invalid stream or beyond the budget. */
function inflate(bytes: Buffer, from: number, budget: PdfBudget): string | undefined {
  budget.streams -= 1;
  if (budget.streams < 0 || budget.inflatedBytes <= 0) return undefined;
  let start = from;
  while (start < from + 8 && [0x0a, 0x0d, 0x20].includes(bytes[start] ?? 0)) start += 1;
  try {
    const content = inflateSync(bytes.subarray(start), {
      maxOutputLength: budget.inflatedBytes,
      chunkSize: 128 * 1024,
    });
    budget.inflatedBytes -= content.length;
    return content.toString('latin1');
  } catch {
    // How much was inflated before the error is unknown, so the budget counts as used up.
    budget.inflatedBytes = 0;
    return undefined;
  }
}
