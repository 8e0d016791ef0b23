// The one test that the runs of exit-code.test.ts contain. It fails when the environment says so.
import { expect, test } from 'vitest';

test('fails only when the environment says so', () => {
  expect(process.env['EXIT_CODE_CASE']).toBe('pass');
});
