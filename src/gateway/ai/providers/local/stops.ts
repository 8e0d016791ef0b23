// Where an answer ends: the first stop sequence in it, searched in time linear in the text (Knuth-Morris-Pratt).

/** Stop sequences of one call. */
export const maximumStops = 16;

/** The text before the first occurrence of any of the sequences. Empty sequences match nowhere. */
export function cutAtStops(text: string, stops: readonly string[]): string {
  let shortest = text;
  // Within a text that an earlier sequence has cut, a later one matters only if it ends before that cut.
  for (const stop of stops) {
    const end = stop === '' ? -1 : indexOf(text.slice(0, shortest.length + stop.length), stop);
    if (end >= 0 && end < shortest.length) shortest = text.slice(0, end);
  }
  return shortest;
}

// `String.indexOf` takes the product of both lengths for texts that repeat themselves.
function indexOf(text: string, pattern: string): number {
  if (pattern.length > text.length) return -1;
  const borders = bordersOf(pattern);
  let matched = 0;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    while (matched > 0 && pattern.charCodeAt(matched) !== code) matched = borders[matched - 1] ?? 0;
    if (pattern.charCodeAt(matched) === code) matched += 1;
    if (matched === pattern.length) return index - matched + 1;
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
