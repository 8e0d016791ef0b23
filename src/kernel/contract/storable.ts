// What a caller may have kept as it is: how large its JSON may be, and what PostgreSQL does not take although JSON and
// queries do.
import { Problem } from '../problem.ts';

// A NUL, or half of a surrogate pair, as JSON.stringify writes them; an even number of backslashes before them
// stands for backslashes.
const unstorable = /(?<!\\)(?:\\\\)*\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})/;

/** Throws 400, naming `param`, unless the value can be stored and has at most `maxBytes` as JSON. */
export function requireStorable(value: unknown, param: string, maxBytes = 16 * 1024): void {
  const text = JSON.stringify(value) ?? '';
  if (Buffer.byteLength(text) > maxBytes) throw unfit(param, `may have ${maxBytes} bytes of JSON at most`);
  if (unstorable.test(text)) throw unfit(param, 'holds a NUL or half of a surrogate pair');
}

// What PostgreSQL says of a NUL: in a text, and in JSON.
const nulCodes = new Set(['22021', '22P05']);

/**
 * What the caller hears of an error: when the database refused a NUL that is in the request, that it is there. A NUL
 * is not refused sooner, since most of what is said to a model is never stored.
 */
export function explainNulByte(error: unknown, query: unknown, body: unknown): unknown {
  if (!(error instanceof Error) || !('code' in error) || !nulCodes.has(String(error.code))) return error;
  const path = nulIn(query, '') ?? nulIn(body, '');
  return path === undefined ? error : unfit(path.slice(0, 256), 'holds a NUL, which cannot be kept', error);
}

// Nested no deeper than a body may be.
function nulIn(value: unknown, path: string): string | undefined {
  if (typeof value === 'string') return value.includes('\0') ? path : undefined;
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [name, member] of Object.entries(value)) {
    if (name.includes('\0')) return path;
    const place = Array.isArray(value) ? `${path}[${name}]` : path === '' ? name : `${path}.${name}`;
    const found = nulIn(member, place);
    if (found !== undefined) return found;
  }
  return undefined;
}

function unfit(param: string, message: string, cause?: unknown): Problem {
  return new Problem('bad_request', 'invalid_request', `\`${param}\` ${message}.`, {
    param,
    details: [{ path: param, message }],
    cause,
  });
}
