// Strict base64 for the files in request bodies.
import { Problem } from '../../../kernel/problem.ts';

/**
 * The bytes of a base64 string. Throws a 400 that names `param` for any other string. A regular
 * expression over 34 MB of text would block the event loop for a third of a second, so the
 * length is checked instead: Node skips characters that are not base64, and the result is then
 * shorter than the text requires.
 */
export function decodeBase64(text: string, param: string): Uint8Array {
  const content = Buffer.from(text, 'base64');
  const padding = paddingLength(text);
  const digits = text.length - padding;
  // Base64 never has 4n + 1 characters, with or without its padding.
  const isComplete =
    content.byteLength === Math.floor((digits * 3) / 4) && digits % 4 !== 1 && text.length % 4 !== 1;
  // Node reads base64url as well.
  if (!isComplete || text.includes('-') || text.includes('_')) {
    throw new Problem('bad_request', 'invalid_request', `The member ${param} is not base64.`, {
      param,
      details: [{ path: param, message: 'is not base64' }],
    });
  }
  return new Uint8Array(content);
}

function paddingLength(text: string): number {
  if (text.endsWith('==')) return 2;
  return text.endsWith('=') ? 1 : 0;
}
