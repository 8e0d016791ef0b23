/** Text of callers and providers may hold control characters, which a terminal would obey. */
export function escapeControls(value: string): string {
  return value.replaceAll(
    /[\p{Cc}\p{Cf}]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
