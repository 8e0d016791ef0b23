// The start of a supervisor that fails.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { cityFolder, startDetached } from '../../src/deploy/index.ts';
import { systemClock } from '../../src/kernel/clock.ts';

let directory: string;
beforeEach(async () => {
  // A short path, because the path of a socket is limited to about 100 bytes.
  directory = await mkdtemp(join(tmpdir(), 'th-start-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

test('a supervisor that does not start is reported with its own output', async () => {
  const folder = cityFolder(directory);
  await folder.make();
  // A line of an earlier supervisor, which must not be reported. It has two bytes for each letter, so the end of
  // the log counted in letters would be wrong.
  await writeFile(folder.logFile, `${'ü'.repeat(100)}\n`);
  const program = join(directory, 'failing.mjs');
  await writeFile(program, "console.error('the reason');\nprocess.exit(1);\n");
  const runner = { command: process.execPath, arguments: [program] };
  await expect(
    startDetached({ folder, runner, env: {}, clock: systemClock, isForDeployment: true }),
  ).rejects.toThrow('The supervisor did not start: the reason');
});
