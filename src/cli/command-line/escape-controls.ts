/** Text of callers and providers may hold control characters, which a terminal would obey. */
export function escapeControls(value: string): string {
  return value.replaceAll(
    /[\p{Cc}\p{Cf}]/gu,
    // A character beyond U+FFFF is a surrogate pair, each half of which has an escape, as in JSON.
    (character) =>
      Array.from(
        { length: character.length },
        (_, index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`,
      ).join(''),
  );
}
