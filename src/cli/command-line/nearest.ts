// The word that was probably meant: for a command or an option with a typing error.

/** The one of the words that is near enough, or undefined; in doubt the first. */
export function nearest(given: string, words: readonly string[]): string | undefined {
  // Two errors in a short word make another word of it.
  const tolerated = given.length <= 3 ? 1 : given.length <= 7 ? 2 : 3;
  let best: string | undefined;
  let least = tolerated + 1;
  for (const word of words) {
    const apart = word.startsWith(given) && given.length >= 3 ? 1 : distance(given, word);
    if (apart < least) [best, least] = [word, apart];
  }
  return best;
}

/** ` Did you mean …?`, or nothing. */
export function suggestion(
  given: string,
  words: readonly string[],
  show: (word: string) => string = (word) => word,
): string {
  const meant = nearest(given, words);
  return meant === undefined ? '' : ` Did you mean ${show(meant)}?`;
}

// Insertions, removals, replacements and swaps of neighbours.
function distance(a: string, b: string): number {
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let least = Math.min((row[j - 1] ?? 0) + 1, (last[j] ?? 0) + 1, (last[j - 1] ?? 0) + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        least = Math.min(least, (before[j - 2] ?? 0) + 1);
      row.push(least);
    }
    before = last;
    last = row;
  }
  return last[b.length] ?? 0;
}
