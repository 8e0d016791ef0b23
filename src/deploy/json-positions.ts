// JSON with places: what stands where in a file that a person writes, so that whatever is wrong with it can be said
// with line and column. It takes exactly what JSON.parse takes, and refuses a member that is there twice.

/** One value of a document and where it begins. */
export interface JsonNode {
  value: unknown;
  start: number;
  end: number;
  /** Of an object: where each name stands, and its value. */
  members?: ReadonlyMap<string, { start: number; node: JsonNode }>;
  items?: readonly JsonNode[];
}

export interface Place {
  line: number;
  column: number;
}

/** A text that is no JSON; `at` is the offset of the character at fault. */
export class JsonError extends Error {
  override name = 'JsonError';
  readonly at: number;

  constructor(at: number, message: string) {
    super(message);
    this.at = at;
  }
}

const maximumDepth = 64;

/** Throws a JsonError. A byte order mark at the start is passed over, as editors write it. */
export function parseJsonPlaces(text: string): JsonNode {
  let at = text.startsWith('\uFEFF') ? 1 : 0;

  function fail(message: string, place = at): never {
    throw new JsonError(place, message);
  }

  function skip(): void {
    while (at < text.length && ' \t\r\n'.includes(text[at] ?? '')) at += 1;
  }

  function found(): string {
    return at >= text.length ? 'the end of the file' : `\`${text[at]}\``;
  }

  function string(): string {
    const start = at;
    for (at += 1; text[at] !== '"'; at += 1) {
      if (at >= text.length || text[at] === '\n') fail('a text is not closed', start);
      if (text[at] === '\\') at += 1;
    }
    at += 1;
    return scalar(start, 'is no valid text') as string;
  }

  function scalar(start: number, message: string): unknown {
    try {
      return JSON.parse(text.slice(start, at)) as unknown;
    } catch {
      return fail(message, start);
    }
  }

  function object(depth: number): JsonNode {
    const start = at;
    const members = new Map<string, { start: number; node: JsonNode }>();
    at += 1;
    skip();
    while (text[at] !== '}') {
      if (text[at] !== '"') fail(`a member's name in quotes was expected, not ${found()}`);
      const nameAt = at;
      const name = string();
      if (members.has(name)) fail(`${JSON.stringify(name)} appears more than once`, nameAt);
      skip();
      if (text[at] !== ':') fail(`\`:\` was expected, not ${found()}`);
      at += 1;
      members.set(name, { start: nameAt, node: value(depth + 1) });
      skip();
      if (text[at] === ',') {
        at += 1;
        skip();
        if (text[at] === '}') fail('a member was expected behind the comma');
      } else if (text[at] !== '}') fail(`\`,\` or \`}\` was expected, not ${found()}`);
    }
    at += 1;
    // As JSON.parse makes it, where `__proto__` is a member like any other.
    const made = Object.fromEntries([...members].map(([name, { node }]) => [name, node.value]));
    return { value: made, start, end: at, members };
  }

  function array(depth: number): JsonNode {
    const start = at;
    const items: JsonNode[] = [];
    at += 1;
    skip();
    while (text[at] !== ']') {
      items.push(value(depth + 1));
      skip();
      if (text[at] === ',') {
        at += 1;
        skip();
        if (text[at] === ']') fail('a value was expected behind the comma');
      } else if (text[at] !== ']') fail(`\`,\` or \`]\` was expected, not ${found()}`);
    }
    at += 1;
    return { value: items.map((item) => item.value), start, end: at, items };
  }

  function value(depth: number): JsonNode {
    skip();
    if (depth > maximumDepth) fail(`is nested more than ${maximumDepth} levels deep`);
    const start = at;
    if (text[at] === '{') return object(depth);
    if (text[at] === '[') return array(depth);
    if (text[at] === '"') return { value: string(), start, end: at };
    const word = /[-+.\w]+/y;
    word.lastIndex = at;
    const [taken] = word.exec(text) ?? [];
    if (taken === undefined) fail(`a value was expected, not ${found()}`);
    at += taken.length;
    return {
      value: scalar(start, `\`${taken.slice(0, 40)}\` is no value; texts stand in quotes`),
      start,
      end: at,
    };
  }

  const root = value(0);
  skip();
  if (at < text.length) fail(`nothing more was expected, but ${found()}`);
  return root;
}

/** Line and column of an offset, both from 1. */
export function placeOf(text: string, offset: number): Place {
  const before = text.slice(0, offset);
  const line = before.split('\n').length;
  return { line, column: offset - before.lastIndexOf('\n') };
}

/** Where the member that the names lead to stands: its name, or what comes nearest to it. */
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
