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
 * something: letter case is ignored, and `x/**` also matches `x`.
 */
export function matchesPath(pattern: string, path: string, { isLoose }: { isLoose: boolean }): boolean {
  const pathPattern = compilePath(normalizePath(pattern));
  const normalizedPath = normalizePath(path);
  if (!isLoose) return pathPattern.test(normalizedPath);
  const loosePattern = ignoringCase(pathPattern);
  return loosePattern.test(normalizedPath) || loosePattern.test(`${normalizedPath}/`);
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
    .every((name, index) => ignoringCase(compilePath(patternNames[index] ?? '')).test(name));
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

function compilePath(pattern: string): RegExp {
  const pieces = pattern.match(/\\[^]|\*\*\/?|\*|\?|[^]/gu) ?? [];
  return new RegExp(`^${pieces.map(compilePiece).join('')}$`, 'u');
}

function compilePiece(piece: string): string {
  if (isEscape(piece)) return escape(piece.slice(1));
  if (piece === '?') return '[^/]';
  if (piece === '*') return '[^/]*';
  if (piece === '**') return '[^]*';
  if (piece === '**/') return '(?:[^]*/)?';
  return escape(piece);
}

function ignoringCase({ source }: RegExp): RegExp {
  return new RegExp(source, 'ui');
}

function escape(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`);
}
