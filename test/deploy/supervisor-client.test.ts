// Starts of a supervisor that fail.
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { cityFolder, startDetached } from '../../src/deploy/index.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { isRunning } from '../support/processes.ts';

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

test('a supervisor that does not answer in time is stopped', async () => {
  const folder = cityFolder(directory);
  await folder.make();
  const pidFile = join(directory, 'pid');
  const program = join(directory, 'silent.mjs');
  await writeFile(
    program,
    `import { renameSync, writeFileSync } from 'node:fs';
    setInterval(() => {}, 1_000);
    const pidFile = ${JSON.stringify(pidFile)};
    writeFileSync(pidFile + '.new', String(process.pid));
    renameSync(pidFile + '.new', pidFile);`,
  );
  const runner = { command: process.execPath, arguments: [program] };
  // The deadline has passed once the program runs.
  const clock = { ...systemClock, monotonicMs: () => (existsSync(pidFile) ? 3_600_000 : 0) };
  await expect(startDetached({ folder, runner, env: {}, clock, isForDeployment: true })).rejects.toThrow(
    'no answer within 15 seconds',
  );
  const pid = Number(await readFile(pidFile, 'utf8'));
  await expect.poll(() => isRunning(pid)).toBe(false);
});
