// The schemas of a document as JSON Schema with `definitions`, for tools that read
// JSON Schema and not OpenAPI.
import { writeFileSync } from 'node:fs';
import type { Document } from '../../scripts/generate/document.ts';

export function schemaNames(document: Document): string[] {
  return Object.keys(document.components?.schemas ?? {});
}

/**
 * Writes the named schemas and their references, without the keywords in `leaveOut` whose value is a string. A
 * property of such a name has a schema as its value, and stays.
 */
export function writeComponentSchemas(
  document: Document,
  names: readonly string[],
  { file, leaveOut = [] }: { file: string; leaveOut?: readonly string[] },
): void {
  const schemas = (document.components?.schemas ?? {}) as Record<string, object>;
  const reachableNames = new Set<string>();
  const openNames = [...names];
  for (let name = openNames.pop(); name !== undefined; name = openNames.pop()) {
    if (reachableNames.has(name)) continue;
    const schema = schemas[name];
    if (schema === undefined) throw new Error(`the document has no schema ${name}`);
    reachableNames.add(name);
    for (const [, reference = ''] of JSON.stringify(schema).matchAll(/"#\/components\/schemas\/([^"]+)"/g))
      openNames.push(reference);
  }
  // For Go, quicktype declares no type for a definition that is null or a union of scalars. So only
  // objects are top-level definitions; quicktype reaches the other schemas through references.
  const isObject = (name: string) => (schemas[name] as { type?: unknown }).type === 'object';
  const [objectSchemas, otherSchemas] = [true, false].map((expected) =>
    Object.fromEntries(
      [...reachableNames]
        .filter((name) => isObject(name) === expected)
        .sort()
        .map((name) => [name, schemas[name]]),
    ),
  );
  const text = JSON.stringify(
    { $schema: 'http://json-schema.org/draft-07/schema#', definitions: objectSchemas, others: otherSchemas },
    (name, value: unknown) => (leaveOut.includes(name) && typeof value === 'string' ? undefined : value),
    2,
  );
  writeFileSync(
    file,
    text.replaceAll(/#\/components\/schemas\/([^"]+)/g, (_whole, name: string) =>
      isObject(name) ? `#/definitions/${name}` : `#/others/${name}`,
    ),
  );
}
