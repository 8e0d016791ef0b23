// Requires that members are described: at the member itself, or in the schema to which it or its
// items refer. A member with a `const` needs no description. The lowest share of described members
// that a document may have is an option of the rule; it only rises.

import { follow } from './follow.js';

export function described(options) {
  const members = new Map();
  return {
    Schema(schema, ctx) {
      for (const [name, member] of Object.entries(schema.properties ?? {})) {
        members.set(
          `${ctx.location.source.absoluteRef}${ctx.location.pointer} ${name}`,
          isDescribed(ctx, member),
        );
      }
    },
    Root: {
      leave(_root, ctx) {
        const name = documentOf(ctx);
        const minimum = options?.[name] ?? 100;
        const missing = [...members].filter(([, hasDescription]) => !hasDescription).map(([place]) => place);
        const share = members.size === 0 ? 100 : 100 * (1 - missing.length / members.size);
        if (share >= minimum) return;
        const summary = `${share.toFixed(1)} % of the members are described; ${minimum} % are needed.`;
        ctx.report({
          message: `${summary} Missing: ${missing.map(shorten).join(', ')}.`,
          location: ctx.location,
        });
      },
    },
  };
}

function isDescribed(ctx, member) {
  const { node, location } = follow(ctx, member, ctx.location);
  if (hasText(member) || hasText(node) || node.const !== undefined) return true;
  return node.items?.$ref !== undefined && hasText(follow(ctx, node.items, location).node);
}

function hasText({ description }) {
  return typeof description === 'string' && description.trim() !== '';
}

function documentOf(ctx) {
  const [folder, file] = ctx.location.source.absoluteRef.split(/[\\/]/).slice(-2);
  return file.includes('.classic.') ? `${folder}-classic` : folder;
}

function shorten(place) {
  return place.slice(place.lastIndexOf('openapi') + 'openapi/'.length);
}
