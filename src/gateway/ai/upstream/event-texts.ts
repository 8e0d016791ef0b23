// Finds the strings that a model has written in the bytes of an event or an answer, without parsing
// the JSON.
import type { Member } from './json-members.ts';

/** One text: the offsets between its quotes, and its length as unescaped UTF-8. */
export interface EventText {
  start: number;
  end: number;
  bytes: number;
  isReasoning: boolean;
}

const quote = 0x22;
const backslash = 0x5c;

// Matches the members of all formats that hold text of a model, up to the first character
// of the text. The text itself is scanned by readText: a regular expression would exhaust
// its stack on a long one.
const textMember =
  /"(content|text|refusal|arguments|partial_json|reasoning_content|reasoning|thinking)"\s*:\s*"/g;
const reasoningMember = /^(?:reasoning|thinking)/;

/**
 * The texts in the members that `textMembers` names. `siblings` are all members of the event.
 */
export function findTexts(
  bytes: Buffer,
  siblings: readonly Member[],
  textMembers: readonly string[],
): EventText[] {
  const texts: EventText[] = [];
  for (const member of siblings) {
    if (!textMembers.includes(member.name)) continue;
    if (bytes[member.start] === quote) texts.push(readPlainDelta(bytes, member, siblings));
    else addNestedTexts(texts, bytes, member);
  }
  return texts;
}

/** A delta that is a plain string; the event's type shows whether it is reasoning. */
function readPlainDelta(bytes: Buffer, { start, end }: Member, siblings: readonly Member[]): EventText {
  const type = siblings.find(({ name }) => name === 'type');
  const isReasoning =
    type !== undefined && bytes.toString('latin1', type.start, type.end).includes('reasoning');
  return { start: start + 1, end: end - 1, bytes: readText(bytes, start + 1).bytes, isReasoning };
}

function addNestedTexts(texts: EventText[], bytes: Buffer, { start, end }: Member): void {
  const source = bytes.toString('latin1', start, end);
  let reasoningName: string | undefined;
  textMember.lastIndex = 0;
  for (let match = textMember.exec(source); match !== null; match = textMember.exec(source)) {
    const textStart = start + textMember.lastIndex;
    const text = readText(bytes, textStart);
    textMember.lastIndex = text.end - start + 1;
    const name = match[1] ?? '';
    const isReasoning = reasoningMember.test(name);
    if (text.bytes === 0) continue;
    // Some servers repeat the same reasoning under `reasoning` and `reasoning_content`. Only the first of the
    // two names counts; an answer may have several blocks of reasoning under it.
    if (isReasoning && name !== (reasoningName ??= name)) continue;
    texts.push({ start: textStart, end: text.end, bytes: text.bytes, isReasoning });
  }
}

// Scans a JSON string from its first character to the closing quote; `bytes` is its
// length as unescaped UTF-8.
function readText(source: Buffer, start: number): { end: number; bytes: number } {
  let bytes = 0;
  for (let offset = start; offset < source.length; offset += 1) {
    const byte = source[offset];
    if (byte === quote) return { end: offset, bytes };
    bytes += 1;
    if (byte !== backslash) continue;
    offset += 1;
    if (source[offset] !== 0x75) continue;
    bytes += utf8Bytes(Number.parseInt(source.toString('latin1', offset + 1, offset + 5), 16)) - 1;
    offset += 4;
  }
  return { end: source.length, bytes };
}

// Each half of a surrogate pair counts as two of the pair's four bytes.
function utf8Bytes(codeUnit: number): number {
  if (codeUnit < 0x80) return 1;
  return codeUnit < 0x800 || (codeUnit >= 0xd800 && codeUnit <= 0xdfff) ? 2 : 3;
}
