// Strict JSON: parses the bytes of a request body and rejects input that JSON.parse accepts and other
// parsers read differently (duplicate members, a byte order mark, unbounded depth, numbers and
// characters that do not survive a round trip), so that an accepted body has the same meaning for
// every parser that reads it after this one.
import { isUtf8 } from 'node:buffer';
import { Problem } from '../problem.ts';
import { startOfText } from '../start-of-text.ts';

// The limit exceeds the nesting of real bodies and is far below the depth that exhausts the stack.
const maximumDepth = 64;
// Objects, arrays, names and strings each cost the parser, the validator and the
// serializer up to a microsecond; numbers and literals a tenth of it. 100,000 parts
// are enough for 10,000 chat messages with typed parts, 500,000 values for the 300,000
// tokens of an embeddings call. Both limits keep every step below 50 ms.
const maximumParts = 100_000;
const maximumValues = 500_000;
// A double needs at most 24 characters; a number of more than 300 digits may be infinite.
const maximumScalarLength = 300;
// V8 turns a larger object into a dictionary, which costs several times as much.
const maximumMembers = 10_000;

/** The value of a JSON document. Throws a 400 Problem that names the error, and a 413 for too many values. */
export function parseJson(bytes: Buffer): unknown {
  refuseOtherEncodings(bytes);
  const { hasSuspects, members } = scan(bytes, { nameDepth: 1 });
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw new Problem('bad_request', 'invalid_json', 'The body is not valid JSON.', { cause });
  }
  // JSON.parse keeps the last of two members with the same name; another parser may keep the first.
  if (countMembers(value) < members) scan(bytes, { nameDepth: maximumDepth });
  if (hasSuspects) refuseUnsafeValues(value);
  return value;
}

// Depth was bounded by the scan, so recursion is safe.
function countMembers(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  let count = 0;
  if (Array.isArray(value)) {
    for (const item of value) count += countMembers(item);
    return count;
  }
  for (const name in value) count += 1 + countMembers((value as Record<string, unknown>)[name]);
  return count;
}

function refuseOtherEncodings(bytes: Buffer): void {
  const [firstByte, secondByte, thirdByte] = [bytes[0], bytes[1], bytes[2]];
  const hasUtf8Mark = firstByte === 0xef && secondByte === 0xbb && thirdByte === 0xbf;
  // JSON in UTF-16 has a zero among its first two bytes; its byte order mark is invalid UTF-8.
  if (hasUtf8Mark || firstByte === 0 || secondByte === 0 || !isUtf8(bytes)) {
    throw new Problem(
      'bad_request',
      'invalid_json',
      'The body must be JSON in UTF-8 without a byte order mark.',
    );
  }
}

// The class of each byte outside of strings and names for the scan. All others are 0 and skipped
// with one table look-up, which makes the scan three times as fast as a switch over the characters.
const byteClasses = new Uint8Array(256);
const [quote, opening, closing, comma, colon, exponent] = [1, 2, 3, 4, 5, 6];
for (const [character, byteClass] of [
  ['"', quote],
  ['{', opening],
  ['[', opening],
  ['}', closing],
  [']', closing],
  [',', comma],
  [':', colon],
  ['e', exponent],
  ['E', exponent],
] as const) {
  byteClasses[character.charCodeAt(0)] = byteClass;
}

interface Scan {
  /** Whether the document may contain numbers, characters or names that have to be checked after parsing. */
  hasSuspects: boolean;
  /** The members of all objects, including those that JSON.parse drops. */
  members: number;
}

/**
 * One pass over the bytes before parsing: checks depth, the number of values, and
 * repeated members of objects down to `nameDepth`. JSON.parse rejects malformed
 * input, so the scan only has to be correct for well-formed documents.
 */
function scan(bytes: Buffer, { nameDepth }: { nameDepth: number }): Scan {
  const { length } = bytes;
  const strings: StringScan = { nextQuote: -1, nextEscape: -1, hasSuspectEscape: false };
  let hasSuspects = bytes.includes('__proto__');
  let depth = 0;
  let expectsName = false;
  let scalarStart = 0;
  let parts = 0;
  let values = 0;
  let allMembers = 0;
  // Member counts and names of the open objects, by depth; `names` is undefined for an open array.
  const members = new Uint32Array(maximumDepth + 1);
  const names: (Names | undefined)[] = [];
  const result = (isSuspect: boolean): Scan => ({ hasSuspects: isSuspect, members: allMembers });
  for (let offset = 0; offset < length; offset += 1) {
    const byteClass = byteClasses[bytes[offset] as number];
    if (byteClass === 0) continue;
    switch (byteClass) {
      case quote: {
        if (++parts > maximumParts) throw tooManyParts();
        const end = closingQuote(bytes, offset + 1, strings);
        if (end < 0) return result(hasSuspects);
        if (expectsName) {
          refuseDuplicate(bytes.toString('utf8', offset, end + 1), names[depth] as Names);
          expectsName = false;
        }
        offset = end;
        break;
      }
      case opening:
        if (++parts > maximumParts) throw tooManyParts();
        if (++depth > maximumDepth) throw tooDeep();
        members[depth] = 0;
        if (depth <= nameDepth) {
          expectsName = bytes[offset] === 0x7b;
          names[depth] = expectsName ? { list: [], set: undefined } : undefined;
        }
        break;
      case closing:
        // More closing than opening brackets; JSON.parse reports it.
        if (--depth < 0) return result(hasSuspects);
        expectsName = false;
        if (offset - scalarStart > maximumScalarLength) hasSuspects = true;
        break;
      case comma:
        if (++values > maximumValues) throw tooMany(`${maximumValues} values`);
        if (offset - scalarStart > maximumScalarLength) hasSuspects = true;
        if (depth <= nameDepth && names[depth] !== undefined) expectsName = true;
        break;
      case colon:
        allMembers += 1;
        members[depth] = (members[depth] as number) + 1;
        if ((members[depth] as number) > maximumMembers)
          throw tooMany(`${maximumMembers} members in one object`);
        break;
      default: {
        // An `e` after a digit begins an exponent, so the number may be infinite. The `e` of `true`
        // and `false` follows a letter.
        const previousByte = bytes[offset - 1] ?? 0;
        if (previousByte >= 0x30 && previousByte <= 0x39) hasSuspects = true;
        continue;
      }
    }
    scalarStart = offset;
  }
  return result(hasSuspects || strings.hasSuspectEscape || length - scalarStart > maximumScalarLength);
}

function tooDeep(): Problem {
  const message = `The body is nested more than ${maximumDepth} levels deep.`;
  return new Problem('bad_request', 'invalid_json', message);
}

function tooManyParts(): Problem {
  return tooMany(`${maximumParts} objects, arrays, names and strings`);
}

function tooMany(limit: string): Problem {
  return new Problem('too_large', 'request_too_large', `The body may have ${limit} at most.`);
}

interface StringScan {
  /**
   * Positions of the next quote and the next backslash from the last search; valid
   * until the scan passes them.
   */
  nextQuote: number;
  nextEscape: number;
  /** Whether half of a surrogate pair, or a character of `__proto__`, is written as an escape. */
  hasSuspectEscape: boolean;
}

// Up to this length a loop is faster than a native search.
const shortString = 64;

/** The position of the quote that ends the string at `start`, or -1. */
function closingQuote(bytes: Buffer, start: number, strings: StringScan): number {
  const { length } = bytes;
  let searchAfter = start + shortString;
  for (let offset = start; offset < length; offset += 1) {
    const byte = bytes[offset];
    if (byte === 0x22) return offset;
    if (byte === 0x5c) {
      offset += 1;
      if (bytes[offset] === 0x75 && isSuspectEscape(bytes, offset + 1)) strings.hasSuspectEscape = true;
    } else if (offset > searchAfter) {
      if (strings.nextQuote < offset) strings.nextQuote = indexOrEnd(0x22, bytes, offset);
      if (strings.nextEscape < offset) strings.nextEscape = indexOrEnd(0x5c, bytes, offset);
      offset = Math.min(strings.nextQuote, strings.nextEscape) - 1;
      searchAfter = offset + shortString;
    }
  }
  return -1;
}

/** The next position of the byte, or the end. */
function indexOrEnd(byte: number, bytes: Buffer, start: number): number {
  const index = bytes.indexOf(byte, start);
  return index < 0 ? bytes.length : index;
}

function isSuspectEscape(bytes: Buffer, offset: number): boolean {
  const firstByte = bytes[offset] ?? 0;
  const secondByte = bytes[offset + 1] ?? 0;
  // d800 to dfff are the halves of surrogate pairs.
  if ((firstByte | 0x20) === 0x64) return secondByte >= 0x38;
  // 0050 to 007f contain the underscore and the letters of `__proto__`. Serializers escape none of them.
  const thirdByte = bytes[offset + 2] ?? 0;
  return firstByte === 0x30 && secondByte === 0x30 && thirdByte >= 0x35 && thirdByte <= 0x37;
}

function refuseDuplicate(literal: string, names: Names): void {
  let name = literal.slice(1, -1);
  if (name.includes('\\')) {
    try {
      name = JSON.parse(literal) as string;
    } catch {
      // Malformed; JSON.parse reports it.
      return;
    }
  }
  if (names.set ? names.set.has(name) : names.list.includes(name)) {
    const label = startOfText(name, 128);
    throw new Problem(
      'bad_request',
      'duplicate_member',
      `The member ${JSON.stringify(label)} appears more than once.`,
      {
        param: label,
        details: [{ path: label, message: 'appears more than once' }],
      },
    );
  }
  if (names.set) names.set.add(name);
  else if (names.list.push(name) > 16) names.set = new Set(names.list);
}

/** The names of one object so far: a list for the few members of usual bodies, a set for thousands. */
interface Names {
  list: string[];
  set: Set<string> | undefined;
}

function refuseUnsafeValues(document: unknown): void {
  const unsafeValue = findUnsafe(document);
  if (unsafeValue === undefined) return;
  throw unsafeProblem(memberPath(unsafeValue.steps.toReversed()), unsafeValue.message);
}

/** The path of a member, such as `messages[0].content`. */
function memberPath(steps: readonly (string | number)[]): string {
  return steps
    .map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`))
    .join('')
    .replace(/^\./, '');
}

interface UnsafeValue {
  /** Path from the value up to the document. */
  steps: (string | number)[];
  message: string;
}

// Depth was bounded by the scan, so recursion is safe.
function findUnsafe(value: unknown): UnsafeValue | undefined {
  if (typeof value === 'number' && !Number.isFinite(value))
    return { steps: [], message: 'is a number beyond what can be represented' };
  if (typeof value === 'string' && !value.isWellFormed())
    return { steps: [], message: 'holds half of a surrogate pair' };
  if (typeof value !== 'object' || value === null) return undefined;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index += 1) {
      const unsafeMember = findUnsafe(value[index]);
      if (unsafeMember !== undefined) return addStep(unsafeMember, index);
    }
    return undefined;
  }
  for (const name of Object.keys(value)) {
    // Code that copies this member by assignment would replace the prototype of its target.
    if (name === '__proto__')
      return { steps: [], message: 'has a member `__proto__`, which is not accepted' };
    if (!name.isWellFormed()) return { steps: [], message: 'has a name that holds half of a surrogate pair' };
    const unsafeMember = findUnsafe((value as Record<string, unknown>)[name]);
    if (unsafeMember !== undefined) return addStep(unsafeMember, name);
  }
  return undefined;
}

function addStep(unsafeValue: UnsafeValue, step: string | number): UnsafeValue {
  unsafeValue.steps.push(step);
  return unsafeValue;
}

function unsafeProblem(path: string, message: string): Problem {
  const label = startOfText(path, 256);
  return new Problem(
    'bad_request',
    'invalid_json',
    `${label === '' ? 'The body' : `\`${label}\``} ${message}.`,
    {
      param: label === '' ? null : label,
      details: [{ path: label, message }],
    },
  );
}
