// Pages of a list: how long one is, and the opaque cursor that leads to the next. A cursor holds the place of
// the last item shown, so that items which come or go meanwhile shift nothing.
import { Problem } from '../problem.ts';

const defaultLimit = 100;
const maximumLimit = 500;

/** A JSON value that says where the next page begins, such as `['2026-11-20T09:00:00.000Z', 'bur_…']`. */
export type CursorValue = string | number | boolean | null | readonly CursorValue[];

export function encodeCursor(value: CursorValue): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

/**
 * What a cursor holds, which anybody may have written: hold its shape against `isPlace` before it reaches a
 * query. Throws 400 for a cursor that we did not make.
 */
export function decodeCursor<Place>(cursor: string, isPlace: (value: unknown) => value is Place): Place {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'));
  } catch {
    throw notOurs();
  }
  if (!isPlace(value)) throw notOurs();
  return value;
}

/** The place that most lists have: the id of the last item. */
export function isCursorText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= 256 && !/\p{Cc}|\p{Surrogate}/u.test(value);
}

/** The place in a list in the order of time: a time in UTC, as SQL or JSON writes it, and an id. */
export function isTimeAndId(value: unknown): value is [time: string, id: string] {
  if (!Array.isArray(value) || value.length !== 2) return false;
  const [given, id] = value as unknown[];
  if (!isCursorText(given) || !isCursorText(id)) return false;
  const [, day, time] = /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.\d{1,6})?(?:Z|\+00)$/.exec(given) ?? [];
  if (day === undefined || day.startsWith('0000')) return false;
  const read = new Date(`${day}T${time}Z`);
  // What is not in the calendar is read as a day after it.
  return !Number.isNaN(read.getTime()) && read.toISOString().startsWith(`${day}T${time}`);
}

/**
 * The page out of rows that were read with one more than `limit`: that one says whether there is a next page.
 */
export function pageOf<Row>(
  rows: readonly Row[],
  limit: number,
  cursorOf: (row: Row) => CursorValue,
): { items: Row[]; next_cursor: string | null } {
  const items = rows.slice(0, limit);
  const last = items.at(-1);
  const hasMore = rows.length > limit && last !== undefined;
  return { items, next_cursor: hasMore ? encodeCursor(cursorOf(last)) : null };
}

/** A caller's `limit`, or the default. */
export function pageLimit(query: { limit?: number | undefined }): number {
  return Math.min(query.limit ?? defaultLimit, maximumLimit);
}

function notOurs(): Problem {
  const message = 'is not a cursor of this list';
  return new Problem('bad_request', 'invalid_request', `\`cursor\` ${message}.`, {
    param: 'cursor',
    details: [{ path: 'cursor', message }],
  });
}
