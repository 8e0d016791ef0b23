/**
 * At most `length` UTF-16 code units from the start of a text, as well-formed text: a surrogate pair is not
 * cut in half, and halves that the text contains become U+FFFD.
 */
export function startOfText(text: string, length: number): string {
  return text
    .slice(0, length)
    .replace(/[\ud800-\udbff]$/, '')
    .toWellFormed();
}
