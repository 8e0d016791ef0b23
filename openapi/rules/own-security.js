// Asks that every operation says for itself who may call it. A default at the top of the document would decide for an
// operation whose author forgot the question.

export function ownSecurity() {
  return {
    Root(root, ctx) {
      if (root.security !== undefined)
        ctx.report({
          message: 'The document has no security of its own; each operation says it.',
          location: ctx.location.child(['security']),
        });
    },
    Operation(operation, ctx) {
      if (!Array.isArray(operation.security)) {
        ctx.report({
          message: `${operation.operationId} has no security of its own; an empty list means that anyone may call it.`,
          location: ctx.location.key(),
        });
        return;
      }
      operation.security.forEach((requirement, index) => {
        if (Object.keys(requirement ?? {}).length !== 1) {
          ctx.report({
            message: `${operation.operationId} names an identity by exactly one scheme; write one entry for each.`,
            location: ctx.location.child(['security', index]),
          });
        }
      });
    },
  };
}
