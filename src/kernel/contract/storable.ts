// Values that PostgreSQL cannot store although JSON and queries allow them, and the
// size limit of stored JSON.
import { invalidMember } from '../problem.ts';
import { startOfText } from '../start-of-text.ts';

// A NUL, or half of a surrogate pair, as JSON.stringify escapes it. An even number of backslashes before
// the escape are themselves escaped backslashes.
const unstorableText = /(?<!\\)(?:\\\\)*\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})/;

/**
 * Throws a 400 that names `param` unless the value can be stored and has at most `maxBytes` as JSON.
 */
export function requireStorable(value: unknown, param: string, maxBytes = 16 * 1024): void {
  const text = JSON.stringify(value) ?? '';
  if (Buffer.byteLength(text) > maxBytes)
    throw invalidMember(param, `may have ${maxBytes} bytes of JSON at most`);
  if (unstorableText.test(text)) throw invalidMember(param, 'holds a NUL or half of a surrogate pair');
}

// PostgreSQL's error codes for a NUL in a string and in JSON.
const nulCodes = new Set(['22021', '22P05']);

/**
 * Replaces a database error about a NUL by a 400 that names the request's member with
 * the NUL. Requests are not searched for NULs in advance, since most model input is never stored.
 */
export function explainNulByte(error: unknown, query: unknown, body: unknown): unknown {
  if (!(error instanceof Error) || !('code' in error) || !nulCodes.has(String(error.code))) return error;
  const path = findNul(query, '') ?? findNul(body, '');
  return path === undefined
    ? error
    : invalidMember(startOfText(path, 256), 'holds a NUL, which cannot be kept', error);
}

// Recursion is safe: json.ts bounds the depth of a body.
function findNul(value: unknown, path: string): string | undefined {
  if (typeof value === 'string') return value.includes('\0') ? path : undefined;
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [name, member] of Object.entries(value)) {
    if (name.includes('\0')) return path;
    const dottedPath = path === '' ? name : `${path}.${name}`;
    const nestedPath = findNul(member, Array.isArray(value) ? `${path}[${name}]` : dottedPath);
    if (nestedPath !== undefined) return nestedPath;
  }
  return undefined;
}
