// Type guards for parsed JSON and other values of unknown shape.

export type JsonRecord = Record<string, unknown>;

/** Whether the value is an object and not an array. */
export function isRecord(value: unknown): value is JsonRecord {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value if it is an object, otherwise an empty object. */
export function asRecord(value: unknown): JsonRecord {
  return isRecord(value) ? value : {};
}

/**
 * Parses the input of a tool call. Text that is not JSON is returned unchanged, so that the tool or the
 * provider refuses it. Models write no text for a call without input, but providers require an object, so
 * blank text becomes an empty object.
 */
export function parseToolInput(text: string): unknown {
  if (text.trim() === '') return {};
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** `JSON.parse` without the exception: undefined for text that is not JSON. */
export function parseJsonOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
