// Gives a JSON value the same serialization before and after it was stored: jsonb orders members by its own
// rule and cannot store some characters. A provider's prompt cache needs the same bytes again.
import { asText } from '../../event-log/events.ts';

/** The same value with sorted members and storable strings. */
export function canonicalJson(value: unknown): unknown {
  if (typeof value === 'string') return asText(value);
  if (Array.isArray(value)) return value.map((item) => canonicalJson(item === undefined ? null : item));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, member]) => member !== undefined)
      .map(([name, member]) => [asText(name), canonicalJson(member)] as const)
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}
