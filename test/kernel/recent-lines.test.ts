// The last log lines in memory: positions, and the bounds on number and bytes.
import { describe, expect, test } from 'vitest';
import { createRecentLines } from '../../src/kernel/recent-lines.ts';

describe('createRecentLines', () => {
  test('reads on from the position of the last read', () => {
    const recent = createRecentLines();
    recent.add('a');
    const first = recent.read(0);
    recent.add('b');
    expect(first).toEqual({ lines: ['a'], next: 1 });
    expect(recent.read(first.next)).toEqual({ lines: ['b'], next: 2 });
    expect(recent.read(2)).toEqual({ lines: [], next: 2 });
  });

  test('keeps the latest lines beyond its number, with stable positions', () => {
    const recent = createRecentLines({ maxLines: 3 });
    for (let index = 0; index < 20; index += 1) {
      recent.add(`line ${index}`);
      const { lines, next } = recent.read(0);
      expect(lines).toEqual([index - 2, index - 1, index].filter((at) => at >= 0).map((at) => `line ${at}`));
      expect(next).toBe(index + 1);
    }
    expect(recent.read(18).lines).toEqual(['line 18', 'line 19']);
  });

  test('drops old lines beyond its bytes but never the last one', () => {
    const recent = createRecentLines({ maxBytes: 10 });
    recent.add('12345');
    recent.add('67890');
    recent.add('x');
    expect(recent.read(0).lines).toEqual(['67890', 'x']);
    recent.add('a line that is longer than all bytes');
    expect(recent.read(0).lines).toEqual(['a line that is longer than all bytes']);
  });
});
