// Finds the offsets of the top-level members of a JSON object, so that a member can be replaced
// while every other byte stays unchanged. Checks only as much of the grammar as the offsets depend
// on.

/** A member and the offsets of its value, excluding surrounding white space; `end` is exclusive. */
export interface Member {
  name: string;
  start: number;
  end: number;
}

export interface Members {
  members: Member[];
  /** The offset after the opening brace. */
  bodyStart: number;
}

/** Replaces the bytes between the offsets by `text`; equal offsets insert. */
export interface Edit {
  start: number;
  end: number;
  text: string;
}

const quote = 0x22;
const backslash = 0x5c;
const comma = 0x2c;
const colon = 0x3a;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const closeBracket = 0x5d;

// Bounds for answers of providers; the contract pipeline bounds requests. An answer of 32 MiB could
// have ten million empty arrays, which take gigabytes when parsed. The longest legitimate answers,
// 32 MiB of log probabilities, have half as many objects as `maxContainers`.
const maxMembers = 10_000;
const maxDepth = 256;
const maxContainers = 1_000_000;

/**
 * The members of the object between the offsets. Undefined if there is anything other than
 * one well-formed object, or if the object is nested too deeply or has too many parts.
 */
export function topLevelMembers(bytes: Buffer, rangeStart = 0, rangeEnd = bytes.length): Members | undefined {
  let offset = skipSpace(bytes, rangeStart, rangeEnd);
  if (bytes[offset] !== openBrace || offset >= rangeEnd) return undefined;
  const bodyStart = offset + 1;
  const members: Member[] = [];
  const parts = { containers: 0 };
  offset = skipSpace(bytes, bodyStart, rangeEnd);
  if (offset < rangeEnd && bytes[offset] === closeBrace)
    return skipSpace(bytes, offset + 1, rangeEnd) === rangeEnd ? { members, bodyStart } : undefined;
  for (;;) {
    if (offset >= rangeEnd || bytes[offset] !== quote) return undefined;
    const nameEnd = stringEnd(bytes, offset, rangeEnd);
    if (nameEnd < 0) return undefined;
    const name = memberName(bytes, offset, nameEnd);
    if (name === undefined) return undefined;
    offset = skipSpace(bytes, nameEnd, rangeEnd);
    if (offset >= rangeEnd || bytes[offset] !== colon) return undefined;
    const start = skipSpace(bytes, offset + 1, rangeEnd);
    const end = valueEnd(bytes, { start, end: rangeEnd, parts });
    if (end < 0 || members.length >= maxMembers) return undefined;
    members.push({ name, start, end });
    offset = skipSpace(bytes, end, rangeEnd);
    if (offset >= rangeEnd) return undefined;
    if (bytes[offset] === closeBrace)
      return skipSpace(bytes, offset + 1, rangeEnd) === rangeEnd ? { members, bodyStart } : undefined;
    if (bytes[offset] !== comma) return undefined;
    offset = skipSpace(bytes, offset + 1, rangeEnd);
  }
}

/** The offsets of a value; `end` is exclusive. */
export type Span = Pick<Member, 'start' | 'end'>;

/**
 * The offsets of the items of the array that begins at `rangeStart`; undefined if it is not a
 * well-formed array. Bytes after its closing bracket are not checked.
 */
export function arrayItems(bytes: Buffer, rangeStart: number, rangeEnd: number): Span[] | undefined {
  let offset = skipSpace(bytes, rangeStart, rangeEnd);
  if (bytes[offset] !== openBracket || offset >= rangeEnd) return undefined;
  const items: Span[] = [];
  const parts = { containers: 0 };
  offset = skipSpace(bytes, offset + 1, rangeEnd);
  if (offset < rangeEnd && bytes[offset] === closeBracket) return items;
  for (;;) {
    const end = itemEnd(bytes, { start: offset, end: rangeEnd, parts });
    if (end < 0) return undefined;
    items.push({ start: offset, end });
    offset = skipSpace(bytes, end, rangeEnd);
    if (offset >= rangeEnd) return undefined;
    if (bytes[offset] === closeBracket) return items;
    if (bytes[offset] !== comma) return undefined;
    offset = skipSpace(bytes, offset + 1, rangeEnd);
  }
}

/** The edits that remove items of an array, given by their positions in ascending order. */
export function itemRemovals(items: readonly Span[], removed: readonly number[]): Edit[] {
  return runsOf(removed).map(({ first, last }) => {
    const next = items[last + 1];
    const previous = items[first - 1];
    const start = next === undefined && previous !== undefined ? previous.end : (items[first]?.start ?? 0);
    return { start, end: next?.start ?? items[last]?.end ?? 0, text: '' };
  });
}

/** The edits that remove members of an object, given by their positions in ascending order. */
export function memberRemovals(
  bytes: Buffer,
  { members, bodyStart }: Members,
  removed: readonly number[],
): Edit[] {
  return runsOf(removed).map(({ first, last }) => {
    const end = members[last]?.end ?? bodyStart;
    const previous = members[first - 1];
    if (previous !== undefined) return { start: previous.end, end, text: '' };
    const isAll = last === members.length - 1;
    return { start: bodyStart, end: isAll ? end : bytes.indexOf(comma, end) + 1, text: '' };
  });
}

/** Runs of consecutive numbers. */
function runsOf(positions: readonly number[]): { first: number; last: number }[] {
  const runs: { first: number; last: number }[] = [];
  for (const position of positions) {
    const run = runs.at(-1);
    if (run?.last === position - 1) run.last = position;
    else runs.push({ first: position, last: position });
  }
  return runs;
}

/** Bytes with pending edits. */
export interface EditedBytes {
  bytes: Buffer;
  edits: readonly Edit[];
}

/** Applies the edits, which must not overlap. Returns the same buffer when there are none. */
export function applyEdits(bytes: Buffer, edits: readonly Edit[]): Buffer {
  return edits.length === 0 ? bytes : concatEdited([{ bytes, edits }]);
}

/** Applies the edits of each part and concatenates the parts, with one copy of the bytes. */
export function concatEdited(parts: readonly EditedBytes[]): Buffer {
  let length = 0;
  for (const { bytes, edits } of parts) {
    length += bytes.length;
    for (const { start, end, text } of edits) length += Buffer.byteLength(text, 'utf8') - (end - start);
  }
  const editedBytes = Buffer.allocUnsafe(length);
  let offset = 0;
  for (const { bytes, edits } of parts) {
    let copiedTo = 0;
    for (const edit of edits.length > 1 ? edits.toSorted((a, b) => a.start - b.start) : edits) {
      offset += bytes.copy(editedBytes, offset, copiedTo, edit.start);
      offset += editedBytes.write(edit.text, offset, 'utf8');
      copiedTo = edit.end;
    }
    offset += bytes.copy(editedBytes, offset, copiedTo);
  }
  return editedBytes;
}

function skipSpace(bytes: Buffer, start: number, end: number): number {
  let offset = start;
  while (offset < end) {
    const byte = bytes[offset];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) break;
    offset += 1;
  }
  return offset;
}

const shortString = 64;
const escapedBlock = 64 * 1024;

// The offset after the closing quote of the string that starts at `start`, or -1.
// Short strings and blocks with escaped quotes are scanned byte by byte; the rest of
// a long string is searched natively, ten times as fast.
function stringEnd(bytes: Buffer, start: number, end: number): number {
  let offset = start + 1;
  let blockEnd = Math.min(end, offset + shortString);
  for (;;) {
    for (; offset < blockEnd; offset += 1) {
      const byte = bytes[offset];
      if (byte === backslash) offset += 1;
      else if (byte === quote) return offset + 1;
    }
    if (offset >= end) return -1;
    const quoteAt = bytes.indexOf(quote, offset);
    if (quoteAt < 0 || quoteAt >= end) return -1;
    if (!isEscaped(bytes, quoteAt, offset)) return quoteAt + 1;
    offset = quoteAt + 1;
    blockEnd = Math.min(end, offset + escapedBlock);
  }
}

// Whether an odd number of backslashes precedes the quote. Backslashes before `textStart` do not
// count: they belong to escapes that have been scanned.
function isEscaped(bytes: Buffer, quoteAt: number, textStart: number): boolean {
  let start = quoteAt;
  while (start > textStart && bytes[start - 1] === backslash) start -= 1;
  return (quoteAt - start) % 2 === 1;
}

// Classes of the bytes inside of an object or array; 0 is skipped. A table look-up
// is four times as fast as five comparisons: 32 MiB of numbers take 40 ms.
const byteClasses = new Uint8Array(256);
const [quoteClass, openingClass, closingClass] = [1, 2, 3];
for (const [byte, byteClass] of [
  [quote, quoteClass],
  [openBrace, openingClass],
  [openBracket, openingClass],
  [closeBrace, closingClass],
  [closeBracket, closingClass],
] as const) {
  byteClasses[byte] = byteClass;
}

// The offset after the value that starts at `start`, or -1. Inside of containers only
// strings and brackets are checked.
function valueEnd(
  bytes: Buffer,
  { start, end, parts }: { start: number; end: number; parts: { containers: number } },
): number {
  const firstByte = bytes[start];
  if (start >= end) return -1;
  if (firstByte === quote) return stringEnd(bytes, start, end);
  if (firstByte === openBrace || firstByte === openBracket) return containerEnd(bytes, { start, end, parts });
  return literalEnd(bytes, start, end);
}

function containerEnd(
  bytes: Buffer,
  { start, end, parts }: { start: number; end: number; parts: { containers: number } },
): number {
  let depth = 0;
  for (let offset = start; offset < end; offset += 1) {
    const byteClass = byteClasses[bytes[offset] as number];
    if (byteClass === 0) continue;
    if (byteClass === quoteClass) {
      offset = stringEnd(bytes, offset, end) - 1;
      if (offset < 0) return -1;
    } else if (byteClass === openingClass) {
      depth += 1;
      parts.containers += 1;
      if (depth > maxDepth || parts.containers > maxContainers) return -1;
    } else {
      depth -= 1;
      if (depth === 0) return offset + 1;
    }
  }
  return -1;
}

function literalEnd(bytes: Buffer, start: number, end: number): number {
  let offset = start;
  while (offset < end) {
    const byte = bytes[offset] ?? 0;
    if (byte === comma || byte === closeBrace || byte <= 0x20) break;
    // None of these can occur in a number or literal.
    if (
      byte === quote ||
      byte === colon ||
      byte === openBrace ||
      byte === openBracket ||
      byte === closeBracket
    )
      return -1;
    offset += 1;
  }
  return offset === start ? -1 : offset;
}

// Like `valueEnd`, but the item may be followed by a closing bracket instead of a brace.
function itemEnd(bytes: Buffer, span: { start: number; end: number; parts: { containers: number } }): number {
  const { start, end } = span;
  const firstByte = bytes[start];
  if (firstByte === quote || firstByte === openBrace || firstByte === openBracket)
    return valueEnd(bytes, span);
  let offset = start;
  while (
    offset < end &&
    bytes[offset] !== comma &&
    bytes[offset] !== closeBracket &&
    (bytes[offset] ?? 0) > 0x20
  )
    offset += 1;
  return offset === start ? -1 : offset;
}

// Names are short and seldom escaped; JSON.parse decodes names with escapes.
function memberName(bytes: Buffer, start: number, end: number): string | undefined {
  const knownName = commonName(bytes, start + 1, end - 1);
  if (knownName !== undefined) return knownName;
  const text = bytes.toString('utf8', start + 1, end - 1);
  if (!text.includes('\\')) return text;
  try {
    return JSON.parse(`"${text}"`) as string;
  } catch {
    return undefined;
  }
}

// Member names in nearly every event of a stream: using these strings saves allocating new strings
// for each event.
const commonNames = Map.groupBy(
  [
    'id',
    'type',
    'index',
    'model',
    'delta',
    'usage',
    'object',
    'choices',
    'created',
    'system_fingerprint',
    'service_tier',
    'content_index',
    'output_index',
    'item_id',
    'sequence_number',
    'logprobs',
  ],
  (name) => name.length,
);

function commonName(bytes: Buffer, start: number, end: number): string | undefined {
  return commonNames.get(end - start)?.find((name) => {
    for (let offset = 0; offset < name.length; offset += 1)
      if (bytes[start + offset] !== name.charCodeAt(offset)) return false;
    return true;
  });
}
