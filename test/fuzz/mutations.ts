// Derives wrong requests from the contract's own examples: each mutation breaks one thing that a
// caller could break.
import fc from 'fast-check';

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** Values that parsers and databases often mishandle. */
export const hostileValues: readonly Json[] = [
  null,
  true,
  -1,
  0,
  1.5,
  1e308,
  2 ** 53 + 2,
  '',
  ' ',
  '\u0000',
  '\ud800',
  '\r\nx: y',
  '__proto__',
  "' OR 1=1--",
  '../../etc/passwd',
  '%00',
  'x'.repeat(70_000),
  [],
  [[]],
  {},
  { type: 'nonsense' },
  { constructor: { prototype: { polluted: true } } },
  [null],
  ['x', 1, {}],
];

/** The paths of all members and items of a document, including the root. */
function pathsOf(value: Json, path: readonly (string | number)[] = []): (string | number)[][] {
  const entries: [string | number, Json][] = Array.isArray(value)
    ? value.map((item, index) => [index, item])
    : Object.entries(value !== null && typeof value === 'object' ? value : {});
  const descendants = entries.flatMap(([step, member]) => pathsOf(member, [...path, step]));
  return [[...path], ...descendants];
}

/** An arbitrary that changes the document in one to three positions. */
export function mutationsOf(base: Json): fc.Arbitrary<Json> {
  const change = fc.tuple(
    fc.nat(),
    fc.oneof(
      fc.constantFrom(...hostileValues).map((value) => ({ kind: 'replace' as const, value })),
      fc.jsonValue({ maxDepth: 3 }).map((value) => ({ kind: 'replace' as const, value: value as Json })),
      fc.constant({ kind: 'remove' as const }),
      fc.string({ maxLength: 12 }).map((name) => ({ kind: 'add' as const, name })),
      fc.integer({ min: 2, max: 200 }).map((depth) => ({ kind: 'nest' as const, depth })),
    ),
  );
  return fc.array(change, { minLength: 1, maxLength: 3 }).map((changes) => {
    let document = structuredClone(base);
    for (const [position, mutation] of changes) {
      const paths = pathsOf(document);
      const path = paths[position % paths.length] ?? [];
      document = changeAt(document, path, (value) => {
        if (mutation.kind === 'replace') return mutation.value;
        if (mutation.kind === 'nest') return nestValue(value ?? null, mutation.depth);
        if (mutation.kind === 'add')
          return value !== null && typeof value === 'object' && !Array.isArray(value)
            ? { ...value, [mutation.name]: 1 }
            : value;
        return undefined;
      });
    }
    return document;
  });
}

function nestValue(value: Json, depth: number): Json {
  let container = value;
  for (let level = 0; level < depth; level += 1) container = level % 2 === 0 ? [container] : { a: container };
  return container;
}

function changeAt(
  document: Json,
  path: readonly (string | number)[],
  change: (value: Json | undefined) => Json | undefined,
): Json {
  const [step, ...innerPath] = path;
  if (step === undefined) return change(document) ?? null;
  if (Array.isArray(document)) {
    return document.flatMap((item, index) => {
      if (index !== step) return [item];
      if (innerPath.length > 0) return [changeAt(item, innerPath, change)];
      const changedItem = change(item);
      return changedItem === undefined ? [] : [changedItem];
    });
  }
  if (document === null || typeof document !== 'object') return document;
  const entries = Object.entries(document).flatMap(([name, member]): [string, Json][] => {
    if (name !== step) return [[name, member]];
    if (innerPath.length > 0) return [[name, changeAt(member, innerPath, change)]];
    const changedMember = change(member);
    return changedMember === undefined ? [] : [[name, changedMember]];
  });
  return Object.fromEntries(entries);
}
