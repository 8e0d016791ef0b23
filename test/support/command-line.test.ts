import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const script = path.join(import.meta.dirname, '../../scripts/code-metrics.ts');

test('--help prints the comment at the top of a script', async () => {
  const { stdout } = await run(process.execPath, [script, '--help']);
  expect(stdout).toMatch(/^Prints readability figures .* node scripts\/code-metrics\.ts \[--json\]/s);
  expect(stdout).not.toContain('import {');
});

test('a script reports an unknown option in one line', async () => {
  await expect(run(process.execPath, [script, '--worse'])).rejects.toMatchObject({
    code: 2,
    stdout: '',
    stderr: "code-metrics: Unknown option '--worse'; use --help for the options\n",
  });
});
