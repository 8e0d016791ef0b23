// Tables in the Markdown of models, as in GitHub's dialect: a row of titles, a delimiter row, and
// rows of cells, each line between pipes.

export type Alignment = 'left' | 'center' | 'right';

// A row becomes an element per cell, so the number of elements stays bounded.
const maxColumns = 50;

/** The cells of a line that may be a row, without the escapes of pipes; null for any other line. */
export function tableCells(line: string): string[] | null {
  if (!/^\s*\|/.test(line)) return null;
  const cells = line
    .trim()
    .replace(/^\|/, '')
    .replace(/(?<!\\)\|$/, '')
    .split(/(?<!\\)\|/, maxColumns + 1)
    .map((cell) => cell.trim().replaceAll('\\|', '|'));
  return cells.length > maxColumns ? null : cells;
}

/** The alignments of a delimiter row, such as `| --- | ---: |`; null for any other line. */
export function tableAlignments(line: string): Alignment[] | null {
  const cells = tableCells(line);
  if (cells === null || !cells.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return cells.map((cell) => {
    if (!cell.endsWith(':')) return 'left';
    return cell.startsWith(':') ? 'center' : 'right';
  });
}

/** Whether the beginning of a line may become a delimiter row. */
export function mayBecomeAlignments(line: string): boolean {
  return /^\s*\|[\s|:-]*$/.test(line);
}
