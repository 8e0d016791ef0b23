// How a file is shown to a model: one `<file>` element each, before the instruction. The rule it keeps: whatever the
// name, the type and the content are, an element ends where we end it, and the content can be had back unchanged.

import { nextTurn } from '../../../kernel/async.ts';

export interface RenderedFile {
  attachmentId: string;
  fileName: string;
  contentType: string;
  sizeBytes: number;
  /** Shown as it is, or as base64. */
  text: string;
  isBase64: boolean;
}

/** The elements, in their order; `nonce` is new for every rendering, so that no content can know it. */
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
    const content = isBase64 ? text : await defuseInTurns(text);
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
      // What XML cannot hold at all, and the characters that turn text around.
      .replace(/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]/gu, '\ufffd')
  );
}

// `<file` and `</file` in every form that a lenient reader might take for them, and the same with the backslashes that
// this very function adds: so each look-alike gets exactly one more, and taking one away gives the original.
const lookAlike = /<(?=[\s\\]*(?:\/[\s\\]*)?file(?![\p{L}\p{N}_]))/giu;

// 8 MiB that are full of look-alikes take more than 100 ms in one go; a piece takes less than 10.
const pieceLength = 256 * 1024;

/** The same as `defuse`, a piece in a turn of the event loop. */
async function defuseInTurns(text: string): Promise<string> {
  const pieces: string[] = [];
  for (let from = 0; from < text.length;) {
    // A look-alike has no second `<`, so none spans a cut before one.
    const cut = text.slice(from + pieceLength).search(candidate);
    const end = cut < 0 ? text.length : from + pieceLength + cut;
    pieces.push(defuse(text.slice(from, end)));
    from = end;
    if (from < text.length) await nextTurn();
  }
  return pieces.join('');
}

/** The text with a backslash behind the `<` of everything that looks like our own element. Linear in the text. */
export function defuse(text: string): string {
  if (/^[\x00-\x7f]*$/.test(text)) return text.replace(lookAlike, '<\\');
  // Between two candidates no character is read twice, since a look-alike has no `<` but its first character.
  return text.replace(candidate, (character, at: number) =>
    isLookAlike(text, at + 1) ? `${character}\\` : character,
  );
}

// The characters that are a `<` in compatibility form: itself, the small one and the full-width one.
const candidate = /[<\ufe64\uff1c]/g;

// What no reader sees.
const unseen = /[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Mn}]/gu;
const elementName = 'file';

/**
 * Whether what follows a `<` makes it one of our elements for a lenient reader: full-width letters are letters to it, and
 * invisible characters are not there at all. The same as `lookAlike`, character by character.
 */
function isLookAlike(text: string, from: number): boolean {
  let hasSlash = false;
  let matched = 0;
  for (let at = from; at < text.length;) {
    const code = text.codePointAt(at) as number;
    at += code > 0xffff ? 2 : 1;
    for (const character of shownAs(code)) {
      if (matched === elementName.length) return !/^[\p{L}\p{N}_]$/u.test(character);
      if (character.toLowerCase() === elementName[matched]) matched += 1;
      else if (matched > 0) return false;
      else if (character === '/' && !hasSlash) hasSlash = true;
      else if (character !== ' ' && character !== '\\' && !/^\s$/u.test(character)) return false;
    }
  }
  return matched === elementName.length;
}

// Compatibility forms cost 200 ns each to look up, and texts repeat theirs.
const forms = new Map<number, string>();
const mostForms = 4_096;

function shownAs(code: number): string {
  const existing = forms.get(code);
  if (existing !== undefined) return existing;
  const character = String.fromCodePoint(code);
  const form = code < 0x80 ? character : character.replace(unseen, '').normalize('NFKC');
  if (forms.size < mostForms) forms.set(code, form);
  return form;
}
