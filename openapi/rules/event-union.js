// Requires that the events of a stream are a `oneOf` whose members can be told apart by
// their `type`: each has it as a const or an enum, requires it, and no two share a
// value. A third-party format without such a tag is marked `x-foreign: true`.

import { follow } from './follow.js';

export function eventUnion() {
  return {
    Operation(operation, ctx) {
      for (const [status, node] of Object.entries(operation.responses ?? {})) {
        const response = follow(ctx, node, ctx.location);
        const media = response.node.content?.['text/event-stream'];
        if (media === undefined) continue;
        const location = ctx.location.child(['responses', status]);
        const report = (message) => ctx.report({ message: `${operation.operationId}: ${message}`, location });
        if (typeof media.schema?.$ref !== 'string')
          report('the events of the stream have no schema in a file of their own.');
        const payload = follow(ctx, media.schema, response.location);
        if (payload.node.oneOf === undefined && payload.node['x-foreign'] !== true)
          report('the schema of the events is neither a oneOf nor marked x-foreign.');
        if (payload.node.oneOf !== undefined) checkTags(ctx, membersOf(ctx, payload), report);
      }
    },
  };
}

function checkTags(ctx, members, report) {
  const seenTags = new Set();
  for (const [index, member] of members.entries()) {
    const tags = tagsOf(ctx, member);
    if (tags === undefined)
      report(`member ${index + 1} of the stream's union has no required \`type\` with a const.`);
    for (const tag of tags ?? []) {
      if (seenTags.has(tag))
        report(`two members of the stream's union have the type ${JSON.stringify(tag)}.`);
      seenTags.add(tag);
    }
  }
}

// A member may itself be a union, which then counts with its own members.
function membersOf(ctx, { node, location }) {
  return (node.oneOf ?? []).flatMap((item) => {
    const member = follow(ctx, item, location);
    return member.node.oneOf === undefined ? [member] : membersOf(ctx, member);
  });
}

function tagsOf(ctx, { node, location }) {
  const parts = [{ node, location }, ...(node.allOf ?? []).map((item) => follow(ctx, item, location))];
  const required = parts.some((part) => (part.node.required ?? []).includes('type'));
  for (const part of parts) {
    if (part.node.properties?.type === undefined) continue;
    const tag = follow(ctx, part.node.properties.type, part.location).node;
    const values = tag.const === undefined ? tag.enum : [tag.const];
    if (required && Array.isArray(values) && values.every((value) => typeof value === 'string'))
      return values;
  }
  return undefined;
}
