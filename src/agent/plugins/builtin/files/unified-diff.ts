// Parses unified diffs and applies them to texts. Models often miscount lines, so the line numbers of a
// hunk are only a hint: its context and removed lines decide where it is applied.
export interface FileDiff {
  /** Null for a file that the diff creates. */
  oldPath: string | null;
  /** Null for a file that the diff deletes. */
  newPath: string | null;
  hunks: Hunk[];
}

export interface Hunk {
  /** The header in the diff, such as `@@ -3,4 +3,5 @@`. */
  header: string;
  /**
   * The first line of the hunk in the old file, from 1; null when the header has no number. A hunk that
   * only adds lines has the line before them instead, 0 at the start of the file.
   */
  line: number | null;
  /** The context and the removed lines: what the old file has at the place of the hunk. */
  before: string[];
  /** All lines of the hunk: ` ` marks context, `-` a removed line and `+` an added one. */
  lines: { mark: ' ' | '-' | '+'; content: string }[];
  /** Whether the new file ends with a newline; null if the diff does not say. */
  endsWithNewline: boolean | null;
}

/** An error whose message is for the model. */
export class DiffError extends Error {
  override readonly name = 'DiffError';
}

const maxFiles = 50;
const maxHunks = 1_000;
// Limit of line comparisons for one hunk: in a file of equal lines, their number would be the product of
// the lengths of file and hunk.
const maxComparisons = 2_000_000;

/** Throws a DiffError for a text that is not a unified diff. */
export function parseUnifiedDiff(text: string): FileDiff[] {
  const lines = text.replaceAll('\r\n', '\n').split('\n');
  if (lines.at(-1) === '') lines.pop();
  const files: FileDiff[] = [];
  let index = 0;
  while (index < lines.length) {
    const line = lines[index] ?? '';
    if (/^(?:rename|copy) (?:from|to) |^GIT binary patch/.test(line))
      throw new DiffError(
        `The diff has the line ${JSON.stringify(line)}; only changes of lines can be applied.`,
      );
    if (!isFileHeader(lines, index)) {
      // Lines such as `diff --git` and `index` only repeat what the file header says.
      if (line.startsWith('@@') && files.length === 0)
        throw new DiffError(
          'The diff begins with a hunk; name its file in the lines `--- a/…` and `+++ b/…`.',
        );
      index += 1;
      continue;
    }
    const file: FileDiff = { ...readPaths(line, lines[index + 1] ?? ''), hunks: [] };
    index = readHunks(lines, index + 2, file.hunks);
    files.push(file);
  }
  requireBounds(files);
  return files;
}

function requireBounds(files: readonly FileDiff[]): void {
  if (files.length === 0)
    throw new DiffError('The diff names no file; begin each one with the lines `--- a/…` and `+++ b/…`.');
  const hunks = files.reduce((sum, file) => sum + file.hunks.length, 0);
  if (files.length > maxFiles || hunks > maxHunks)
    throw new DiffError(`A diff may have ${maxFiles} files and ${maxHunks} hunks; send several.`);
}

function isFileHeader(lines: readonly string[], index: number): boolean {
  return (lines[index] ?? '').startsWith('--- ') && (lines[index + 1] ?? '').startsWith('+++ ');
}

function readPaths(oldLine: string, newLine: string): { oldPath: string | null; newPath: string | null } {
  const [oldPath, newPath] = [oldLine, newLine].map((line) => {
    const path = line.slice(4).replace(/\t.*$/, '').trimEnd();
    return path === '/dev/null' ? null : path;
  }) as [string | null, string | null];
  if (oldPath === null && newPath === null)
    throw new DiffError('A file of the diff is /dev/null on both sides.');
  const hasPrefixes =
    (oldPath === null || oldPath.startsWith('a/')) && (newPath === null || newPath.startsWith('b/'));
  const strip = (path: string | null) => (hasPrefixes ? (path?.slice(2) ?? null) : path);
  const paths = { oldPath: strip(oldPath), newPath: strip(newPath) };
  if (paths.oldPath !== null && paths.newPath !== null && paths.oldPath !== paths.newPath)
    throw new DiffError(
      `The diff renames ${JSON.stringify(paths.oldPath)} to ${JSON.stringify(paths.newPath)}; ` +
        'create one file and delete the other.',
    );
  return paths;
}

/** Returns the index of the first line after the hunks. */
function readHunks(lines: readonly string[], start: number, hunks: Hunk[]): number {
  let index = start;
  while (index < lines.length && !isFileHeader(lines, index)) {
    const line = lines[index] ?? '';
    if (!line.startsWith('@@')) {
      if (hunks.length === 0)
        throw new DiffError(`The line ${JSON.stringify(line.slice(0, 200))} is in no hunk.`);
      return index;
    }
    index = readHunk(lines, index, hunks);
  }
  return index;
}

function readHunk(lines: readonly string[], start: number, hunks: Hunk[]): number {
  const header = lines[start] ?? '';
  const [, number, count] = /^@@ -(\d+)(?:,(\d+))?/.exec(header) ?? [];
  const hunk: Hunk = {
    header: header.slice(0, 100),
    line: number === undefined ? null : Number(number),
    before: [],
    lines: [],
    endsWithNewline: null,
  };
  let lastMark = '';
  let blankLines = 0;
  let index = start + 1;
  for (; index < lines.length && !isFileHeader(lines, index); index += 1) {
    const line = lines[index] ?? '';
    const mark = line.slice(0, 1);
    const content = line.slice(1);
    if (mark === '\\') {
      // `\ No newline at end of file` after a removed line is about the old file only.
      hunk.endsWithNewline = lastMark === '-';
    } else if (mark === '-' || mark === '+' || mark === ' ') hunk.lines.push({ mark, content });
    // Some editors remove the space that marks an empty context line.
    else if (line === '') hunk.lines.push({ mark: ' ', content: '' });
    else break;
    if (mark !== '\\') lastMark = mark;
    blankLines = line === '' ? blankLines + 1 : 0;
  }
  dropSeparators(hunk, { blankLines, oldCount: Number(count ?? (number === undefined ? 0 : 1)) });
  hunk.before = hunk.lines.flatMap(({ mark, content: line }) => (mark === '+' ? [] : [line]));
  hunks.push(hunk);
  return index;
}

/**
 * Removes the unmarked blank lines at the end of a hunk that its header does not count: they separate it
 * from the next hunk or file.
 */
function dropSeparators(
  { lines }: Hunk,
  { blankLines, oldCount }: { blankLines: number; oldCount: number },
): void {
  const oldLines = lines.filter(({ mark }) => mark !== '+').length;
  const separators = Math.min(blankLines, Math.max(0, oldLines - oldCount));
  lines.splice(lines.length - separators);
}

/** Applies the hunks in their order. Throws a DiffError that names the hunk that does not fit. */
export function applyHunks(text: string, hunks: readonly Hunk[]): string {
  const lines = splitLines(text);
  let endsWithNewline = text === '' || text.endsWith('\n');
  /** How many lines later than in the old file the next hunk is expected. */
  let offset = 0;
  let searchFrom = 0;
  for (const [index, hunk] of hunks.entries()) {
    const start = startOf(hunk);
    const position = findPosition(lines, hunk, { searchFrom, expected: (start ?? 0) + offset });
    if (position === undefined) throw new DiffError(describeMismatch(lines, hunk, { index, offset }));
    const after = applyHunk(lines, hunk, position);
    lines.splice(position, hunk.before.length, ...after);
    searchFrom = position + after.length;
    offset = (start === null ? offset : position - start) + after.length - hunk.before.length;
    if (searchFrom === lines.length) endsWithNewline = hunk.endsWithNewline ?? endsWithNewline;
  }
  return joinLines(lines, endsWithNewline);
}

interface Line {
  content: string;
  /** Its line break; empty for a last line without one. */
  end: '\n' | '\r\n' | '';
}

function splitLines(text: string): Line[] {
  const lines = text
    .split('\n')
    .map((content): Line =>
      content.endsWith('\r') ? { content: content.slice(0, -1), end: '\r\n' } : { content, end: '\n' },
    );
  // The text after the last line break is a line only if there is one.
  const rest = text.slice(text.lastIndexOf('\n') + 1);
  lines.pop();
  return rest === '' ? lines : [...lines, { content: rest, end: '' }];
}

function joinLines(lines: readonly Line[], endsWithNewline: boolean): string {
  const defaultEnd = lines[0]?.end || '\n';
  return lines
    .map(({ content, end }, index) => {
      const hasBreak = index < lines.length - 1 || endsWithNewline;
      return hasBreak ? content + (end || defaultEnd) : content;
    })
    .join('');
}

/** The lines after the hunk. An added line gets the line break of the old line before it. */
function applyHunk(lines: readonly Line[], hunk: Hunk, position: number): Line[] {
  const after: Line[] = [];
  let oldIndex = position;
  let { end } = lines[position - 1] ?? lines[position] ?? { end: '\n' };
  for (const { mark, content } of hunk.lines) {
    if (mark === '+') {
      after.push({ content, end });
      continue;
    }
    const oldLine = lines[oldIndex] as Line;
    oldIndex += 1;
    ({ end } = oldLine);
    if (mark === ' ') after.push(oldLine);
  }
  return after;
}

/** The index in the old file at which the hunk begins; null when its header has no number. */
function startOf({ before, line }: Hunk): number | null {
  if (line === null) return null;
  return before.length === 0 ? line : line - 1;
}

/** The position nearest to the expected one, after the preceding hunk. */
function findPosition(
  lines: readonly Line[],
  { before, line }: Hunk,
  { searchFrom, expected }: { searchFrom: number; expected: number },
): number | undefined {
  // A hunk that only adds lines has no content to search for: its header alone decides.
  if (before.length === 0) {
    if (line === null) return lines.length;
    return Math.min(Math.max(searchFrom, expected), lines.length);
  }
  let nearest: number | undefined;
  let comparisons = 0;
  for (let position = searchFrom; position + before.length <= lines.length; position += 1) {
    if (nearest !== undefined && Math.abs(position - expected) >= Math.abs(nearest - expected)) break;
    let length = 0;
    while (length < before.length && lines[position + length]?.content === before[length]) length += 1;
    if (length === before.length) nearest = position;
    comparisons += length + 1;
    if (comparisons > maxComparisons)
      throw new DiffError('The file repeats its lines too often for a diff; write it as a whole.');
  }
  return nearest;
}

function describeMismatch(
  lines: readonly Line[],
  { header, before, line }: Hunk,
  { index, offset }: { index: number; offset: number },
): string {
  const label = `The hunk ${index + 1} (${header}) does not fit`;
  if (line === null) return `${label}: the file does not contain its lines.`;
  const start = Math.max(0, line - 1 + offset);
  const mismatchIndex = before.findIndex(
    (content, lineIndex) => lines[start + lineIndex]?.content !== content,
  );
  if (mismatchIndex < 0)
    return `${label}: its lines come before those of the hunk ${index}; write the hunks in the order of the file.`;
  const actualLine = lines[start + mismatchIndex]?.content;
  const expectation = `line ${start + mismatchIndex + 1} should be ${JSON.stringify(before[mismatchIndex]?.slice(0, 200))}`;
  return actualLine === undefined
    ? `${label}: ${expectation}, and the file has ${lines.length} lines.`
    : `${label}: ${expectation} and is ${JSON.stringify(actualLine.slice(0, 200))}. Read the file again.`;
}
