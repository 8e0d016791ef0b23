// Pages of lists and their cursors.
import { describe, expect, test } from 'vitest';
import {
  decodeCursor,
  encodeCursor,
  isCursorText,
  isTimeAndId,
  pageLimit,
  pageOf,
} from '../../../src/kernel/contract/page.ts';

describe('a page', () => {
  test('links to the next one while items remain', () => {
    const firstPage = pageOf(['a', 'b', 'c'], 2, (row) => row);
    expect(firstPage.items).toEqual(['a', 'b']);
    expect(decodeCursor(firstPage.next_cursor ?? '', isCursorText)).toBe('b');
    expect(pageOf(['c'], 2, (row) => row)).toEqual({ items: ['c'], next_cursor: null });
    expect(pageOf([], 2, () => 'x')).toEqual({ items: [], next_cursor: null });
  });

  test('has 100 items by default and at most 500', () => {
    expect([pageLimit({}), pageLimit({ limit: 7 }), pageLimit({ limit: 10_000 })]).toEqual([100, 7, 500]);
  });
});

describe('a cursor', () => {
  test('carries its values', () => {
    for (const time of [
      '2026-11-20 09:00:00.123456+00',
      '2026-11-20 09:00:00+00',
      '2024-02-29T23:59:59.000000Z',
    ]) {
      expect(decodeCursor(encodeCursor([time, 'bur_ü']), isTimeAndId)).toEqual([time, 'bur_ü']);
    }
  });

  test.each([
    '',
    '2026-11-20',
    '2026-02-31 09:00:00+00',
    '2026-11-20 24:00:01+00',
    '0000-01-01 09:00:00+00',
    '2026-11-20 09:00:00+01',
  ])('is refused with a time that is not a valid UTC time: %j', (time) => {
    expect(() => decodeCursor(encodeCursor([time, 'bur_x']), isTimeAndId)).toThrow(
      expect.objectContaining({ status: 400, param: 'cursor' }),
    );
  });

  test.each([
    '',
    '%%%',
    encodeCursor(null),
    Buffer.from('{"a":1}').toString('base64url'),
    Buffer.from('["a"').toString('base64url'),
    encodeCursor(['2026-11-20 09:00:00+00', 'b\u0000']),
    encodeCursor(['2026-11-20 09:00:00+00', 1]),
  ])('of another format is refused: %s', (cursor) => {
    expect(() => decodeCursor(cursor, isTimeAndId)).toThrow(
      expect.objectContaining({ status: 400, param: 'cursor' }),
    );
  });
});
