// Type guards for parsed JSON and other values of unknown shape.

export type JsonRecord = Record<string, unknown>;

/** Whether the value is an object and not an array. */
export function isRecord(value: unknown): value is JsonRecord {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value as an object; an empty one for anything else. */
export function asRecord(value: unknown): JsonRecord {
  return isRecord(value) ? value : {};
}

/** `JSON.parse` without the exception: undefined for text that is not JSON. */
export function parseJsonOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
