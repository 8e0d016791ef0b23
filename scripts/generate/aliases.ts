// Further paths of an operation. The list of paths contains only `x-alias-of:
// /v1/ai/embeddings`; this script copies the operations of that path to each alias, so
// that the published document describes every path without repetition in the sources.
// A client needs one method for each operation, so its document has no aliases.

import { type Document, type Operation, operationsOf, type PlacedOperation } from './document.ts';

type AliasOperation = Operation & { description?: string; 'x-alias-of'?: string };

/** Changes the bundled document. Throws for an alias of a missing path. */
export function addAliases(document: Document): void {
  const paths = document.paths ?? {};
  const completePaths = Object.entries(paths).map(([path, item]) => {
    const target = item['x-alias-of'];
    if (typeof target !== 'string') return [path, item] as const;
    const originalItem = paths[target];
    if (originalItem === undefined || originalItem['x-alias-of'] !== undefined)
      throw new Error(`${path} is an alias of ${target}, which is not a path with operations of its own`);
    return [path, aliasItem(path, { target, original: originalItem })] as const;
  });
  document.paths = Object.fromEntries(completePaths);
}

function aliasItem(
  path: string,
  { target, original }: { target: string; original: Record<string, unknown> },
): Record<string, unknown> {
  const copies = operationsOf({ paths: { [target]: original } }).map(({ method, id, operation }) => {
    const { summary = id, description = '' }: AliasOperation = operation;
    const originalLabel = `\`${method.toUpperCase()} ${target}\` (\`${id}\`)`;
    const note = `The same as ${originalLabel}, at a path that clients of other interfaces use.`;
    const copy: AliasOperation = {
      ...structuredClone(operation),
      operationId: `${id}${suffixOf(path)}`,
      summary: `${summary} at ${path}`,
      description: `${note}\n\n${description}`,
      'x-alias-of': id,
    };
    return [method, copy];
  });
  return Object.fromEntries(copies) as Record<string, unknown>;
}

/** `/v1/models/{model_id}` is `AtV1ModelsModelId`. */
function suffixOf(path: string): string {
  const words = path.match(/[A-Za-z0-9]+/g) ?? [];
  return `At${words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('')}`;
}

export function isAlias(operation: Operation): boolean {
  return (operation as AliasOperation)['x-alias-of'] !== undefined;
}

/** The further paths of an operation. */
export function aliasesOf(document: Document, id: string): PlacedOperation[] {
  return operationsOf(document).filter(({ operation }) => (operation as AliasOperation)['x-alias-of'] === id);
}

/** The document without its aliases and without the headers that carry a key instead of `Authorization`. */
export function clientDocument(document: Document): Document {
  const copy = structuredClone(document);
  const keySchemes = new Set(
    Object.entries(copy.components?.securitySchemes ?? {}).flatMap(([name, { type }]) =>
      type === 'apiKey' ? [name] : [],
    ),
  );
  for (const { path, method, operation } of operationsOf(copy)) {
    if (isAlias(operation)) delete copy.paths?.[path]?.[method];
    else if (operation.security !== undefined)
      operation.security = operation.security.filter(
        (requirement) => !Object.keys(requirement).some((scheme) => keySchemes.has(scheme)),
      );
  }
  copy.paths = Object.fromEntries(
    Object.entries(copy.paths ?? {}).filter(([, item]) => Object.keys(item).length > 0),
  );
  for (const name of keySchemes) delete copy.components?.securitySchemes?.[name];
  return copy;
}
