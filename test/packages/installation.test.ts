// The programs that the tests of the packages start.
import { tmpdir } from 'node:os';
import { expect, test } from 'vitest';
import { start } from './installation.ts';

test.each([
  ['exit 3', 3],
  ['kill -KILL $$', 'SIGKILL'],
])('stop returns how a program has already ended: %s', async (script, end) => {
  const program = start('/bin/sh', ['-c', script], { cwd: tmpdir() });
  await expect(program.waitFor(/never/)).rejects.toThrow(`ended with ${end}`);
  expect(await program.stop()).toBe(end);
});
