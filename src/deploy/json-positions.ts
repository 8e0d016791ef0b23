// A JSON parser that records the position of every value, so that errors in a handwritten file have a line
// and a column. It accepts the same texts as JSON.parse, except texts with duplicate members or with more
// than 64 levels below the root.

/** A value and its position in the text. */
export interface JsonNode {
  value: unknown;
  start: number;
  end: number;
  /** For an object: the position of each name, and its value. */
  members?: ReadonlyMap<string, { start: number; node: JsonNode }>;
  items?: readonly JsonNode[];
}

export interface TextPosition {
  line: number;
  column: number;
}

/** Thrown for a text that is not JSON. */
export class JsonError extends Error {
  override name = 'JsonError';
  /** The offset of the first unexpected character. */
  readonly offset: number;

  constructor(offset: number, message: string) {
    super(message);
    this.offset = offset;
  }
}

const maxDepth = 64;

/** Throws a JsonError. Skips a byte order mark, which some editors write. */
export function parseJsonWithPositions(text: string): JsonNode {
  const reader: Reader = { text, offset: text.startsWith('\uFEFF') ? 1 : 0 };
  const root = readValue(reader, 0);
  skipSpace(reader);
  if (reader.offset < text.length)
    fail(reader, `the end of the file was expected, not ${currentToken(reader)}`);
  return root;
}

/** The text, and the offset of the next character to read. */
interface Reader {
  readonly text: string;
  offset: number;
}

function readValue(reader: Reader, depth: number): JsonNode {
  skipSpace(reader);
  if (depth > maxDepth) fail(reader, `the value is nested more than ${maxDepth} levels deep`);
  const start = reader.offset;
  switch (reader.text[start]) {
    case '{':
      return readObject(reader, depth);
    case '[':
      return readArray(reader, depth);
    case '"':
      return { value: readString(reader), start, end: reader.offset };
    default:
      return readLiteral(reader);
  }
}

function readObject(reader: Reader, depth: number): JsonNode {
  const start = reader.offset;
  const members = new Map<string, { start: number; node: JsonNode }>();
  reader.offset += 1;
  skipSpace(reader);
  while (reader.text[reader.offset] !== '}') {
    const nameStart = reader.offset;
    if (reader.text[nameStart] !== '"')
      fail(reader, `a member's name in quotes was expected, not ${currentToken(reader)}`);
    const name = readString(reader);
    if (members.has(name)) fail(reader, `${JSON.stringify(name)} appears more than once`, nameStart);
    skipSpace(reader);
    if (reader.text[reader.offset] !== ':') fail(reader, `\`:\` was expected, not ${currentToken(reader)}`);
    reader.offset += 1;
    members.set(name, { start: nameStart, node: readValue(reader, depth + 1) });
    readSeparator(reader, '}', 'a member was expected after the comma');
  }
  reader.offset += 1;
  // fromEntries makes `__proto__` a member like any other, as JSON.parse does.
  const value = Object.fromEntries([...members].map(([name, { node }]) => [name, node.value]));
  return { value, start, end: reader.offset, members };
}

function readArray(reader: Reader, depth: number): JsonNode {
  const start = reader.offset;
  const items: JsonNode[] = [];
  reader.offset += 1;
  skipSpace(reader);
  while (reader.text[reader.offset] !== ']') {
    items.push(readValue(reader, depth + 1));
    readSeparator(reader, ']', 'a value was expected after the comma');
  }
  reader.offset += 1;
  return { value: items.map((item) => item.value), start, end: reader.offset, items };
}

/** Reads a comma, which another value must follow, or stops at the closing bracket. */
function readSeparator(reader: Reader, close: '}' | ']', message: string): void {
  skipSpace(reader);
  if (reader.text[reader.offset] === close) return;
  if (reader.text[reader.offset] !== ',')
    fail(reader, `\`,\` or \`${close}\` was expected, not ${currentToken(reader)}`);
  reader.offset += 1;
  skipSpace(reader);
  if (reader.text[reader.offset] === close) fail(reader, message);
}

function readString(reader: Reader): string {
  const { text, offset: start } = reader;
  for (reader.offset += 1; text[reader.offset] !== '"'; reader.offset += 1) {
    if (reader.offset >= text.length || text[reader.offset] === '\n')
      fail(reader, 'a string is not closed', start);
    if (text[reader.offset] === '\\') reader.offset += 1;
  }
  reader.offset += 1;
  return parseToken(reader, start, 'the string is not valid') as string;
}

/** Reads a number, true, false or null. */
function readLiteral(reader: Reader): JsonNode {
  const start = reader.offset;
  const pattern = /[-+.\w]+/y;
  pattern.lastIndex = start;
  const [word] = pattern.exec(reader.text) ?? [];
  if (word === undefined) return fail(reader, `a value was expected, not ${currentToken(reader)}`);
  reader.offset += word.length;
  const message = `\`${word.slice(0, 40)}\` is not a value; strings need quotes`;
  return { value: parseToken(reader, start, message), start, end: reader.offset };
}

/** Lets JSON.parse check the token from `start` to the current offset. */
function parseToken(reader: Reader, start: number, message: string): unknown {
  try {
    return JSON.parse(reader.text.slice(start, reader.offset)) as unknown;
  } catch {
    return fail(reader, message, start);
  }
}

function skipSpace(reader: Reader): void {
  while (reader.offset < reader.text.length && ' \t\r\n'.includes(reader.text[reader.offset] ?? ''))
    reader.offset += 1;
}

function currentToken({ text, offset }: Reader): string {
  return offset >= text.length ? 'the end of the file' : `\`${text[offset]}\``;
}

function fail(reader: Reader, message: string, offset = reader.offset): never {
  throw new JsonError(offset, message);
}

/** Line and column of an offset, both from 1. */
export function positionOf(text: string, offset: number): TextPosition {
  const textBefore = text.slice(0, offset);
  const line = textBefore.split('\n').length;
  return { line, column: offset - textBefore.lastIndexOf('\n') };
}

/** The offset of the member at a path of names, or of its closest parent in the text. */
export function offsetOf(root: JsonNode, names: readonly string[]): number {
  let node = root;
  let offset = root.start;
  for (const name of names) {
    const member = node.members?.get(name);
    const next = member?.node ?? node.items?.[Number(name)];
    if (next === undefined) return offset;
    offset = member?.start ?? next.start;
    node = next;
  }
  return offset;
}
