// How a file is shown to a model: one `<file>` element each, before the instruction. The rule it keeps: whatever the
// name, the type and the content are, an element ends where we end it, and the content can be had back unchanged.

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
export function renderFiles(files: readonly RenderedFile[], nonce: string): string {
  return files
    .map(({ attachmentId, fileName, contentType, sizeBytes, text, isBase64 }) => {
      const attributes = Object.entries({
        id: attachmentId,
        name: fileName,
        type: contentType,
        size: String(sizeBytes),
        ...(isBase64 ? { encoding: 'base64' } : {}),
        nonce,
      });
      return `<file ${attributes.map(([name, value]) => `${name}="${escapeAttribute(value)}"`).join(' ')}>\n${defuse(text)}\n</file>`;
    })
    .join('\n');
}

const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&apos;', '\n': '&#10;', '\r': '&#13;', '\t': '&#9;' };

function escapeAttribute(value: string): string {
  return value
    .toWellFormed()
    .replace(/[&<>"'\n\r\t]/g, (character) => entities[character] as string)
    // What XML cannot hold at all, and the characters that turn text around.
    .replace(/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]/gu, '\ufffd');
}

// `<file` and `</file` in every form that a lenient reader might take for them, and the same with the backslashes that
// this very function adds: so each look-alike gets exactly one more, and taking one away gives the original.
const lookAlike = /<(?=[\s\\]*(?:\/[\s\\]*)?file(?![\p{L}\p{N}_]))/giu;

/** The text with a backslash behind the `<` of everything that looks like our own element. */
export function defuse(text: string): string {
  if (/^[\x00-\x7f]*$/.test(text)) return text.replace(lookAlike, '<\\');
  // Of what is seen character by character below, which takes a while for a large text; and seldom is there any.
  if (!/<[\s\\/]*file/iu.test(text.replace(unseen, '').normalize('NFKD'))) return text;
  const { plain, places } = plainForm(text);
  let result = '';
  let from = 0;
  for (const match of plain.matchAll(lookAlike)) {
    const at = places[match.index] as number;
    const end = at + characterLength(text, at);
    result += `${text.slice(from, end)}\\`;
    from = end;
  }
  return result + text.slice(from);
}

// What no reader sees.
const unseen = /[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Mn}]/gu;

// The text as a lenient reader might see it: full-width letters as letters, invisible characters not at all. `places`
// says where in the original each of its units comes from.
function plainForm(text: string): { plain: string; places: number[] } {
  let plain = '';
  const places: number[] = [];
  let at = 0;
  for (const character of text) {
    const code = character.codePointAt(0) as number;
    const shown = code < 0x80 ? character : character.replace(unseen, '').normalize('NFKC');
    for (let unit = 0; unit < shown.length; unit += 1) places.push(at);
    plain += shown;
    at += character.length;
  }
  return { plain, places };
}

function characterLength(text: string, at: number): number {
  return (text.codePointAt(at) as number) > 0xffff ? 2 : 1;
}
