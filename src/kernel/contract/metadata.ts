// JSON of the caller's own making that is to be stored as it is: how large it may be, and what PostgreSQL's
// jsonb does not take although JSON does.
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

function unfit(param: string, message: string): Problem {
  return new Problem('bad_request', 'invalid_request', `\`${param}\` ${message}.`, { param, details: [{ path: param, message }] });
}
