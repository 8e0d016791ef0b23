// Requires an example of every JSON request body and of every JSON answer, whether a success or an
// error: on the media type, or on its schema. redocly's own rules compare the example with the schema.

import { follow } from './follow.js';

export function exampleRequired() {
  return {
    Operation(operation, ctx) {
      const bodies = [
        { what: 'the request body', node: operation.requestBody, at: ['requestBody'] },
        ...Object.entries(operation.responses ?? {}).map(([status, node]) => ({
          what: `status ${status}`,
          node,
          at: ['responses', status],
        })),
      ];
      for (const { what, node, at } of bodies) {
        if (node === undefined) continue;
        const body = follow(ctx, node, ctx.location);
        for (const [mediaType, media] of Object.entries(body.node.content ?? {})) {
          if (
            !/^application\/(?:[\w.-]+\+)?json(?:;|$)/.test(mediaType) ||
            hasExample(ctx, media, body.location)
          )
            continue;
          ctx.report({
            message: `${operation.operationId}: ${what} has no example of its ${mediaType}.`,
            location: ctx.location.child(at),
          });
        }
      }
    },
  };
}

function hasExample(ctx, media, location) {
  if (media.example !== undefined || Object.keys(media.examples ?? {}).length > 0) return true;
  const schema = follow(ctx, media.schema, location).node;
  return schema.example !== undefined || (schema.examples ?? []).length > 0;
}
