// Requires that collections look alike: `items` with a cursor is a `…Page`, `items`
// alone is a `…List`, and only a report with members beside its items may have another
// name. `items` and the cursor are required, and the cursor of the last page is null.

import path from 'node:path';
import { follow } from './follow.js';

export function listNames() {
  return {
    Schema(schema, ctx) {
      if (schema.properties?.items?.type !== 'array') return;
      if (schema['x-foreign'] === true || ctx.location.pointer !== '#/') return;
      const report = (message) => ctx.report({ message, location: ctx.location });
      const name = path.basename(ctx.location.source.absoluteRef).replace(/\.ya?ml$/, '');
      const cursor = ['next_cursor', 'nextCursor'].find((member) => schema.properties[member] !== undefined);
      const ending = cursor === undefined ? 'List' : 'Page';
      const isReport = cursor === undefined && Object.keys(schema.properties).length > 1;
      if (!isReport && !name.endsWith(ending))
        report(`${name} has ${cursor ?? 'no cursor'}, so its name ends in ${ending}.`);
      for (const member of ['items', ...(cursor === undefined ? [] : [cursor])]) {
        if (!schema.required?.includes(member)) report(`${name} does not require \`${member}\`.`);
      }
      if (cursor !== undefined && !isNullable(follow(ctx, schema.properties[cursor], ctx.location).node))
        report(`\`${cursor}\` of ${name} cannot be null, as it is on the last page.`);
    },
  };
}

function isNullable({ type, anyOf = [] }) {
  return [type].flat().includes('null') || anyOf.some((member) => member.type === 'null');
}
