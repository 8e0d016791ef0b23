// Allows new values in enumerations that are marked `x-open: true`: clients must have a default branch for
// them, so a new value breaks no client. `redocly diff` reports a new value in any other enumeration of an
// answer.
import { isRecord } from '../../src/kernel/json-value.ts';

/** The released document with the current values of its open enumerations. */
export function withOpenEnums(releasedDocument: unknown, currentDocument: unknown): unknown {
  if (Array.isArray(releasedDocument))
    return releasedDocument.map((item, index) =>
      withOpenEnums(item, Array.isArray(currentDocument) ? currentDocument[index] : undefined),
    );
  if (!isRecord(releasedDocument)) return releasedDocument;
  const current = isRecord(currentDocument) ? currentDocument : {};
  const copy = Object.fromEntries(
    Object.entries(releasedDocument).map(([name, member]) => [name, withOpenEnums(member, current[name])]),
  );
  return isOpen(releasedDocument) && isOpen(current)
    ? { ...copy, enum: mergeValues(releasedDocument.enum, current.enum) }
    : copy;
}

function isOpen(schema: Record<string, unknown>): schema is { 'x-open': true; enum: unknown[] } {
  return schema['x-open'] === true && Array.isArray(schema.enum);
}

/** Keeps values that were removed, so that redocly reports their removal. */
function mergeValues(releasedValues: readonly unknown[], currentValues: readonly unknown[]): unknown[] {
  const missingValues = releasedValues.filter((value) => !currentValues.includes(value));
  return [...currentValues, ...missingValues];
}
