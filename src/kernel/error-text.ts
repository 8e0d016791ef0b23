// The text of a thrown value.

/** The message of an error; any other value as text. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
