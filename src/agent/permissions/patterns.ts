// The patterns of permission rules. In a command or the name of a tool, `*` matches any characters and `?`
// one. In a path, `*` and `?` match within one folder, and `**` matches across folders. A backslash makes the
// next character literal.

/** Whether a simple command, as `simpleCommands` writes it, matches. */
export function matchesCommand(pattern: string, command: string): boolean {
  return matchesPieces(commandPieces(pattern), [...command]);
}

/**
 * A pattern as characters, escaped characters and wildcards. Blanks between words become one space,
 * as in `simpleCommands`; those within quotes or after a backslash are part of a word and stay.
 */
function commandPieces(pattern: string): string[] {
  const pieces: string[] = [];
  let quote: string | undefined;
  let isEscaped = false;
  let isAfterBlank = false;
  for (const piece of pattern.match(/\\[^]|\*+|[^]/gu) ?? []) {
    if (quote === undefined && !isEscaped && /^[ \t]$/.test(piece)) {
      isAfterBlank = true;
      continue;
    }
    if (isAfterBlank && pieces.length > 0) pieces.push(' ');
    isAfterBlank = false;
    pieces.push(piece);
    const isQuote = !isEscaped && /^["']$/.test(piece);
    if (isQuote && quote === undefined) quote = piece;
    else if (isQuote && piece === quote) quote = undefined;
    // A backslash of sh, which a pattern writes as two, escapes the next character except in single quotes.
    isEscaped = quote !== "'" && !isEscaped && piece === String.raw`\\`;
  }
  return pieces;
}

// A regular expression with several `*` backtracks for seconds on a command that a
// model wrote. Here a mismatch goes back to the last `*` only, so the work is at
// most the length of the pattern times that of the command.
function matchesPieces(pieces: readonly string[], characters: readonly string[]): boolean {
  let [pieceIndex, characterIndex] = [0, 0];
  let restart: { pieceIndex: number; characterIndex: number } | undefined;
  while (characterIndex < characters.length) {
    const piece = pieces[pieceIndex];
    if (piece?.startsWith('*')) {
      pieceIndex += 1;
      restart = { pieceIndex, characterIndex };
    } else if (piece !== undefined && matchesCharacter(piece, characters[characterIndex])) {
      pieceIndex += 1;
      characterIndex += 1;
    } else if (restart !== undefined) {
      restart.characterIndex += 1;
      ({ pieceIndex, characterIndex } = restart);
    } else return false;
  }
  return pieces.slice(pieceIndex).every((piece) => piece.startsWith('*'));
}

function matchesCharacter(piece: string, character: string | undefined): boolean {
  if (piece === '?') return true;
  return (isEscape(piece) ? piece.slice(1) : piece) === character;
}

function isEscape(piece: string): boolean {
  return piece.length > 1 && piece.startsWith('\\');
}

/**
 * Whether a path matches; pattern and path are relative to the workspace. `isLoose` is for rules that forbid
 * something: letter case is ignored, and a pattern for all entries of a folder, `x/*` or `x/**`, also matches
 * the folder `x`, since a listing of it names the entries.
 */
export function matchesPath(pattern: string, path: string, { isLoose }: { isLoose: boolean }): boolean {
  const normalizedPattern = normalizePath(pattern);
  const normalizedPath = normalizePath(path);
  if (!isLoose) return matchesPathPieces(pathPieces(normalizedPattern), [...normalizedPath]);
  return [normalizedPath, `${normalizedPath}/`].some((text) => matchesInAnyCase(normalizedPattern, text));
}

/** Whether a path pattern may match something below the folder, in any letter case. */
export function mayMatchBelow(pattern: string, folder: string): boolean {
  const patternNames = normalizePath(pattern).split('/');
  const folderNames = normalizePath(folder).split('/');
  if (folderNames[0] === '') return true;
  const deepIndex = patternNames.findIndex((name) => name.includes('**'));
  // The names before a `**`, or before the last one, have to match the folder's.
  const comparedCount = deepIndex === -1 ? patternNames.length - 1 : deepIndex;
  if (deepIndex === -1 && folderNames.length > comparedCount) return false;
  return folderNames
    .slice(0, comparedCount)
    .every((name, index) => matchesInAnyCase(patternNames[index] ?? '', name));
}

/** Whether the text has no wildcard, so that it names one thing only. */
export function isLiteral(pattern: string): boolean {
  return !/(?<!\\)(?:\\\\)*[*?]/.test(pattern);
}

/** The pattern that matches this text alone. */
export function literalPattern(text: string): string {
  return text.replaceAll(/[\\*?]/g, String.raw`\$&`);
}

function normalizePath(path: string): string {
  return path
    .split('/')
    .filter((name) => name !== '' && name !== '.')
    .join('/');
}

// A path pattern as characters, escaped characters and wildcards. `**/` is one wildcard at the start of a
// name only, where it also matches nothing: `src/**/x` matches `src/x`, but `src**/x` does not match `srcx`.
function pathPieces(pattern: string): string[] {
  return pattern.match(/\\[^]|(?<=^|\/)\*\*\/|\*\*|[^]/gu) ?? [];
}

// Thompson's algorithm: it follows all alternatives at once, so the work is at most the length of the pattern
// times that of the path. A backtracking match takes minutes on a path that a model wrote.
function matchesPathPieces(pieces: readonly string[], characters: readonly string[]): boolean {
  /** The pieces that the rest of the path may begin with. */
  let indexes = withSkipped(new Set([0]), { pieces, isNameStart: true });
  for (const character of characters) {
    const nextIndexes = new Set<number>();
    for (const index of indexes) {
      const piece = pieces[index];
      if (piece === '**' || piece === '**/' || (piece === '*' && character !== '/')) nextIndexes.add(index);
      else if (piece !== undefined && piece !== '*' && matchesPathCharacter(piece, character))
        nextIndexes.add(index + 1);
    }
    indexes = withSkipped(nextIndexes, { pieces, isNameStart: character === '/' });
  }
  return indexes.has(pieces.length);
}

/** Adds the pieces after wildcards that may end here. */
function withSkipped(
  indexes: Set<number>,
  { pieces, isNameStart }: { pieces: readonly string[]; isNameStart: boolean },
): Set<number> {
  // The loop also visits the indexes that it adds.
  for (const index of indexes) {
    const piece = pieces[index];
    if (piece === '*' || piece === '**' || (piece === '**/' && isNameStart)) indexes.add(index + 1);
  }
  return indexes;
}

function matchesPathCharacter(piece: string, character: string): boolean {
  return piece === '?' ? character !== '/' : matchesCharacter(piece, character);
}

function matchesInAnyCase(pattern: string, path: string): boolean {
  return matchesPathPieces(pathPieces(pattern).map(withoutCase), [...path].map(withoutCase));
}

// `ſ` and `K` (the Kelvin sign) equal `s` and `k`; each needs another of the two conversions.
function withoutCase(character: string): string {
  return character.toLowerCase().toUpperCase().toLowerCase();
}
