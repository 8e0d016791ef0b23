// Renders attachments for a model: one `<file>` element each, before the text of the input.
// No name, type or content can end an element early, and the content can be restored.

import { nextTurn } from '../../../kernel/async.ts';

export interface RenderedFile {
  attachmentId: string;
  fileName: string;
  contentType: string;
  sizeBytes: number;
  /** Plain text or base64. */
  text: string;
  isBase64: boolean;
}

/** `nonce` was unknown when the contents were written, so that none of them can contain it. */
export async function renderFiles(files: readonly RenderedFile[], nonce: string): Promise<string> {
  const elements: string[] = [];
  for (const { attachmentId, fileName, contentType, sizeBytes, text, isBase64 } of files) {
    const attributes = Object.entries({
      id: attachmentId,
      name: fileName,
      type: contentType,
      size: String(sizeBytes),
      ...(isBase64 ? { encoding: 'base64' } : {}),
      nonce,
    });
    const content = isBase64 ? text : await defuseInPieces(text);
    elements.push(
      `<file ${attributes.map(([name, value]) => `${name}="${escapeAttribute(value)}"`).join(' ')}>\n${content}\n</file>`,
    );
  }
  return elements.join('\n');
}

const entities: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
  '\n': '&#10;',
  '\r': '&#13;',
  '\t': '&#9;',
};

function escapeAttribute(value: string): string {
  return (
    value
      .toWellFormed()
      .replace(/[&<>"'\n\r\t]/g, (character) => entities[character] as string)
      // Characters that XML does not allow, and those that change the direction of text.
      .replace(/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]/gu, '\ufffd')
  );
}

// `<file` and `</file` in every form that a lenient parser might accept, including with the backslashes that
// `defuse` adds: each look-alike gets exactly one more backslash, and removing one restores the original.
const lookAlike = /<(?=[\s\\]*(?:\/[\s\\]*)?file(?![\p{L}\p{N}_]))/giu;

// 8 MiB full of look-alikes would block the event loop for more than 100 ms; a piece takes less than 10 ms.
const pieceLength = 256 * 1024;

/** `defuse`, one piece per turn of the event loop. */
async function defuseInPieces(text: string): Promise<string> {
  const pieces: string[] = [];
  for (let start = 0; start < text.length;) {
    // A look-alike contains one `<`, so a cut before the next candidate splits none.
    const offset = text.slice(start + pieceLength).search(candidate);
    const end = offset < 0 ? text.length : start + pieceLength + offset;
    pieces.push(defuse(text.slice(start, end)));
    start = end;
    if (start < text.length) await nextTurn();
  }
  return pieces.join('');
}

/**
 * Adds a backslash after the `<` of everything that looks like a `<file>` element.
 * Linear in the length of the text.
 */
export function defuse(text: string): string {
  if (/^[\x00-\x7f]*$/.test(text)) return text.replace(lookAlike, '<\\');
  // Linear: a look-alike contains no second `<`, so no text is scanned twice.
  return text.replace(candidate, (character, position: number) =>
    isLookAlike(text, position + 1) ? `${character}\\` : character,
  );
}

// Characters whose compatibility form (NFKC) is `<`: itself, the small and the full-width one.
const candidate = /[<\ufe64\uff1c]/g;

// Invisible characters.
const invisibleCharacters = /[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Mn}]/gu;
const elementName = 'file';

/**
 * `lookAlike` for text that is not ASCII: full-width letters count as letters, and
 * invisible characters are skipped. `start` is the position after the `<`.
 */
function isLookAlike(text: string, start: number): boolean {
  let hasSlash = false;
  let matchedLength = 0;
  for (let position = start; position < text.length;) {
    const code = text.codePointAt(position) as number;
    position += code > 0xffff ? 2 : 1;
    for (const character of compatibilityForm(code)) {
      if (matchedLength === elementName.length) return !/^[\p{L}\p{N}_]$/u.test(character);
      if (character.toLowerCase() === elementName[matchedLength]) matchedLength += 1;
      else if (matchedLength > 0) return false;
      else if (character === '/' && !hasSlash) hasSlash = true;
      else if (character !== ' ' && character !== '\\' && !/^\s$/u.test(character)) return false;
    }
  }
  return matchedLength === elementName.length;
}

// Cache of compatibility forms: a lookup costs 200 ns, and texts repeat their characters.
const forms = new Map<number, string>();
const maxForms = 4_096;

function compatibilityForm(code: number): string {
  const existing = forms.get(code);
  if (existing !== undefined) return existing;
  const character = String.fromCodePoint(code);
  const form = code < 0x80 ? character : character.replace(invisibleCharacters, '').normalize('NFKC');
  if (forms.size < maxForms) forms.set(code, form);
  return form;
}
