// Rows of text in aligned columns.

/** Renders one line per row; numbers are aligned right, other cells left. */
export function alignColumns(rows: readonly (readonly string[])[]): string[] {
  return padCells(rows).map((row) => row.join(columnGap).trimEnd());
}

export const columnGap = '  ';

/** Pads each cell to the width of the widest cell in its column. */
export function padCells(rows: readonly (readonly string[])[]): string[][] {
  const widths = columnWidths(rows);
  return rows.map((row) =>
    row.map((cell, index) => {
      const width = widths[index] ?? 0;
      return /^-?[\d,]+$/.test(cell) ? cell.padStart(width) : cell.padEnd(width);
    }),
  );
}

export function columnWidths(rows: readonly (readonly string[])[]): number[] {
  const widths: number[] = [];
  for (const row of rows)
    for (const [index, cell] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, cell.length);
  return widths;
}
