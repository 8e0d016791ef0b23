// The members of a JSON object's top level, by their place in the bytes, so that one of them can be replaced while
// every other byte stays what it was. It checks no more of the grammar than it needs to be sure of those places.

/** One member: the offsets of its value, white space around it excluded. `end` is exclusive. */
export interface Member {
  name: string;
  start: number;
  end: number;
}

export interface Members {
  members: Member[];
  /** Just after the opening brace. */
  bodyStart: number;
}

/** A change to bytes: what is between the offsets becomes `text`; equal offsets insert. */
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

// Bounds for the answers of providers; requests are bounded before. An answer of 32 MiB can be ten million empty arrays or
// members, which take gigabytes when they are parsed. 32 MiB of log probabilities have half as many objects.
const mostMembers = 10_000;
const mostDepth = 256;
const mostContainers = 1_000_000;

/**
 * The top-level members between the offsets, or undefined when no well-formed object is there and nothing else, or one
 * that is too deep or of too many parts.
 */
export function topLevelMembers(bytes: Buffer, from = 0, to = bytes.length): Members | undefined {
  let at = skipSpace(bytes, from, to);
  if (bytes[at] !== openBrace || at >= to) return undefined;
  const bodyStart = at + 1;
  const members: Member[] = [];
  const parts = { containers: 0 };
  at = skipSpace(bytes, bodyStart, to);
  if (at < to && bytes[at] === closeBrace)
    return skipSpace(bytes, at + 1, to) === to ? { members, bodyStart } : undefined;
  for (;;) {
    if (at >= to || bytes[at] !== quote) return undefined;
    const nameEnd = stringEnd(bytes, at, to);
    if (nameEnd < 0) return undefined;
    const name = memberName(bytes, at, nameEnd);
    if (name === undefined) return undefined;
    at = skipSpace(bytes, nameEnd, to);
    if (at >= to || bytes[at] !== colon) return undefined;
    const start = skipSpace(bytes, at + 1, to);
    const end = valueEnd(bytes, { from: start, to, parts });
    if (end < 0 || members.length >= mostMembers) return undefined;
    members.push({ name, start, end });
    at = skipSpace(bytes, end, to);
    if (at >= to) return undefined;
    if (bytes[at] === closeBrace)
      return skipSpace(bytes, at + 1, to) === to ? { members, bodyStart } : undefined;
    if (bytes[at] !== comma) return undefined;
    at = skipSpace(bytes, at + 1, to);
  }
}

/** Bytes, and what is to be changed in them. */
export interface EditedBytes {
  bytes: Buffer;
  edits: readonly Edit[];
}

/** The bytes with the edits made; edits must not overlap. */
export function applyEdits(bytes: Buffer, edits: readonly Edit[]): Buffer {
  return edits.length === 0 ? bytes : concatEdited([{ bytes, edits }]);
}

/** All of them, one behind the other, in one copy. */
export function concatEdited(parts: readonly EditedBytes[]): Buffer {
  let length = 0;
  for (const { bytes, edits } of parts) {
    length += bytes.length;
    for (const { start, end, text } of edits) length += Buffer.byteLength(text, 'utf8') - (end - start);
  }
  const made = Buffer.allocUnsafe(length);
  let at = 0;
  for (const { bytes, edits } of parts) {
    let done = 0;
    for (const edit of edits.length > 1 ? edits.toSorted((a, b) => a.start - b.start) : edits) {
      at += bytes.copy(made, at, done, edit.start);
      at += made.write(edit.text, at, 'utf8');
      done = edit.end;
    }
    at += bytes.copy(made, at, done);
  }
  return made;
}

function skipSpace(bytes: Buffer, from: number, to: number): number {
  let at = from;
  while (at < to) {
    const byte = bytes[at];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) break;
    at += 1;
  }
  return at;
}

// From the opening quote to just after the closing one, or -1.
function stringEnd(bytes: Buffer, from: number, to: number): number {
  for (let at = from + 1; at < to; at += 1) {
    const byte = bytes[at];
    if (byte === backslash) at += 1;
    else if (byte === quote) return at + 1;
  }
  return -1;
}

// What a byte inside of an object or array means; 0 is passed over. One look at a table is four times as fast as five
// comparisons: 32 MiB of numbers take 40 ms.
const meanings = new Uint8Array(256);
const [aQuote, anOpening, aClosing] = [1, 2, 3];
for (const [byte, meaning] of [
  [quote, aQuote],
  [openBrace, anOpening],
  [openBracket, anOpening],
  [closeBrace, aClosing],
  [closeBracket, aClosing],
] as const) {
  meanings[byte] = meaning;
}

// Just after the value that begins here, or -1. Inside, only strings and brackets are looked at.
function valueEnd(
  bytes: Buffer,
  { from, to, parts }: { from: number; to: number; parts: { containers: number } },
): number {
  const first = bytes[from];
  if (from >= to) return -1;
  if (first === quote) return stringEnd(bytes, from, to);
  if (first === openBrace || first === openBracket) {
    let depth = 0;
    for (let at = from; at < to; at += 1) {
      const meaning = meanings[bytes[at] as number];
      if (meaning === 0) continue;
      if (meaning === aQuote) {
        at = stringEnd(bytes, at, to) - 1;
        if (at < 0) return -1;
      } else if (meaning === anOpening) {
        depth += 1;
        if (depth > mostDepth || ++parts.containers > mostContainers) return -1;
      } else {
        depth -= 1;
        if (depth === 0) return at + 1;
      }
    }
    return -1;
  }
  let at = from;
  while (at < to) {
    const byte = bytes[at] ?? 0;
    if (byte === comma || byte === closeBrace || byte <= 0x20) break;
    // No literal has these; the document is not what it seems.
    if (
      byte === quote ||
      byte === colon ||
      byte === openBrace ||
      byte === openBracket ||
      byte === closeBracket
    )
      return -1;
    at += 1;
  }
  return at === from ? -1 : at;
}

// Names are short and hardly ever escaped; one that is goes through the real parser.
function memberName(bytes: Buffer, from: number, end: number): string | undefined {
  const known = commonName(bytes, from + 1, end - 1);
  if (known !== undefined) return known;
  const text = bytes.toString('utf8', from + 1, end - 1);
  if (!text.includes('\\')) return text;
  try {
    return JSON.parse(`"${text}"`) as string;
  } catch {
    return undefined;
  }
}

// The names that stand in every event of a long stream; each event would make new texts of them otherwise.
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

function commonName(bytes: Buffer, from: number, end: number): string | undefined {
  return commonNames.get(end - from)?.find((name) => {
    for (let at = 0; at < name.length; at += 1) if (bytes[from + at] !== name.charCodeAt(at)) return false;
    return true;
  });
}
