import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { searchText } from '../../src/kernel/text-search.ts';

describe('searchText', () => {
  test('finds what String.indexOf finds', () => {
    const letters = (constraints: fc.StringConstraints) =>
      fc.string({ ...constraints, unit: fc.constantFrom('a', 'b') });
    fc.assert(
      fc.property(letters({ maxLength: 400 }), letters({ maxLength: 40 }), (text, pattern) => {
        expect(searchText(text, pattern)).toBe(text.indexOf(pattern));
      }),
      { numRuns: 1_000 },
    );
  });

  test('finds a long pattern at any position', () => {
    const pattern = `${'a'.repeat(20)}b${'a'.repeat(20)}`;
    fc.assert(
      fc.property(fc.nat(200), fc.nat(200), (lengthBefore, lengthAfter) => {
        const text = 'a'.repeat(lengthBefore) + pattern + 'a'.repeat(lengthAfter);
        expect(searchText(text, pattern)).toBe(text.indexOf(pattern));
      }),
    );
  });

  test('runs in linear time over a repetitive text', () => {
    const pattern = `${'a'.repeat(5_000)}b${'a'.repeat(5_000)}`;
    // The product of both lengths would be 10^11 comparisons.
    expect(searchText('a'.repeat(10_000_000), pattern)).toBe(-1);
  });
});
