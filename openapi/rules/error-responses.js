// Requires that an operation lists the errors of shared code: 500 and some 4xx; 401 and the 403 of a
// paused Bureau if it reads a credential; 400 if it requires one; and at the gateway the 429 of the rate
// limits. `default` and ranges are refused, since handlers are typed by number.

export function errorResponses() {
  return {
    Operation(operation, ctx) {
      const statuses = Object.keys(operation.responses ?? {});
      const location = ctx.location.child(['responses']);
      const needsIdentity = Array.isArray(operation.security) && operation.security.length > 0;
      const isGateway = /[\\/]openapi[\\/]gateway[\\/]/.test(ctx.location.source.absoluteRef);
      const readsCredential = isGateway && operation['x-ignores-credential'] !== true;
      const required = [
        ...(needsIdentity ? ['400'] : []),
        ...(needsIdentity || readsCredential ? ['401', '403'] : []),
        ...(readsCredential ? ['429'] : []),
        '500',
      ];
      const missing = required.filter((status) => !statuses.includes(status));
      if (missing.length > 0)
        ctx.report({
          message: `${operation.operationId} does not list ${missing.join(', ')}.`,
          location: location.key(),
        });
      if (!statuses.some((status) => /^4\d\d$/.test(status)))
        ctx.report({ message: `${operation.operationId} lists no 4xx.`, location: location.key() });
      for (const status of statuses) {
        if (!/^[1-5]\d\d$/.test(status))
          ctx.report({
            message: `${operation.operationId} lists "${status}"; name each status by its number.`,
            location: location.child([status]).key(),
          });
      }
    },
  };
}
