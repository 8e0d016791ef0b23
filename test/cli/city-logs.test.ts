// `townhall city logs` on the log file of a City, without a running City.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { command } from '../../src/cli/commands/city.ts';
import { runCommand } from '../../src/cli/command-line/parse.ts';
import { cityFolder, openLogFile } from '../../src/deploy/index.ts';

// Room for two of the lines below: the third and the fifth line begin a new file.
const maxBytes = 24;

describe('townhall city logs', () => {
  let project: string;
  let logFile: string;
  beforeEach(async () => {
    project = await mkdtemp(join(tmpdir(), 'townhall-city-logs-'));
    const folder = cityFolder(project);
    await folder.make();
    ({ logFile } = folder);
  });
  afterEach(() => rm(project, { recursive: true, force: true }));

  /** Starts the command. After `close` its output counts as closed, which ends the command at the next line. */
  function startLogs(...words: string[]) {
    const lines: string[] = [];
    let isOpen = true;
    const exit = runCommand('city', command, ['logs', '--project', project, ...words], {
      env: {},
      print: (line) => void lines.push(line),
      printError: () => {},
      isOutputOpen: () => isOpen,
      output: { isTerminal: false, write: async () => {} },
    });
    const close = () => void (isOpen = false);
    return { lines, exit, close };
  }

  test('prints new lines after several rotations of the file with --follow', async () => {
    const log = openLogFile(logFile, { maxBytes });
    log.write('line one\n');
    const { lines, exit, close } = startLogs('--follow');
    await expect.poll(() => lines).toEqual(['line one']);
    for (const name of ['two', 'three', 'four', 'five', 'six']) {
      log.write(`line ${name}\n`);
      await expect.poll(() => lines).toContain(`line ${name}`);
    }
    close();
    log.write('the last line\n');
    expect(await exit).toBe(0);
    log.close();
  });

  test('prints the lines that were written before a rotation is seen', async () => {
    const log = openLogFile(logFile, { maxBytes });
    log.write('line one\n');
    const { lines, exit, close } = startLogs('--follow');
    await expect.poll(() => lines).toEqual(['line one']);
    // All within one turn of the event loop, so the command sees only the result of both rotations. The first
    // file ends within line three, which the second file continues.
    log.write('line two\nline ');
    log.write('three\nline four\n');
    log.write('line five\n');
    await expect.poll(() => lines).toEqual(['line one', 'line two', 'line three', 'line four', 'line five']);
    close();
    log.write('the last line\n');
    expect(await exit).toBe(0);
    log.close();
  });
});
