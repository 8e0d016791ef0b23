// Writes the list of operations with an Idempotency-Key, so that a client knows
// which calls may be sent again.
import { type Document, hasParameter, operationsOf } from './document.ts';

export function writeKeyedOperations(document: Document): string {
  const keyedOperations = operationsOf(document).filter(({ operation }) =>
    hasParameter(operation, 'IdempotencyKey'),
  );
  const lines = keyedOperations.map(({ method, path }) => `  '${method.toUpperCase()} ${path}',\n`);
  return `// Generated from openapi/ by scripts/generate.ts; change the contract instead.

/** The operations with an Idempotency-Key. */
export const keyedOperations: ReadonlySet<string> = new Set([
${lines.join('')}]);
`;
}
