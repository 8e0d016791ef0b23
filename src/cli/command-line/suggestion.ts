// "Did you mean …?" for a mistyped command or option.

/** The shorter the word, the fewer edits: two edits leave only one letter of a three-letter word. */
function maxEdits({ length }: string): number {
  if (length <= 3) return 1;
  return length <= 7 ? 2 : 3;
}

/** The first word within the tolerated edit distance of what was typed, or undefined. */
export function findNearest(typedWord: string, words: readonly string[]): string | undefined {
  const tolerance = maxEdits(typedWord);
  let bestWord: string | undefined;
  let bestDistance = tolerance + 1;
  for (const word of words) {
    const isPrefix = word.startsWith(typedWord) && typedWord.length >= 3;
    const distance = isPrefix ? 1 : editDistance(typedWord, word);
    if (distance < bestDistance) [bestWord, bestDistance] = [word, distance];
  }
  return bestWord;
}

/** ` Did you mean …?`, or an empty string. */
export function suggest(
  typed: string,
  words: readonly string[],
  show: (word: string) => string = (word) => word,
): string {
  const word = findNearest(typed, words);
  return word === undefined ? '' : ` Did you mean ${show(word)}?`;
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of
// neighbours. Keeps three rows of the matrix.
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let lastRow = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let leastEdits = Math.min((row[j - 1] ?? 0) + 1, (lastRow[j] ?? 0) + 1, (lastRow[j - 1] ?? 0) + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        leastEdits = Math.min(leastEdits, (beforeLast[j - 2] ?? 0) + 1);
      row.push(leastEdits);
    }
    beforeLast = lastRow;
    lastRow = row;
  }
  return lastRow[b.length] ?? 0;
}
