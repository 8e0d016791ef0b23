// Edits JSON as text: sets or removes a member and keeps everything else byte for byte, including the
// comments and trailing commas that the settings files of several tools allow.
import { SettingError } from '../../../kernel/settings.ts';

type JsonNode = { start: number; end: number } & (
  | { type: 'object'; members: { key: string; keyStart: number; value: JsonNode }[] }
  | { type: 'array'; items: JsonNode[] }
  | { type: 'scalar'; value: unknown }
);

/**
 * Returns the text with the member set. Creates missing objects on the path. Throws when the path leads
 * through a value that is not an object.
 */
export function setMember(text: string, path: readonly string[], value: unknown): string {
  return setText(text, path, (indent) => stringify(value, indent));
}

/** Like `setMember`, but takes the value as text, as `memberText` returned it. */
export function restoreMember(text: string, path: readonly string[], valueText: string): string {
  return setText(text, path, () => valueText);
}

/** The text of a member's value; undefined when there is no such member. */
export function memberText(text: string, path: readonly string[]): string | undefined {
  const node = find(parse(text), path);
  return node === undefined ? undefined : text.slice(node.start, node.end);
}

/** The value of a member; undefined when there is no such member. */
export function memberValue(text: string, path: readonly string[]): unknown {
  const node = find(parse(text), path);
  return node === undefined ? undefined : valueOf(node);
}

/**
 * The path of the outermost object or member that `setMember` would create, which undoing it must remove;
 * the whole path if nothing is missing.
 */
export function createdPath(text: string, path: readonly string[]): readonly string[] {
  const root = parse(text);
  const length = path.findIndex((_key, index) => find(root, path.slice(0, index + 1)) === undefined);
  return length < 0 ? path : path.slice(0, length + 1);
}

export function removeMember(text: string, path: readonly string[]): string {
  const parent = find(parse(text), path.slice(0, -1));
  if (parent?.type !== 'object') return text;
  const index = parent.members.findLastIndex(({ key }) => key === path.at(-1));
  const spans = parent.members.map(({ keyStart, value }) => ({ start: keyStart, end: value.end }));
  return index < 0 ? text : removeEntry(text, spans, index, parent.start);
}

/** Puts an item at the beginning of an array. Creates the array if it is missing. */
export function prependItem(text: string, path: readonly string[], item: unknown): string {
  const array = find(parse(text), path);
  if (array === undefined) return setMember(text, path, [item]);
  if (array.type !== 'array') throw new SettingError(`${path.join('.')} is not a list.`);
  const [firstItem] = array.items;
  if (firstItem === undefined) return setMember(text, path, [item]);
  const indent = indentAt(text, firstItem.start);
  const gap = text.slice(array.start + 1, firstItem.start);
  const separator = gap.includes('\n') ? `\n${indent}` : ' ';
  return `${text.slice(0, firstItem.start)}${stringify(item, indent)},${separator}${text.slice(firstItem.start)}`;
}

/** Removes the first item that equals the value. */
export function removeItem(text: string, path: readonly string[], item: unknown): string {
  const array = find(parse(text), path);
  if (array?.type !== 'array') return text;
  const index = array.items.findIndex((entry) => JSON.stringify(valueOf(entry)) === JSON.stringify(item));
  return index < 0 ? text : removeEntry(text, array.items, index, array.start);
}

function setText(text: string, path: readonly string[], render: (indent: string) => string): string {
  const root = parse(text);
  const existing = find(root, path);
  if (existing !== undefined)
    return text.slice(0, existing.start) + render(indentAt(text, existing.start)) + text.slice(existing.end);
  const depth = createdPath(text, path).length;
  const parent = find(root, path.slice(0, depth - 1));
  if (parent?.type !== 'object')
    throw new SettingError(`${path.slice(0, depth - 1).join('.') || 'the file'} is not an object.`);
  const [key = '', ...rest] = path.slice(depth - 1);
  const lastMember = parent.members.at(-1);
  const indent =
    lastMember === undefined ? `${indentAt(text, parent.start)}  ` : indentAt(text, lastMember.keyStart);
  const entry = `${JSON.stringify(key)}: ${nest(rest, indent, render)}`;
  if (lastMember === undefined) {
    const close = parent.end - 1;
    const before = text.slice(0, close).trimEnd();
    return `${before}\n${indent}${entry}\n${indentAt(text, parent.start)}${text.slice(close)}`;
  }
  const comma = commaAfter(text, lastMember.value.end);
  const insertAt = comma ?? lastMember.value.end;
  // A comment after the last member stays on its line, before the new member.
  const comment = /^[ \t]*(?:\/\/[^\n]*|\/\*[^\n]*?\*\/)/.exec(text.slice(insertAt))?.[0] ?? '';
  const textAfter = text.slice(insertAt + comment.length);
  const separator = comma === undefined ? ',' : '';
  return `${text.slice(0, insertAt)}${separator}${comment}\n${indent}${entry}${textAfter}`;
}

/** Renders the value, wrapped in an object of one member for each missing key. */
function nest(keys: readonly string[], indent: string, render: (indent: string) => string): string {
  const [key, ...innerKeys] = keys;
  if (key === undefined) return render(indent);
  const innerIndent = `${indent}  `;
  return `{\n${innerIndent}${JSON.stringify(key)}: ${nest(innerKeys, innerIndent, render)}\n${indent}}`;
}

function removeEntry(
  text: string,
  entries: readonly { start: number; end: number }[],
  index: number,
  parentStart: number,
): string {
  const entry = entries[index];
  if (entry === undefined) return text;
  const previous = entries[index - 1];
  const comma = commaAfter(text, entry.end);
  // Remove the entry with the comma after it, and its line; the last entry goes with the preceding comma.
  // Comments before the entry stay.
  if (comma !== undefined) {
    const start = previous === undefined ? parentStart + 1 : (commaAfter(text, previous.end) ?? previous.end);
    const lead = /^\s*/.exec(text.slice(start, entry.start))?.[0] ?? '';
    const isAlone = start + lead.length === entry.start;
    return text.slice(0, isAlone ? start : entry.start) + text.slice(comma);
  }
  const start = previous === undefined ? parentStart + 1 : previous.end;
  const precedingComma = previous === undefined ? undefined : commaAfter(text, previous.end);
  const textBetween =
    precedingComma === undefined
      ? text.slice(start, entry.start)
      : text.slice(start, precedingComma - 1) + text.slice(precedingComma, entry.start);
  const comments = textBetween.trimEnd();
  const textAfter = text.slice(entry.end);
  // What follows a line comment must be on another line.
  const endsInLineComment = /\/\/[^\n]*$/.test(comments);
  const lineBreak = endsInLineComment && !/^[ \t]*\r?\n/.test(textAfter) ? '\n' : '';
  return text.slice(0, start) + comments + lineBreak + textAfter;
}

function find(root: JsonNode, path: readonly string[]): JsonNode | undefined {
  let node: JsonNode | undefined = root;
  for (const key of path) {
    if (node?.type !== 'object') return undefined;
    node = node.members.findLast((member) => member.key === key)?.value;
  }
  return node;
}

function valueOf(node: JsonNode): unknown {
  if (node.type === 'scalar') return node.value;
  if (node.type === 'array') return node.items.map(valueOf);
  return Object.fromEntries(node.members.map(({ key, value }) => [key, valueOf(value)]));
}

function stringify(value: unknown, indent: string): string {
  return JSON.stringify(value, null, 2).replaceAll('\n', `\n${indent}`);
}

/** The white space at the beginning of the line that contains the position. */
function indentAt(text: string, position: number): string {
  const line = text.slice(text.lastIndexOf('\n', position - 1) + 1, position);
  return /^[ \t]*/.exec(line)?.[0] ?? '';
}

function commaAfter(text: string, position: number): number | undefined {
  const next = skipSpace(text, position);
  return text[next] === ',' ? next + 1 : undefined;
}

/** Skips white space and comments. */
function skipSpace(text: string, position: number): number {
  const space = /(?:\s|\/\/[^\n]*|\/\*[\s\S]*?\*\/|\uFEFF)*/y;
  space.lastIndex = position;
  return position + (space.exec(text)?.[0].length ?? 0);
}

function parse(text: string): JsonNode {
  const start = skipSpace(text, 0);
  if (start === text.length) throw new SettingError('it is empty; write {} into it or remove it.');
  const node = parseValue(text, start);
  if (skipSpace(text, node.end) !== text.length) throw malformedError(text, node.end);
  return node;
}

function parseValue(text: string, start: number): JsonNode {
  if (text[start] === '{') return parseObject(text, start);
  if (text[start] === '[') return parseArray(text, start);
  const scalar = /"(?:[^"\\\n]|\\.)*"|[-+.\w]+/y;
  scalar.lastIndex = start;
  const [word] = scalar.exec(text) ?? [];
  if (word === undefined) throw malformedError(text, start);
  try {
    return { type: 'scalar', start, end: start + word.length, value: JSON.parse(word) as unknown };
  } catch {
    throw malformedError(text, start);
  }
}

function parseObject(text: string, start: number): JsonNode {
  const members: { key: string; keyStart: number; value: JsonNode }[] = [];
  const end = parseEntries(text, start, '}', (position) => {
    const key = parseValue(text, position);
    const colon = skipSpace(text, key.end);
    if (key.type !== 'scalar' || typeof key.value !== 'string' || text[colon] !== ':')
      throw malformedError(text, position);
    const value = parseValue(text, skipSpace(text, colon + 1));
    members.push({ key: key.value, keyStart: position, value });
    return value.end;
  });
  return { type: 'object', start, end, members };
}

function parseArray(text: string, start: number): JsonNode {
  const items: JsonNode[] = [];
  const end = parseEntries(text, start, ']', (position) => {
    const item = parseValue(text, position);
    items.push(item);
    return item.end;
  });
  return { type: 'array', start, end, items };
}

/** Returns the position after the closing bracket. */
function parseEntries(
  text: string,
  start: number,
  close: string,
  parseEntry: (position: number) => number,
): number {
  let position = skipSpace(text, start + 1);
  while (text[position] !== close) {
    position = skipSpace(text, parseEntry(position));
    if (text[position] === ',') position = skipSpace(text, position + 1);
    else if (text[position] !== close) throw malformedError(text, position);
  }
  return position + 1;
}

function malformedError(text: string, position: number): SettingError {
  const line = text.slice(0, position).split('\n').length;
  return new SettingError(
    `line ${line} is not valid JSON; correct it, or use --print and write it yourself.`,
  );
}
