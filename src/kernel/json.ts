// Strict JSON: parses the bytes of a request body and refuses what JSON.parse lets pass and other parsers
// read differently (duplicate members, a byte order mark, endless depth, numbers and characters that do
// not survive). The rule it keeps: what is accepted here means the same to every parser behind us.
import { isUtf8 } from 'node:buffer';
import { Problem } from './problem.ts';

/** More nesting than any honest body has, and far below what would exhaust the stack. */
const maximumDepth = 64;

const quote = 0x22;
const backslash = 0x5c;

/** The value of a JSON document; throws a 400 Problem that names what is wrong. */
export function parseJson(bytes: Buffer): unknown {
  refuseForeignEncoding(bytes);
  const suspects = scan(bytes);
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw new Problem('bad_request', 'invalid_json', 'The body is not valid JSON.', { cause });
  }
  if (suspects) refuseUnsafeValues(value, '');
  return value;
}

function refuseForeignEncoding(bytes: Buffer): void {
  const [first, second, third] = bytes;
  const utf8Mark = first === 0xef && second === 0xbb && third === 0xbf;
  const utf16Mark = (first === 0xfe && second === 0xff) || (first === 0xff && second === 0xfe);
  if (utf8Mark || utf16Mark || first === 0 || second === 0 || !isUtf8(bytes)) {
    throw new Problem('bad_request', 'invalid_json', 'The body must be JSON in UTF-8 without a byte order mark.');
  }
}

/**
 * One pass over the bytes before they are parsed: depth, and the members of the top level. It trusts that
 * JSON.parse refuses whatever is malformed, so it only has to be right about documents that are well-formed.
 * Returns whether the document may hold numbers or characters that have to be looked at again.
 */
function scan(bytes: Buffer): boolean {
  let depth = 0;
  // The name itself, or its underscore in escaped form.
  let suspects = bytes.includes('__proto__') || bytes.includes('\\u005');
  let topIsObject = false;
  let expectsName = false;
  let scalarStart = 0;
  const names = new Set<string>();
  for (let at = 0; at < bytes.length; at += 1) {
    switch (bytes[at]) {
      case quote: {
        const end = closingQuote(bytes, at + 1);
        const escaped = end < 0 ? -1 : bytes.indexOf(backslash, at + 1);
        const hasEscape = escaped >= 0 && escaped < end;
        // An escaped surrogate may be without its other half.
        if (hasEscape && !suspects) suspects = hasSurrogateEscape(bytes, escaped, end);
        if (end < 0) return suspects;
        if (expectsName) {
          refuseDuplicate(bytes.toString('utf8', at, end + 1), hasEscape, names);
          expectsName = false;
        }
        at = end;
        scalarStart = end;
        break;
      }
      case 0x7b: // {
      case 0x5b: // [
        depth += 1;
        if (depth > maximumDepth) {
          throw new Problem('bad_request', 'invalid_json', `The body is nested more than ${maximumDepth} levels deep.`);
        }
        if (depth === 1) topIsObject = expectsName = bytes[at] === 0x7b;
        scalarStart = at;
        break;
      case 0x7d: // }
      case 0x5d: // ]
        depth -= 1;
        // A double needs at most 24 characters; one of 300 digits may be infinite.
        if (at - scalarStart > 300) suspects = true;
        scalarStart = at;
        break;
      case 0x2c: // ,
        if (at - scalarStart > 300) suspects = true;
        scalarStart = at;
        if (depth === 1 && topIsObject) expectsName = true;
        break;
      case 0x3a: // :
        scalarStart = at;
        break;
      case 0x45: // E
      case 0x65: { // e
        const before = bytes[at - 1] ?? 0;
        // Only a number has its `e` after a digit or a dot; `true` and `false` have not.
        if ((before >= 0x30 && before <= 0x39) || before === 0x2e) suspects = true;
        break;
      }
    }
  }
  return suspects || bytes.length - scalarStart > 300;
}

function closingQuote(bytes: Buffer, from: number): number {
  for (let end = bytes.indexOf(quote, from); end >= 0; end = bytes.indexOf(quote, end + 1)) {
    let slashes = 0;
    while (end - 1 - slashes >= from && bytes[end - 1 - slashes] === backslash) slashes += 1;
    if (slashes % 2 === 0) return end;
  }
  return -1;
}

function hasSurrogateEscape(bytes: Buffer, from: number, end: number): boolean {
  for (let at = bytes.indexOf(backslash, from); at >= 0 && at < end; at = bytes.indexOf(backslash, at + 2)) {
    if (bytes[at + 1] === 0x75 && (bytes[at + 2] === 0x64 || bytes[at + 2] === 0x44)) return true;
  }
  return false;
}

function refuseDuplicate(literal: string, hasEscape: boolean, names: Set<string>): void {
  let name = literal.slice(1, -1);
  if (hasEscape) {
    try {
      name = JSON.parse(literal) as string;
    } catch {
      // Malformed; the parser that follows says so.
      return;
    }
  }
  if (names.has(name)) {
    const shown = name.toWellFormed().slice(0, 128);
    throw new Problem('bad_request', 'duplicate_member', `The member ${JSON.stringify(shown)} appears more than once.`, {
      param: shown,
      details: [{ path: shown, message: 'appears more than once' }],
    });
  }
  names.add(name);
}

// Depth was bounded by the scan, so recursion is safe.
function refuseUnsafeValues(value: unknown, path: string): void {
  if (typeof value === 'number' && !Number.isFinite(value)) throw unsafe(path, 'is a number beyond what can be represented');
  if (typeof value === 'string' && !value.isWellFormed()) throw unsafe(path, 'holds half of a surrogate pair');
  if (typeof value !== 'object' || value === null) return;
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) refuseUnsafeValues(item, `${path}[${index}]`);
    return;
  }
  for (const [name, member] of Object.entries(value)) {
    // An own member of this name becomes the prototype of whatever it is assigned to.
    if (name === '__proto__') throw unsafe(path, 'has a member `__proto__`, which is not accepted');
    if (!name.isWellFormed()) throw unsafe(path, 'has a name that holds half of a surrogate pair');
    refuseUnsafeValues(member, path === '' ? name : `${path}.${name}`);
  }
}

function unsafe(path: string, message: string): Problem {
  const shown = path.slice(0, 256);
  return new Problem('bad_request', 'invalid_json', `${shown === '' ? 'The body' : `\`${shown}\``} ${message}.`, {
    param: shown === '' ? null : shown,
    details: [{ path: shown, message }],
  });
}
