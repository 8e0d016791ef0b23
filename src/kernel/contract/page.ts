// Pages of a list and their opaque cursors. A cursor contains the sort key of the
// last item, so that inserted and deleted items do not shift the pages.
import { Problem } from '../problem.ts';

const defaultLimit = 100;
const maximumLimit = 500;

/** The sort key after which the next page begins, such as `['2026-11-20T09:00:00.000Z', 'bur_…']`. */
export type CursorValue = string | number | boolean | null | readonly CursorValue[];

export function encodeCursor(value: CursorValue): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

/**
 * The sort key in a cursor. Throws 400 unless `isSortKey` accepts it, as a caller
 * may have written the cursor.
 */
export function decodeCursor<SortKey>(
  cursor: string,
  isSortKey: (value: unknown) => value is SortKey,
): SortKey {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'));
  } catch {
    throw invalidCursor();
  }
  if (!isSortKey(value)) throw invalidCursor();
  return value;
}

/** The sort key of most lists: the id of the last item. */
export function isCursorText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= 256 && !/\p{Cc}|\p{Surrogate}/u.test(value);
}

/** The sort key of a list in order of time: a UTC time as SQL or JSON writes it, and an id. */
export function isTimeAndId(value: unknown): value is [time: string, id: string] {
  if (!Array.isArray(value) || value.length !== 2) return false;
  const [timeText, id] = value as unknown[];
  if (!isCursorText(timeText) || !isCursorText(id)) return false;
  const [, day, time] =
    /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.\d{1,6})?(?:Z|\+00)$/.exec(timeText) ?? [];
  if (day === undefined || day.startsWith('0000')) return false;
  const parsedTime = new Date(`${day}T${time}Z`);
  // Date accepts a day that does not exist, such as February 30, and turns it into a later day.
  return !Number.isNaN(parsedTime.getTime()) && parsedTime.toISOString().startsWith(`${day}T${time}`);
}

/**
 * The page from rows that were read with a limit one higher: the extra row shows that there is a next page.
 */
export function pageOf<Row>(
  rows: readonly Row[],
  limit: number,
  cursorOf: (row: Row) => CursorValue,
): { items: Row[]; next_cursor: string | null } {
  const items = rows.slice(0, limit);
  const lastItem = items.at(-1);
  const hasMore = rows.length > limit && lastItem !== undefined;
  return { items, next_cursor: hasMore ? encodeCursor(cursorOf(lastItem)) : null };
}

/** A caller's `limit`, or the default. */
export function pageLimit(query: { limit?: number | undefined }): number {
  return Math.min(query.limit ?? defaultLimit, maximumLimit);
}

function invalidCursor(): Problem {
  const message = 'is not a cursor of this list';
  return new Problem('bad_request', 'invalid_request', `\`cursor\` ${message}.`, {
    param: 'cursor',
    details: [{ path: 'cursor', message }],
  });
}
