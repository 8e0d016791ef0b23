// The log file of a supervisor in the background.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openLogFile } from '../../src/deploy/supervisor/log-file.ts';

describe('the log file of a supervisor', () => {
  let folder: string;
  let file: string;
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'townhall-log-'));
    file = path.join(folder, 'city.log');
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  test('is readable by its owner only', () => {
    openLogFile(file).close();
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  test('keeps three files of the maximal size', () => {
    const log = openLogFile(file, { maxBytes: 4 });
    for (const line of ['one\n', 'two\n', 'six\n', 'ten\n']) log.write(line);
    log.close();
    const texts = [file, `${file}.1`, `${file}.2`].map((name) => readFileSync(name, 'utf8'));
    expect(texts).toEqual(['ten\n', 'six\n', 'two\n']);
  });

  test('can be written after a failed rotation', () => {
    const log = openLogFile(file, { maxBytes: 4 });
    for (const line of ['one\n', 'two\n']) log.write(line);
    mkdirSync(path.join(`${file}.2`, 'in the way'), { recursive: true });
    expect(() => log.write('six\n')).toThrow('EISDIR');
    rmSync(`${file}.2`, { recursive: true });
    log.write('ten\n');
    log.close();
    expect(readFileSync(file, 'utf8')).toBe('ten\n');
  });
});
