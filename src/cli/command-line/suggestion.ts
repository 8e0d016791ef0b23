// "Did you mean …?" for a mistyped command or option.

/** Two edits would turn any word of three letters into any other. */
function maxEdits({ length }: string): number {
  if (length <= 3) return 1;
  return length <= 7 ? 2 : 3;
}

/** The first word within the tolerated edit distance of what was typed, or undefined. */
export function nearest(typed: string, words: readonly string[]): string | undefined {
  const tolerance = maxEdits(typed);
  let best: string | undefined;
  let bestDistance = tolerance + 1;
  for (const word of words) {
    const isBeginning = word.startsWith(typed) && typed.length >= 3;
    const distance = isBeginning ? 1 : editDistance(typed, word);
    if (distance < bestDistance) [best, bestDistance] = [word, distance];
  }
  return best;
}

/** ` Did you mean …?`, or an empty string. */
export function suggestion(
  typed: string,
  words: readonly string[],
  show: (word: string) => string = (word) => word,
): string {
  const word = nearest(typed, words);
  return word === undefined ? '' : ` Did you mean ${show(word)}?`;
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of
// neighbours. Keeps three rows of the matrix.
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let least = Math.min((row[j - 1] ?? 0) + 1, (last[j] ?? 0) + 1, (last[j - 1] ?? 0) + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        least = Math.min(least, (beforeLast[j - 2] ?? 0) + 1);
      row.push(least);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length] ?? 0;
}
