// The only test in the runs of exit-code.test.ts. It fails unless EXIT_CODE_CASE is `pass`.
import { expect, test } from 'vitest';

test('passes if EXIT_CODE_CASE is pass', () => {
  expect(process.env['EXIT_CODE_CASE']).toBe('pass');
});
