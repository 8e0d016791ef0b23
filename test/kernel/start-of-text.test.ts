import { describe, expect, test } from 'vitest';
import { startOfText } from '../../src/kernel/start-of-text.ts';

describe('startOfText', () => {
  test.each([
    ['leaves a short text as it is', 'a\u{1f600}', 3, 'a\u{1f600}'],
    ['cuts before a surrogate pair', 'a\u{1f600}', 2, 'a'],
    ['replaces a half in the middle of the text', 'a\ud83db', 3, 'a\ufffdb'],
  ])('%s', (_promise, text, length, expected) => {
    expect(startOfText(text, length)).toBe(expected);
  });
});
