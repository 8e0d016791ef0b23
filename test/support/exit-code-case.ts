// The one test of the runs that exit-code.test.ts starts: it fails when it is told to.
import { expect, test } from 'vitest';

test('passes unless the environment says otherwise', () => {
  expect(process.env['EXIT_CODE_CASE']).toBe('pass');
});
