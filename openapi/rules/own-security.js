// Requires that every operation declares its own callers. A default at the top of the document
// would silently apply to an operation without its own declaration. An empty requirement before others
// makes the credential optional. Only scopes that the scheme explains under `x-scopes` are allowed.

export function ownSecurity() {
  let schemes = {};
  return {
    Root(root, ctx) {
      schemes = root.components?.securitySchemes ?? {};
      if (root.security !== undefined)
        ctx.report({
          message: 'The document must not declare security; each operation declares its own.',
          location: ctx.location.child(['security']),
        });
    },
    Operation(operation, ctx) {
      if (!Array.isArray(operation.security)) {
        ctx.report({
          message: `${operation.operationId} must declare its security; an empty list means that anyone may call it.`,
          location: ctx.location.key(),
        });
        return;
      }
      operation.security.forEach((requirement, index) => {
        const error = requirementError(Object.entries(requirement ?? {}), {
          isOptional: index === 0 && operation.security.length > 1,
          schemes,
        });
        if (error !== null)
          ctx.report({
            message: `${operation.operationId} ${error}`,
            location: ctx.location.child(['security', index]),
          });
      });
    },
  };
}

function requirementError(entries, { isOptional, schemes }) {
  if (entries.length === 0 && isOptional) return null;
  if (entries.length !== 1) return 'names an identity by exactly one scheme; write one entry for each.';
  const [scheme, scopes] = entries[0];
  const explainedScopes = Object.keys(schemes[scheme]?.['x-scopes'] ?? {});
  if (explainedScopes.length > 0 && scopes.length === 0)
    return `needs a scope of ${scheme}: ${explainedScopes.join(' or ')}.`;
  const unknownScope = scopes.find((scope) => !explainedScopes.includes(scope));
  return unknownScope === undefined
    ? null
    : `names the scope ${unknownScope}, which ${scheme} does not explain under x-scopes.`;
}
