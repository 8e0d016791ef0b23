// Searches a text in linear time (Knuth-Morris-Pratt). `String.indexOf` can take time proportional to the
// product of both lengths, so a caller could block the event loop with a long repetitive pattern.

// Up to this length the engine's own search is faster even in the worst case.
const shortPattern = 16;

/** The first index of the pattern in the text, or -1. */
export function searchText(text: string, pattern: string): number {
  if (pattern.length <= shortPattern) return text.indexOf(pattern);
  if (pattern.length > text.length) return -1;
  const borders = bordersOf(pattern);
  let matchedLength = 0;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    while (matchedLength > 0 && pattern.charCodeAt(matchedLength) !== code)
      matchedLength = borders[matchedLength - 1] ?? 0;
    if (pattern.charCodeAt(matchedLength) === code) matchedLength += 1;
    if (matchedLength === pattern.length) return index - matchedLength + 1;
  }
  return -1;
}

/** For each prefix of the pattern, the length of its longest proper prefix that is also its suffix. */
function bordersOf(pattern: string): Uint32Array {
  const borders = new Uint32Array(pattern.length);
  let length = 0;
  for (let index = 1; index < pattern.length; index += 1) {
    const code = pattern.charCodeAt(index);
    while (length > 0 && pattern.charCodeAt(length) !== code) length = borders[length - 1] ?? 0;
    if (pattern.charCodeAt(length) === code) length += 1;
    borders[index] = length;
  }
  return borders;
}
