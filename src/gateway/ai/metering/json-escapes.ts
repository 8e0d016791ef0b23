// The additional bytes of a string when the model reads it as JSON.

// A control character is one byte, and six as JSON (\u0000).
const controlCharacter = /[\u0000-\u0007\u000b\u000e-\u001f]/g;
const controlEscapeBytes = 5;
// The length of a piece. Each piece begins at a control character, and its characters are counted one by one.
const pieceLength = 4_096;
// A string of 10 MB must not block the event loop: after this many pieces, every character of a piece counts
// as a control character.
const maxCountedPieces = 256;

/** The additional bytes of the string's control characters in JSON; an upper bound for long strings. */
export function escapeBytesOf(text: string): number {
  let controls = 0;
  let offset = 0;
  for (let piece = 0; offset < text.length; piece += 1) {
    controlCharacter.lastIndex = offset;
    if (!controlCharacter.test(text)) break;
    const start = controlCharacter.lastIndex - 1;
    offset = Math.min(start + pieceLength, text.length);
    controls += piece < maxCountedPieces ? countControls(text, start, offset) : offset - start;
  }
  return controls * controlEscapeBytes;
}

function countControls(text: string, start: number, end: number): number {
  let controls = 0;
  for (let offset = start; offset < end; offset += 1) {
    const code = text.charCodeAt(offset);
    // Backspace, tab, line feed, form feed and carriage return are two bytes as JSON.
    if (code < 0x20 && !(code >= 0x08 && code <= 0x0d && code !== 0x0b)) controls += 1;
  }
  return controls;
}

// Longer texts are not counted character by character, so that 10 MB do not block the event loop.
const longestCounted = 2 ** 20;

/**
 * The number of characters that are one byte, and two in JSON: quotes, backslashes, line feeds and the like.
 * For a string above the limit, all its characters count.
 */
export function shortEscapesIn(text: string): number {
  if (text.length > longestCounted) return text.length;
  let count = 0;
  for (let offset = 0; offset < text.length; offset += 1) {
    const code = text.charCodeAt(offset);
    if (code === 0x22 || code === 0x5c || (code >= 0x08 && code <= 0x0d && code !== 0x0b)) count += 1;
  }
  return count;
}

const jsonMembers = new Set(['input', 'args', 'parameters', 'schema', 'input_schema', 'inputSchema']);
const resultMembers = new Set(['output', 'response']);

/**
 * Whether the model reads the nested value as JSON: inputs and schemas of tools, and results that are not
 * text. In JSON, a line feed or a quote takes two bytes. A tokenizer merges a hundred line feeds of plain
 * text into one token, but not their escapes.
 */
export function isReadAsJson(name: string, value: unknown): boolean {
  if (jsonMembers.has(name)) return true;
  if (!resultMembers.has(name) || typeof value !== 'object' || value === null || Array.isArray(value))
    return false;
  const { type } = value as { type?: unknown };
  return type === undefined || type === 'json' || type === 'error-json';
}
