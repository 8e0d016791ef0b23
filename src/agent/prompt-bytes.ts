// Counts the bytes of a prompt's texts and files as JSON, without the names and brackets around them. It does
// not serialize the prompt, which would take a second for a session of some hundred megabytes. The gateway
// rejects longer bodies with 413.
import { nextTurn } from '../kernel/async.ts';

/** Longest prompt that the gateway accepts, in bytes of JSON. */
export const maxPromptBytes = 10 * 1024 * 1024;

/** Whether the prompt is longer than this share of the gateway's limit. */
export async function exceedsGatewayLimit(prompt: unknown, share = 1): Promise<boolean> {
  const maxBytes = maxPromptBytes * share;
  // The upper bound is nearly always enough. The exact count takes a nanosecond per byte; the pauses
  // before and after it let other requests run.
  if (promptBytes(prompt, maxBytes, maxEscapedBytes) <= maxBytes) return false;
  await nextTurn();
  const bytes = promptBytes(prompt, maxBytes, escapedBytes);
  await nextTurn();
  return bytes > maxBytes;
}

/** The bytes of all texts and files in the value; stops counting beyond `limit`. */
function promptBytes(
  value: unknown,
  limit: number,
  textBytes: (text: string, limit: number) => number,
): number {
  if (typeof value === 'string') return textBytes(value, limit);
  if (typeof value !== 'object' || value === null) return 0;
  // Files are sent in base64.
  if (ArrayBuffer.isView(value)) return Math.ceil(value.byteLength / 3) * 4;
  let bytes = 0;
  for (const member of Object.values(value)) {
    bytes += promptBytes(member, limit - bytes, textBytes);
    if (bytes > limit) break;
  }
  return bytes;
}

// An upper bound: JSON writes a control character as \u0000, six bytes.
function maxEscapedBytes(text: string): number {
  return text.length * 6;
}

// Length of each UTF-8 byte in JSON: two characters for \b, \t, \n, \f, \r, \" and
// \\, six for other control characters.
const escapedLengths = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (['\b', '\t', '\n', '\f', '\r', '"', '\\'].includes(String.fromCharCode(byte))) return 2;
  return byte < 0x20 ? 6 : 1;
});

function escapedBytes(text: string, limit: number): number {
  const length = Buffer.byteLength(text);
  if (length > limit) return length;
  const utf8 = Buffer.from(text);
  let bytes = 0;
  for (let index = 0; index < utf8.length; index += 1)
    bytes += escapedLengths[utf8[index] as number] as number;
  return bytes;
}
