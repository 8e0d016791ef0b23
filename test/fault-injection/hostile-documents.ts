// Builds hostile bodies for an operation from the examples of the contract. They are as large as
// the operation accepts, and as valid as possible, so that they pass the validator and reach the
// code after it.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export interface HostileBody {
  name: string;
  bytes: Buffer;
}

interface Filler {
  name: string;
  /** The repeated unit, as written in JSON. */
  unit: string;
  /** The beginning of the text, before the units. */
  head?: string;
}

/** Texts that make superlinear text scanners slow. */
const fillers: readonly Filler[] = [
  { name: 'letters', unit: 'a' },
  { name: 'spaces', unit: ' ' },
  { name: 'digits', unit: '7' },
  { name: 'newlines', unit: '\\n' },
  { name: 'quotes', unit: '\\"' },
  { name: 'backslashes', unit: '\\\\' },
  { name: 'accents', unit: 'e\u0301' },
  { name: 'accents and <file', unit: `${'e\u0301'.repeat(200)}<file ` },
  { name: 'less-than signs', unit: '<' },
  { name: 'less-than signs and backslashes', unit: '<\\\\ ' },
  { name: 'full-width <file', unit: '\uff1c\uff46\uff49\uff4c\uff45' },
  { name: 'invisible characters', unit: '<\u200b' },
  { name: 'compatibility ligatures', unit: '\ufdfa' },
  { name: 'surrogate pairs', unit: '\u{1f600}' },
  { name: 'escaped surrogate pairs', unit: '\\ud83d\\ude00' },
  { name: 'escaped letters', unit: '\\u0061' },
  { name: 'assignments', unit: 'A=1\\n' },
  { name: 'open quotes of several lines', unit: 'A=\\"1\\n' },
  { name: 'addresses', unit: 'a.a@' },
  { name: 'links', unit: 'http://a/' },
  { name: 'words', unit: 'Good morning, and ' },
  { name: 'base64', unit: 'QUJD' },
  { name: 'data URLs', unit: 'data:,' },
  { name: 'an endless data URL', unit: 'a', head: 'data:' },
  { name: 'lines', unit: 'x\\n' },
  { name: 'fences', unit: '```\\n' },
];

// Members whose values select what the operation does; another value would be refused at once.
const selectingMembers = new Set([
  'model',
  'role',
  'type',
  'media_type',
  'mediaType',
  'contentType',
  'format',
  'encoding',
  'plugin_name',
  'action_name',
  'tool_choice',
  'kind',
  'aspect_ratio',
]);
const marker = '\u0001hostile\u0001';

export interface HostileOptions {
  /** The first string of an example gets only the fillers that the other strings get. */
  few?: boolean;
  /**
   * Selects bodies by name; all of them without it. Building a body takes longer than sending it.
   */
  only?: (name: string) => boolean;
  /** Maximum bytes of a text by member name, where an operation allows less than its body limit. */
  maxTextBytes?: Readonly<Record<string, number>>;
}

/** Bodies of at most `maxBytes` each. */
export function hostileBodies(
  examples: readonly Json[],
  maxBytes: number,
  options: HostileOptions = {},
): HostileBody[] {
  const [first = {}] = examples;
  const bodies = [
    ...hostileRoots(first, maxBytes, options.only),
    ...examples.flatMap((example, index) =>
      hostileMembers(example, maxBytes, {
        prefix: examples.length > 1 ? `example ${index + 1}, ` : '',
        ...options,
      }),
    ),
  ];
  return bodies.filter(({ bytes }) => bytes.byteLength <= maxBytes);
}

/**
 * Bodies for every operation, whatever its members are: many or odd members beside those of the example, a
 * member `hostile` with many values, or a text that is no complete document. The maxima below keep a body just
 * under the limits of src/kernel/contract/json.ts: 10,000 members of an object, 100,000 objects,
 * lists, names and texts, and 500,000 values, of which 300,000 are the tokens of one embeddings call.
 */
function hostileRoots(
  example: Json,
  maxBytes: number,
  only: HostileOptions['only'] = () => true,
): HostileBody[] {
  const budget = maxBytes - 64 - Buffer.byteLength(JSON.stringify(example));
  const withExtraMember = (value: string) => withMembers(example, `"hostile":${value}`);
  const roots: { name: string; build: () => Buffer }[] = [
    {
      name: 'root: members',
      build: () =>
        withMembers(
          example,
          repeatMembers((index) => `"k${index}":0`, budget),
        ),
    },
    {
      name: 'root: members up to the limit',
      build: () =>
        withMembers(
          example,
          repeatMembers((index) => `"k${index}":0`, budget, 9_900),
        ),
    },
    {
      name: 'root: escaped names',
      build: () =>
        withMembers(
          example,
          repeatMembers((index) => `"\\u006b${index}":0`, budget, 9_900),
        ),
    },
    {
      name: 'root: one name twice',
      build: () => withMembers(example, `${repeatMembers((index) => `"k${index}":0`, budget, 9_900)},"k0":1`),
    },
    {
      name: 'root: names that are numbers',
      build: () =>
        withMembers(
          example,
          repeatMembers((index) => `"${(index * 7_919) % 4_000_000_000}":0`, budget, 9_900),
        ),
    },
    { name: 'root: objects', build: () => withExtraMember(`[${repeatMembers(() => '{}', budget)}]`) },
    {
      name: 'root: objects of many shapes',
      build: () => withExtraMember(`[${repeatMembers((index) => `{"k${index}":0}`, budget, 49_900)}]`),
    },
    { name: 'root: arrays', build: () => withExtraMember(`[${repeatMembers(() => '[]', budget, 99_000)}]`) },
    {
      name: 'root: numbers',
      build: () => withExtraMember(`[${repeatMembers((index) => String(index % 1_000), budget, 499_000)}]`),
    },
    {
      name: 'root: long numbers',
      build: () => withExtraMember(`[${repeatMembers(() => '0.123456789012345678e-7', budget, 499_000)}]`),
    },
    { name: 'root: one number', build: () => withExtraMember('1'.repeat(budget)) },
    {
      name: 'root: texts with escapes',
      build: () => withExtraMember(`[${repeatMembers((index) => `"\\u0041${index}"`, budget, 99_000)}]`),
    },
    {
      name: 'root: long names',
      build: () =>
        withMembers(
          example,
          repeatMembers((index) => `"${index}${'\\\\'.repeat(10_000)}":0`, budget),
        ),
    },
    {
      name: 'root: suspect names',
      build: () =>
        withExtraMember(
          `[${repeatMembers((index) => `{"__proto_${index % 10}":"\\u005f"}`, budget, 33_000)}]`,
        ),
    },
    {
      name: 'root: nesting',
      build: () =>
        withExtraMember(`[${repeatMembers(() => '['.repeat(60) + ']'.repeat(60), budget, 1_600)}]`),
    },
    { name: 'root: nesting without an end', build: () => Buffer.from('['.repeat(maxBytes)) },
    { name: 'root: spaces', build: () => Buffer.from(`${' '.repeat(budget)}${JSON.stringify(example)}`) },
    {
      name: 'root: an open text',
      build: () => Buffer.from(`"${'\\"'.repeat(Math.floor(maxBytes / 2) - 1)}`),
    },
  ];
  return roots.filter(({ name }) => only(name)).map(({ name, build }) => ({ name, bytes: build() }));
}

function hostileMembers(
  example: Json,
  maxBytes: number,
  { prefix, few = false, only = () => true, maxTextBytes = {} }: HostileOptions & { prefix: string },
): HostileBody[] {
  const members = membersOf(example);
  const bodies: HostileBody[] = [];
  const add = (name: string, path: Member['path'], write: (budget: number) => string): void => {
    if (only(`${prefix}${name}`))
      bodies.push({ name: `${prefix}${name}`, bytes: replaceAt(example, path, maxBytes, write) });
  };
  const longStrings = members.filter(
    ({ value, path }) => typeof value === 'string' && !selectingMembers.has(String(path.at(-1))),
  );
  for (const [index, { path }] of longStrings.entries()) {
    // The first string gets all fillers; the others get the fillers that have been slow in some
    // operation.
    const selection =
      few || index > 0
        ? fillers.filter(({ name }) =>
            ['accents and <file', 'quotes', 'spaces', 'words', 'an endless data URL'].includes(name),
          )
        : fillers;
    const maximum = maxTextBytes[String(path.at(-1))];
    for (const filler of selection) {
      const { name } = filler;
      add(`${dottedPath(path)}: ${name}`, path, (budget) => textOf(filler, budget, Number.POSITIVE_INFINITY));
      if (maximum !== undefined)
        add(`${dottedPath(path)} at its own limit: ${name}`, path, (budget) =>
          textOf(filler, budget, maximum),
        );
    }
    add(
      `${dottedPath(path)}: many texts`,
      path,
      (budget) => `[${repeatMembers((item) => `"text ${item}"`, budget, 95_000)}]`,
    );
    add(
      `${dottedPath(path)}: tokens`,
      path,
      (budget) => `[${repeatMembers((item) => String(item % 50_000), budget, 300_000)}]`,
    );
  }
  for (const { path, value } of members) {
    if (Array.isArray(value) && value.length > 0) {
      const items = value.map((item) => JSON.stringify(item));
      add(
        `${dottedPath(path)}: many items`,
        path,
        (budget) =>
          `[${repeatMembers((item) => items[item % items.length] as string, budget, maxItems(items))}]`,
      );
    } else if (value !== null && typeof value === 'object' && !Array.isArray(value) && path.length > 0) {
      add(
        `${dottedPath(path)}: members`,
        path,
        (budget) => `{${repeatMembers((item) => `"k${item}":{"type":"string"}`, budget, 9_900)}}`,
      );
      const nestedSchema = `${'{"properties":'.repeat(25)}{}${'}'.repeat(25)}`;
      add(
        `${dottedPath(path)}: nesting`,
        path,
        (budget) => `{"a":[${repeatMembers(() => nestedSchema, budget, 1_800)}]}`,
      );
    }
  }
  return bodies;
}

/** Repeats the unit as often as it fits into `budget` bytes of JSON and `maximum` parsed bytes. */
function textOf({ unit, head = '' }: Filler, budget: number, maximum: number): string {
  const parsedBytes = Buffer.byteLength(JSON.parse(`"${unit}"`) as string);
  const remaining = budget - head.length;
  const repetitions = Math.min(
    Math.floor(remaining / Buffer.byteLength(unit)),
    Math.floor((maximum - head.length) / parsedBytes),
  );
  return `"${head}${unit.repeat(repetitions)}"`;
}

/**
 * Returns as many items as the parser accepts; each bracket and each pair of quotes counts as one
 * value.
 */
function maxItems(items: readonly string[]): number {
  const parts =
    items.reduce(
      (sum, item) =>
        sum + (item.match(/[{[]/g)?.length ?? 0) + Math.ceil((item.match(/"/g)?.length ?? 0) / 2),
      0,
    ) / items.length;
  return Math.floor(95_000 / Math.max(parts, 1));
}

interface Member {
  path: (string | number)[];
  value: Json;
}

/** The value and its members at any depth; of each list only the first two items. */
function membersOf(value: Json, path: (string | number)[] = []): Member[] {
  const entries: [string | number, Json][] = Array.isArray(value)
    ? value.slice(0, 2).map((item, index) => [index, item])
    : Object.entries(value !== null && typeof value === 'object' ? value : {});
  const descendants = entries.flatMap(([step, member]) => membersOf(member, [...path, step]));
  return [{ path, value }, ...descendants];
}

function dottedPath(path: readonly (string | number)[]): string {
  return path.length === 0 ? 'body' : path.join('.');
}

/** The example with another JSON text at the path; `write` gets the number of remaining bytes. */
function replaceAt(
  example: Json,
  path: readonly (string | number)[],
  maxBytes: number,
  write: (budget: number) => string,
): Buffer {
  const [before = '', after = ''] = JSON.stringify(withValueAt(example, path)).split(JSON.stringify(marker));
  const budget = maxBytes - Buffer.byteLength(before) - Buffer.byteLength(after) - 64;
  return Buffer.from(before + write(budget) + after);
}

function withValueAt(value: Json, [step, ...rest]: readonly (string | number)[]): Json {
  if (step === undefined) return marker;
  if (Array.isArray(value))
    return value.map((item, index) => (index === step ? withValueAt(item, rest) : item));
  return Object.fromEntries(
    Object.entries(value as Record<string, Json>).map(([name, member]) => [
      name,
      name === step ? withValueAt(member, rest) : member,
    ]),
  );
}

function withMembers(example: Json, members: string): Buffer {
  const text =
    example !== null && typeof example === 'object' && !Array.isArray(example)
      ? JSON.stringify(example)
      : '{}';
  return Buffer.from(`${text.slice(0, -1)}${text === '{}' ? '' : ','}${members}}`);
}

/** Comma-separated items, as many as there is room for. */
function repeatMembers(
  item: (index: number) => string,
  budget: number,
  maximum = Number.POSITIVE_INFINITY,
): string {
  const items: string[] = [];
  for (let size = 0, index = 0; index < maximum; index += 1) {
    const text = item(index);
    size += Buffer.byteLength(text) + 1;
    if (size > budget) break;
    items.push(text);
  }
  return items.join(',');
}
