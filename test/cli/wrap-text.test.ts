// Lines of help of a certain width.
import { describe, expect, test } from 'vitest';
import { wrapText } from '../../src/cli/command-line/wrap-text.ts';

describe('wrapText', () => {
  test('breaks between words', () => {
    expect(wrapText('one two three', 8)).toEqual(['one two', 'three']);
  });

  test('keeps a long word whole', () => {
    expect(wrapText('a verylongword b', 6)).toEqual(['a', 'verylongword', 'b']);
  });
});
