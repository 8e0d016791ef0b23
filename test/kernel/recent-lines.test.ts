// The last log lines in memory: positions, and the bounds on number and length.
import { describe, expect, test } from 'vitest';
import { createRecentLines } from '../../src/kernel/recent-lines.ts';

describe('createRecentLines', () => {
  test('reads on from the position of the last read', () => {
    const recentLines = createRecentLines();
    recentLines.add('a');
    const firstRead = recentLines.read(0);
    recentLines.add('b');
    expect(firstRead).toEqual({ lines: ['a'], next: 1 });
    expect(recentLines.read(firstRead.next)).toEqual({ lines: ['b'], next: 2 });
    expect(recentLines.read(2)).toEqual({ lines: [], next: 2 });
  });

  test('keeps the latest lines beyond its maximum number, with stable positions', () => {
    const recentLines = createRecentLines({ maxLines: 3 });
    for (let index = 0; index < 20; index += 1) {
      recentLines.add(`line ${index}`);
      const { lines, next } = recentLines.read(0);
      expect(lines).toEqual(
        [index - 2, index - 1, index].filter((number) => number >= 0).map((number) => `line ${number}`),
      );
      expect(next).toBe(index + 1);
    }
    expect(recentLines.read(18).lines).toEqual(['line 18', 'line 19']);
  });

  test('drops old lines beyond its characters but never the last line', () => {
    const recentLines = createRecentLines({ maxCharacters: 10 });
    recentLines.add('12345');
    recentLines.add('67890');
    recentLines.add('x');
    expect(recentLines.read(0).lines).toEqual(['67890', 'x']);
    recentLines.add('a line that is longer than the maximum');
    expect(recentLines.read(0).lines).toEqual(['a line that is longer than the maximum']);
  });

  test('reads all lines of a later start from a position of an earlier one', () => {
    const linesBefore = createRecentLines({ firstPosition: 1_000 });
    linesBefore.add('a');
    const { next } = linesBefore.read(0);
    const linesAfter = createRecentLines({ firstPosition: 2_000 });
    linesAfter.add('b');
    linesAfter.add('c');
    expect(linesAfter.read(next)).toEqual({ lines: ['b', 'c'], next: 2_002 });
  });
});
