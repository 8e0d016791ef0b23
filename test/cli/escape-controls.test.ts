// Control characters in text for a terminal.
import { expect, test } from 'vitest';
import { escapeControls } from '../../src/cli/command-line/escape-controls.ts';

test('control characters become the escapes of JSON', () => {
  // U+E0001 is a surrogate pair.
  const text = 'a\n\u001B[31m\u{E0001}b';
  expect(escapeControls(text)).toBe('a\\u000a\\u001b[31m\\udb40\\udc01b');
  expect(JSON.parse(`"${escapeControls(text)}"`)).toBe(text);
});
