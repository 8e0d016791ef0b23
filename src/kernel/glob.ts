// Glob patterns for paths. A mismatch backtracks only to the last `*` or `**`, so the work is at most the
// length of the pattern times the length of the path; a regular expression could backtrack for seconds.

/** A compiled pattern: one entry for each name along the path, `**` for any number of names. */
export type GlobShape = readonly (NamePiece[] | '**')[];

type NamePiece =
  | { kind: 'any' }
  | { kind: 'one' }
  | { kind: 'text'; text: string }
  | { kind: 'range'; isNegated: boolean; ranges: (readonly [string, string])[] };

// Braces multiply: `{a,b}{c,d}` has four alternatives.
const maxAlternatives = 64;

/**
 * Compiles a pattern with `*`, `?`, `[a-z]`, `{a,b}` and `**` into one shape for each of its alternatives.
 * Throws a RangeError for more than 64 of them.
 */
export function compileGlob(pattern: string): GlobShape[] {
  return expandBraces(pattern).map(compileShape);
}

/** Compiles a pattern without alternatives, such as a line of `.gitignore`. */
export function compileShape(pattern: string): GlobShape {
  return namesOf(pattern).map((name) => (name === '**' ? '**' : compileName(name)));
}

/** Whether one of the shapes matches the whole path. */
export function matchesGlob(shapes: readonly GlobShape[], path: string): boolean {
  const names = namesOf(path);
  return shapes.some((shape) => matchesShape(shape, names));
}

/** Whether the shape matches all of the names. */
export function matchesShape(shape: GlobShape, names: readonly string[]): boolean {
  return matchWildcards(shape, names, {
    isAny: (piece) => piece === '**',
    isMatch: (piece, name) =>
      piece !== '**' &&
      matchWildcards(piece, [...name], { isAny: ({ kind }) => kind === 'any', isMatch: matchesCharacter }),
  });
}

function namesOf(path: string): string[] {
  return path.split('/').filter((name) => name !== '' && name !== '.');
}

function matchWildcards<Piece, Item>(
  pieces: readonly Piece[],
  items: readonly Item[],
  { isAny, isMatch }: { isAny(piece: Piece): boolean; isMatch(piece: Piece, item: Item): boolean },
): boolean {
  let [pieceIndex, itemIndex] = [0, 0];
  let restart: { pieceIndex: number; itemIndex: number } | undefined;
  while (itemIndex < items.length) {
    const piece = pieces[pieceIndex];
    if (piece !== undefined && isAny(piece)) {
      pieceIndex += 1;
      restart = { pieceIndex, itemIndex };
    } else if (piece !== undefined && isMatch(piece, items[itemIndex] as Item)) {
      pieceIndex += 1;
      itemIndex += 1;
    } else if (restart !== undefined) {
      restart.itemIndex += 1;
      ({ pieceIndex, itemIndex } = restart);
    } else return false;
  }
  return pieces.slice(pieceIndex).every(isAny);
}

function matchesCharacter(piece: NamePiece, character: string): boolean {
  switch (piece.kind) {
    case 'any':
    case 'one':
      return true;
    case 'text':
      return piece.text === character;
    case 'range':
      return piece.ranges.some(([from, to]) => from <= character && character <= to) !== piece.isNegated;
  }
}

function compileName(name: string): NamePiece[] {
  const pieces: NamePiece[] = [];
  // An escaped character, a range in brackets, one or more stars, or any other character.
  for (const [piece = ''] of name.matchAll(/\\[^]|\[[!^]?\]?[^\]]*\]|\*+|[^]/gu)) {
    if (piece.startsWith('*')) pieces.push({ kind: 'any' });
    else if (piece === '?') pieces.push({ kind: 'one' });
    else if (piece.length > 2 && piece.startsWith('[')) pieces.push(compileRange(piece.slice(1, -1)));
    else
      pieces.push({
        kind: 'text',
        text: piece.length > 1 && piece.startsWith('\\') ? piece.slice(1) : piece,
      });
  }
  return pieces;
}

function compileRange(content: string): NamePiece {
  const isNegated = /^[!^]/.test(content);
  const ranges = [...content.slice(isNegated ? 1 : 0).matchAll(/([^])-([^])|([^])/gu)].map(
    ([, from, to, character]): readonly [string, string] => [from ?? character ?? '', to ?? character ?? ''],
  );
  return { kind: 'range', isNegated, ranges };
}

function expandBraces(pattern: string): string[] {
  let patterns = [pattern];
  for (;;) {
    const alternatives = patterns.flatMap(expandOnce);
    if (alternatives.length > maxAlternatives)
      throw new RangeError(`The pattern has more than ${maxAlternatives} alternatives in braces.`);
    if (alternatives.length === patterns.length) return alternatives;
    patterns = alternatives;
  }
}

// Expands the first pair of braces that contains no other brace, so that nested braces expand from the
// inside.
function expandOnce(pattern: string): string[] {
  const match = /(?<!\\)\{([^{}]*,[^{}]*)(?<!\\)\}/.exec(pattern);
  if (match === null) return [pattern];
  const [textBefore, textAfter] = [
    pattern.slice(0, match.index),
    pattern.slice(match.index + match[0].length),
  ];
  return (match[1] ?? '').split(',').map((choice) => `${textBefore}${choice}${textAfter}`);
}
