// The patterns of permission rules. Commands: `*` stands for any characters. Paths: `*` and `?`
// stay within one folder, `**` goes through all below. A backslash takes a character as it is.

/** Whether a simple command, in the form of `simpleCommands`, matches. */
export function matchesCommand(pattern: string, command: string): boolean {
  return matchesPieces(commandPieces(pattern), [...command]);
}

/**
 * A pattern as characters, escaped characters and wildcards. Blanks between words become one space,
 * as in `simpleCommands`; those within quotes are part of a word and stay.
 */
function commandPieces(pattern: string): string[] {
  const pieces: string[] = [];
  let quote: string | undefined;
  let isEscaped = false;
  for (const piece of pattern.match(/\\[^]|\*+|[^]/gu) ?? []) {
    const isBlank = quote === undefined && !isEscaped && /^[ \t]$/.test(piece);
    if (isBlank && (pieces.length === 0 || pieces.at(-1) === ' ')) continue;
    pieces.push(isBlank ? ' ' : piece);
    if (piece === quote) quote = undefined;
    else if (quote === undefined && !isEscaped && /^["']$/.test(piece)) quote = piece;
    // A backslash of sh, which a pattern writes as two, escapes the next character.
    isEscaped = quote === undefined && !isEscaped && piece === String.raw`\\`;
  }
  if (pieces.at(-1) === ' ') pieces.pop();
  return pieces;
}

// A regular expression with several `*` backtracks for seconds on a command that a
// model wrote. Here a mismatch goes back to the last `*` only, so the work is at
// most the length of the pattern times that of the command.
function matchesPieces(pieces: readonly string[], characters: readonly string[]): boolean {
  let [piece, character] = [0, 0];
  let restart: { piece: number; character: number } | undefined;
  while (character < characters.length) {
    const shape = pieces[piece];
    if (shape?.startsWith('*')) {
      piece += 1;
      restart = { piece, character };
    } else if (shape !== undefined && matchesOne(shape, characters[character])) {
      piece += 1;
      character += 1;
    } else if (restart !== undefined) {
      restart.character += 1;
      ({ piece, character } = restart);
    } else return false;
  }
  return pieces.slice(piece).every((shape) => shape.startsWith('*'));
}

function matchesOne(shape: string, character: string | undefined): boolean {
  if (shape === '?') return true;
  return (shape.length > 1 && shape.startsWith('\\') ? shape.slice(1) : shape) === character;
}

/**
 * Whether a path matches; both are relative to the workspace. `isLoose` is for rules
 * that forbid: it ignores letter case, and `x/**` matches `x`.
 */
export function matchesPath(pattern: string, path: string, isLoose: boolean): boolean {
  const [shape, names] = [normalizePath(pattern), normalizePath(path)];
  const pathPattern = compile(shape, pathWildcards);
  if (!isLoose) return pathPattern.test(names);
  const loosePattern = new RegExp(pathPattern.source, 'ui');
  return loosePattern.test(names) || loosePattern.test(`${names}/`);
}

/** Whether a pattern of paths may match something below the folder, in any letter case. */
export function mayMatchBelow(pattern: string, folder: string): boolean {
  const shapes = normalizePath(pattern).split('/');
  const names = normalizePath(folder).split('/');
  if (names[0] === '') return true;
  const deepIndex = shapes.findIndex((shape) => shape.includes('**'));
  const count = deepIndex === -1 ? shapes.length - 1 : deepIndex;
  if (deepIndex === -1 && names.length > count) return false;
  return names
    .slice(0, count)
    .every((name, index) => new RegExp(compile(shapes[index] ?? '', pathWildcards).source, 'ui').test(name));
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

/** The regular expressions of `*` and `?`, and whether `**` goes through folders. */
interface Wildcards {
  star: string;
  questionMark: string;
  isDeep?: boolean;
}

const pathWildcards: Wildcards = { star: '[^/]*', questionMark: '[^/]', isDeep: true };

function compile(pattern: string, wildcards: Wildcards): RegExp {
  const pieces = pattern.match(/\\[^]|\*\*\/?|\*|\?|[^]/gu) ?? [];
  return new RegExp(`^${pieces.map((piece) => compilePiece(piece, wildcards)).join('')}$`, 'u');
}

function compilePiece(piece: string, { star, questionMark, isDeep = false }: Wildcards): string {
  if (piece.length > 1 && piece.startsWith('\\')) return escape(piece.slice(1));
  if (piece === '?') return questionMark;
  if (piece === '*') return star;
  if (piece === '**') return isDeep ? '[^]*' : star;
  if (piece === '**/') return isDeep ? '(?:[^]*/)?' : `${star}/`;
  return escape(piece);
}

function escape(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`);
}
