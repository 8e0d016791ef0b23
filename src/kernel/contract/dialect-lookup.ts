// Selects the error dialect of a response, even if no operation matches the request: a client of
// another API must be able to parse the 404 for an unknown path below that API's own paths and the
// 405 for a wrong method.
import type { ErrorDialect } from '../error-dialects.ts';
import type { ContractOperation } from './operations.ts';
import type { ContractRequest } from './request.ts';
import type { RouteMatch } from './router.ts';

export function createDialectLookup(
  operations: readonly ContractOperation[],
): (request: ContractRequest, match: RouteMatch<ContractOperation>) => ErrorDialect | undefined {
  const areas = operations
    .filter(({ errorDialect }) => errorDialect !== undefined)
    .map((operation) => ({ ...literalParts(operation.path), operation }))
    // `/v1/models/x:generateContent` also ends with the empty suffix of `/v1/models/{model_id}`, which
    // has another dialect: compare the longest suffix first.
    .sort((a, b) => b.suffix.length - a.suffix.length);

  return (request, match) => {
    if (match.outcome === 'found') return dialectFor(match.operation, request);
    const [sibling] = match.outcome === 'method_not_allowed' ? match.operations.values() : [];
    if (sibling !== undefined) return dialectFor(sibling, request);
    // Append a slash, so that `/v1beta/models` itself matches the prefix `/v1beta/models/`.
    const enclosingAreas = areas.filter(({ prefix }) => `${request.path}/`.startsWith(prefix));
    // Where no suffix matches (`/v1beta/models/x:unknown`), all areas of the prefix have the same dialect.
    const area = enclosingAreas.find(({ suffix }) => request.path.endsWith(suffix)) ?? enclosingAreas[0];
    return area && dialectFor(area.operation, request);
  };
}

function dialectFor(
  { errorDialect, errorDialectHeader }: ContractOperation,
  { headers }: ContractRequest,
): ErrorDialect | undefined {
  if (errorDialect === undefined) return undefined;
  return errorDialectHeader === undefined || headers[errorDialectHeader] !== undefined
    ? errorDialect
    : undefined;
}

/**
 * The literal text before the first parameter and after the last; a path without
 * parameters covers all paths below it.
 */
function literalParts(path: string): { prefix: string; suffix: string } {
  const braceIndex = path.indexOf('{');
  return braceIndex < 0
    ? { prefix: `${path}/`, suffix: '' }
    : { prefix: path.slice(0, braceIndex), suffix: path.slice(path.lastIndexOf('}') + 1) };
}
