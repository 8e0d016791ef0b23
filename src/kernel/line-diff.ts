// Unified diffs of two texts (Myers' algorithm). The search gives up on texts with little in common;
// everything between their common beginning and end is then shown as replaced.

export interface LineDiff {
  additions: number;
  deletions: number;
  /** The hunks, each line with its line break; empty for equal texts. */
  hunks: string;
}

type Edit = { mark: ' ' | '-' | '+'; line: string };

const contextLines = 3;
// The search for the shortest script gives up after this many edits: its time and memory grow with the
// square.
const maxEdits = 1_000;

export function diffTexts(before: string, after: string): LineDiff {
  const edits = diffLines(linesOf(before), linesOf(after));
  const count = (mark: Edit['mark']) => edits.reduce((sum, edit) => sum + (edit.mark === mark ? 1 : 0), 0);
  return { additions: count('+'), deletions: count('-'), hunks: writeHunks(edits) };
}

/** Lines with their line breaks, so that a missing last line break is a difference. */
function linesOf(text: string): string[] {
  return text === '' ? [] : text.split(/(?<=\n)/);
}

function diffLines(before: readonly string[], after: readonly string[]): Edit[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let [endBefore, endAfter] = [before.length, after.length];
  while (endBefore > start && endAfter > start && before[endBefore - 1] === after[endAfter - 1]) {
    endBefore -= 1;
    endAfter -= 1;
  }
  const unchangedEdits = (lines: readonly string[]) => lines.map((line): Edit => ({ mark: ' ', line }));
  return [
    ...unchangedEdits(before.slice(0, start)),
    ...diffMiddle(before.slice(start, endBefore), after.slice(start, endAfter)),
    ...unchangedEdits(before.slice(endBefore)),
  ];
}

function diffMiddle(before: readonly string[], after: readonly string[]): Edit[] {
  const path = shortestPath(before, after);
  if (path === undefined)
    return [
      ...before.map((line): Edit => ({ mark: '-', line })),
      ...after.map((line): Edit => ({ mark: '+', line })),
    ];
  const edits: Edit[] = [];
  let [x, y] = [0, 0];
  for (const [nextX, nextY] of path) {
    while (nextX - x > 0 && nextY - y > 0) {
      edits.push({ mark: ' ', line: before[x] as string });
      x += 1;
      y += 1;
    }
    for (; x < nextX; x += 1) edits.push({ mark: '-', line: before[x] as string });
    for (; y < nextY; y += 1) edits.push({ mark: '+', line: after[y] as string });
  }
  return edits;
}

/**
 * The corners of the shortest edit script, in order. Between two corners lie equal lines or one edited line.
 * Undefined for more than `maxEdits` edits.
 */
function shortestPath(before: readonly string[], after: readonly string[]): [number, number][] | undefined {
  // The furthest x on each diagonal; the index is the diagonal plus `maxEdits + 1`.
  let furthest = new Int32Array(2 * maxEdits + 3);
  const shift = maxEdits + 1;
  const history: Int32Array[] = [];
  for (let edits = 0; edits <= maxEdits; edits += 1) {
    history.push(furthest.slice(shift - edits - 1, shift + edits + 2));
    const next = furthest.slice();
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let x = stepTo(furthest, { diagonal, edits, shift });
      while (x < before.length && x - diagonal < after.length && before[x] === after[x - diagonal]) x += 1;
      next[shift + diagonal] = x;
      if (x >= before.length && x - diagonal >= after.length)
        return walkBack(history, before.length, after.length);
    }
    furthest = next;
  }
  return undefined;
}

/** Whether the best way to the diagonal with one more edit is an added line. */
function comesFromAbove(
  furthest: Int32Array,
  { diagonal, edits, shift }: { diagonal: number; edits: number; shift: number },
): boolean {
  const [left, right] = [furthest[shift + diagonal - 1] as number, furthest[shift + diagonal + 1] as number];
  return diagonal === -edits || (diagonal !== edits && left < right);
}

function stepTo(furthest: Int32Array, step: { diagonal: number; edits: number; shift: number }): number {
  const { diagonal, edits, shift } = step;
  if (edits === 0) return 0;
  return comesFromAbove(furthest, step)
    ? (furthest[shift + diagonal + 1] as number)
    : (furthest[shift + diagonal - 1] as number) + 1;
}

function walkBack(history: readonly Int32Array[], endX: number, endY: number): [number, number][] {
  const corners: [number, number][] = [[endX, endY]];
  let [x, y] = [endX, endY];
  for (let edits = history.length - 1; edits > 0; edits -= 1) {
    const furthest = history[edits] as Int32Array;
    const diagonal = x - y;
    const step = { diagonal, edits, shift: edits + 1 };
    const isAdded = comesFromAbove(furthest, step);
    const from = diagonal + (isAdded ? 1 : -1);
    const startX = furthest[edits + 1 + from] as number;
    const startY = startX - from;
    // The corner after the edit, then the corner before it.
    corners.push(isAdded ? [startX, startY + 1] : [startX + 1, startY], [startX, startY]);
    [x, y] = [startX, startY];
  }
  return corners.reverse();
}

function writeHunks(edits: readonly Edit[]): string {
  const pieces: string[] = [];
  let [oldLine, newLine] = [1, 1];
  let index = 0;
  while (index < edits.length) {
    const firstChange = nextChange(edits, index);
    if (firstChange === edits.length) break;
    const start = Math.max(index, firstChange - contextLines);
    oldLine += start - index;
    newLine += start - index;
    const end = hunkEnd(edits, firstChange);
    const hunk = edits.slice(start, end);
    const oldCount = hunk.filter(({ mark }) => mark !== '+').length;
    const newCount = hunk.filter(({ mark }) => mark !== '-').length;
    pieces.push(`@@ -${range(oldLine, oldCount)} +${range(newLine, newCount)} @@\n`, ...hunk.map(writeEdit));
    oldLine += oldCount;
    newLine += newCount;
    index = end;
  }
  return pieces.join('');
}

/** The index of the first change at or after `start`; `edits.length` if there is none. */
function nextChange(edits: readonly Edit[], start: number): number {
  let index = start;
  while (index < edits.length && edits[index]?.mark === ' ') index += 1;
  return index;
}

/** The end of the hunk that begins with `firstChange`. It includes later changes whose context lines meet. */
function hunkEnd(edits: readonly Edit[], firstChange: number): number {
  let lastChange = firstChange;
  for (let index = firstChange; index < edits.length && index - lastChange <= 2 * contextLines; index += 1)
    if (edits[index]?.mark !== ' ') lastChange = index;
  return Math.min(edits.length, lastChange + contextLines + 1);
}

// In a unified diff an empty range names the line before it.
function range(line: number, count: number): string {
  return count === 1 ? `${line}` : `${count === 0 ? line - 1 : line},${count}`;
}

function writeEdit({ mark, line }: Edit): string {
  return line.endsWith('\n') ? `${mark}${line}` : `${mark}${line}\n\\ No newline at end of file\n`;
}
