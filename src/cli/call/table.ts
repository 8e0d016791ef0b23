// Renders records as a table with a header line, at most as wide as the terminal.
import { styleText } from 'node:util';
import type { JsonRecord } from '../../kernel/json-value.ts';
import { columnGap, columnWidths, padCells } from '../command-line/columns.ts';

export interface Table {
  lines: string[];
  /** The titles of columns for which the terminal is too narrow. */
  hiddenTitles: string[];
}

export interface TableOptions {
  /** The terminal's width. Undefined without a terminal: all columns appear then, with absolute times. */
  width: number | undefined;
  now: Date;
}

/** The columns are in the order of their importance: the last ones are left out first. */
export function renderTable(
  records: readonly JsonRecord[],
  columns: readonly string[],
  { width, now }: TableOptions,
): Table {
  if (records.length === 0) return { lines: [], hiddenTitles: [] };
  const rows = [
    columns.map(titleOf),
    ...records.map((record) =>
      columns.map((name) => formatCell(record[name], width === undefined ? null : now)),
    ),
  ];
  const visibleIndices = width === undefined ? [...columns.keys()] : fitColumns(rows, width);
  const [header = [], ...cells] = padCells(
    rows.map((row) => visibleIndices.map((index) => row[index] ?? '')),
  );
  const names = visibleIndices.map((index) => columns[index] ?? '');
  const hiddenTitles = columns.flatMap((name, index) =>
    visibleIndices.includes(index) || isEmptyColumn(rows, index) ? [] : [titleOf(name)],
  );
  return {
    lines: [
      styleText('bold', cutLine(header.join(columnGap).trimEnd(), width)),
      ...cells.map((row) => renderRow(row, names, width)),
    ],
    hiddenTitles,
  };
}

/** Colours whole cells, except in a line that has to be cut. */
function renderRow(row: readonly string[], names: readonly string[], width: number | undefined): string {
  const line = row.join(columnGap).trimEnd();
  if (width !== undefined && line.length > width) return cutLine(line, width);
  return row
    .map((cell, index) => colourCell(cell, names[index] ?? ''))
    .join(columnGap)
    .trimEnd();
}

/** Indices of the columns that fit. Drops empty columns first, then columns from the right. */
function fitColumns(rows: readonly (readonly string[])[], width: number): number[] {
  const widths = columnWidths(rows);
  const fits = (indices: readonly number[]): boolean =>
    indices.reduce((sum, index) => sum + (widths[index] ?? 0) + columnGap.length, -columnGap.length) <= width;
  let indices = [...widths.keys()];
  if (fits(indices)) return indices;
  indices = indices.filter((index) => index === 0 || !isEmptyColumn(rows, index));
  while (indices.length > 1 && !fits(indices)) indices.pop();
  return indices;
}

function isEmptyColumn([, ...rows]: readonly (readonly string[])[], index: number): boolean {
  return rows.every((row) => row[index] === '-');
}

function titleOf(column: string): string {
  return column.toUpperCase().replaceAll('_', ' ');
}

// A newline would break the table, and a terminal obeys control characters.
function formatCell(value: unknown, now: Date | null): string {
  if (value === null || value === undefined) return '-';
  if (typeof value === 'number') return value.toLocaleString('en');
  if (Array.isArray(value) && value.every((item) => typeof item === 'string'))
    return formatCell(value.join(', '), now);
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  const [, timeToTheSecond] = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+Z$/.exec(text) ?? [];
  if (timeToTheSecond === undefined) return text.replaceAll(/[\p{Cc}\p{Cf}]/gu, '\uFFFD');
  return now === null ? `${timeToTheSecond}Z` : relativeTime(Date.parse(text) - now.getTime());
}

/** Such as `5m ago` and `in 30d`. */
function relativeTime(ms: number): string {
  const seconds = Math.round(Math.abs(ms) / 1000);
  const [unit, length] = timeUnits.find(([, unitSeconds]) => seconds >= unitSeconds) ?? ['s', 1];
  const amount = `${Math.floor(seconds / length)}${unit}`;
  return ms > 0 ? `in ${amount}` : `${amount} ago`;
}

const timeUnits: readonly (readonly [string, number])[] = [
  ['d', 86_400],
  ['h', 3_600],
  ['m', 60],
];

const wordColours: Readonly<Record<string, 'green' | 'yellow' | 'red'>> = {
  active: 'green',
  completed: 'green',
  client_closed: 'yellow',
  blocked: 'red',
  removed: 'red',
  rejected: 'red',
  upstream_failed: 'red',
};
const colouredColumns = ['state', 'outcome'];

function colourCell(cell: string, column: string): string {
  const word = cell.trimEnd();
  const colour = colouredColumns.includes(column) ? wordColours[word] : undefined;
  return colour === undefined ? cell : styleText(colour, word) + cell.slice(word.length);
}

function cutLine(line: string, width: number | undefined): string {
  return width === undefined || line.length <= width ? line : `${line.slice(0, Math.max(1, width - 1))}…`;
}
