// Requires that a component's file name is unique across both surfaces and their shared parts. Readers,
// search and generated types could not tell two schemas of the same name apart.

import { readdirSync } from 'node:fs';
import path from 'node:path';

const kinds = new Set(['schemas', 'responses', 'parameters', 'headers', 'examples']);

export function componentFileUnique() {
  return {
    Root(_root, ctx) {
      // A document lies in openapi/<surface>/; the folder above holds all of the contract.
      const surface = path.dirname(ctx.location.source.absoluteRef);
      const contract = path.dirname(surface);
      const places = new Map();
      for (const entry of readdirSync(contract, { recursive: true, withFileTypes: true })) {
        const kind = path.basename(entry.parentPath);
        if (!entry.isFile() || !kinds.has(kind) || !/\.ya?ml$/.test(entry.name)) continue;
        const name = `${kind}/${entry.name.replace(/\.ya?ml$/, '')}`;
        const place = path.relative(contract, path.join(entry.parentPath, entry.name));
        places.set(name, [...(places.get(name) ?? []), place].sort());
      }
      for (const [name, files] of places) {
        if (files.length > 1)
          ctx.report({
            message: `The component name ${name} is used ${files.length} times: ${files.join(', ')}.`,
            location: ctx.location,
          });
      }
    },
  };
}
