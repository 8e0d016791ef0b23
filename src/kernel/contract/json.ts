// Strict JSON: parses the bytes of a request body and refuses what JSON.parse lets pass and other parsers
// read differently (duplicate members, a byte order mark, endless depth, numbers and characters that do
// not survive). The rule it keeps: what is accepted here means the same to every parser behind us.
import { isUtf8 } from 'node:buffer';
import { Problem } from '../problem.ts';

/** More nesting than any honest body has, and far below what would exhaust the stack. */
const maximumDepth = 64;

/** The value of a JSON document; throws a 400 Problem that names what is wrong. */
export function parseJson(bytes: Buffer): unknown {
  refuseForeignEncoding(bytes);
  const text = bytes.toString('utf8');
  const suspects = scan(text);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new Problem('bad_request', 'invalid_json', 'The body is not valid JSON.', { cause });
  }
  if (suspects) refuseUnsafeValues(value, '');
  return value;
}

function refuseForeignEncoding(bytes: Buffer): void {
  const [first, second, third] = [bytes[0], bytes[1], bytes[2]];
  const utf8Mark = first === 0xef && second === 0xbb && third === 0xbf;
  // Two bytes a character show in a zero among the first two; their byte order mark is not UTF-8 at all.
  if (utf8Mark || first === 0 || second === 0 || !isUtf8(bytes)) {
    throw new Problem('bad_request', 'invalid_json', 'The body must be JSON in UTF-8 without a byte order mark.');
  }
}

/**
 * One pass over the text before it is parsed: depth, and the members of the top level. It trusts that
 * JSON.parse refuses whatever is malformed, so it only has to be right about documents that are well-formed.
 * Returns whether the document may hold numbers, characters or names that have to be looked at again.
 */
function scan(text: string): boolean {
  let depth = 0;
  const escapes = text.includes('\\');
  // A name that is dangerous as it is or with its underscores escaped; half a surrogate pair is always escaped.
  let suspects = text.includes('__proto__') || (escapes && /\\u(?:005f|d[89a-f])/i.test(text));
  let topIsObject = false;
  let expectsName = false;
  let scalarStart = 0;
  const names: Names = { list: [], set: undefined };
  for (let at = 0; at < text.length; at += 1) {
    switch (text.charCodeAt(at)) {
      case 0x22: {
        // "
        const end = closingQuote(text, at + 1, escapes);
        if (end < 0) return suspects;
        if (expectsName) {
          refuseDuplicate(text.slice(at, end + 1), names);
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
        if (depth === 1) topIsObject = expectsName = text.charCodeAt(at) === 0x7b;
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
      case 0x65: {
        // e: only a number has it after a digit; `true` and `false` have not.
        const before = text.charCodeAt(at - 1);
        if (before >= 0x30 && before <= 0x39) suspects = true;
        break;
      }
    }
  }
  return suspects || text.length - scalarStart > 300;
}

function closingQuote(text: string, from: number, escapes: boolean): number {
  let end = text.indexOf('"', from);
  while (escapes && end >= 0) {
    let slashes = 0;
    while (end - 1 - slashes >= from && text.charCodeAt(end - 1 - slashes) === 0x5c) slashes += 1;
    if (slashes % 2 === 0) return end;
    end = text.indexOf('"', end + 1);
  }
  return end;
}

// A list serves the few members that bodies have; a body of thousands is looked up in a set.
function refuseDuplicate(literal: string, seen: Names): void {
  let name = literal.slice(1, -1);
  if (name.includes('\\')) {
    try {
      name = JSON.parse(literal) as string;
    } catch {
      // Malformed; the parser that follows says so.
      return;
    }
  }
  if (seen.set ? seen.set.has(name) : seen.list.includes(name)) {
    const shown = name.toWellFormed().slice(0, 128);
    throw new Problem('bad_request', 'duplicate_member', `The member ${JSON.stringify(shown)} appears more than once.`, {
      param: shown,
      details: [{ path: shown, message: 'appears more than once' }],
    });
  }
  if (seen.set) seen.set.add(name);
  else if (seen.list.push(name) > 16) seen.set = new Set(seen.list);
}

interface Names {
  list: string[];
  set: Set<string> | undefined;
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
