// The steps of a start, on a terminal and elsewhere.
import { describe, expect, test } from 'vitest';
import { createProgressLine } from '../../../src/cli/servers/progress-line.ts';

/** What a progress line prints and writes. */
function showSteps(steps: readonly string[], output: { isTerminal: boolean; term?: string }): string {
  let text = '';
  const progress = createProgressLine({
    env: { TERM: output.term },
    print: (line) => void (text += `${line}\n`),
    output: { isTerminal: output.isTerminal, write: async (bytes) => void (text += String(bytes)) },
  });
  steps.forEach((step) => progress.show(step));
  progress.clear();
  return text;
}

describe('createProgressLine', () => {
  test('replaces each step on a terminal and removes the last one', () => {
    expect(showSteps(['one', 'two'], { isTerminal: true })).toBe(
      '\r\u001B[K  one …\r\u001B[K  two …\r\u001B[K',
    );
  });

  test.each([
    ['elsewhere', { isTerminal: false }],
    ['on a dumb terminal', { isTerminal: true, term: 'dumb' }],
  ])('prints a line per step %s', (_, output) => {
    expect(showSteps(['one', 'two'], output)).toBe('  one …\n  two …\n');
  });

  test('erases nothing without a step', () => {
    expect(showSteps([], { isTerminal: true })).toBe('');
  });
});
