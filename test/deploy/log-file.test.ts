// The log file of a supervisor in the background.
import type * as fileSystem from 'node:fs';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { openLogFile } from '../../src/deploy/supervisor/log-file.ts';

const disk = vi.hoisted(() => ({ isFull: false, attempts: 0 }));
vi.mock('node:fs', async (importOriginal) => {
  const original = await importOriginal<typeof fileSystem>();
  return {
    ...original,
    openSync: (...args: Parameters<typeof original.openSync>) => {
      if (!disk.isFull) return original.openSync(...args);
      disk.attempts += 1;
      throw Object.assign(new Error('no space'), { code: 'ENOSPC' });
    },
  };
});

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

  test('continues in the old file when the disk is too full for a new one', () => {
    const log = openLogFile(file, { maxBytes: 64 });
    const lines = ['a', 'b', 'c', 'd', 'e', 'f'].map((letter) => `${letter}\n`);
    log.write(`${'x'.repeat(63)}\n`);
    log.write(`${'y'.repeat(63)}\n`);
    disk.isFull = true;
    for (const line of lines) log.write(line);
    disk.isFull = false;
    log.write('the last line\n');
    log.close();
    // An attempt follows after 4 bytes, 1/16 of the maximum.
    expect(disk.attempts).toBe(3);
    const texts = [file, `${file}.1`, `${file}.2`].map((name) => readFileSync(name, 'utf8'));
    expect(texts).toEqual(['the last line\n', `${'y'.repeat(63)}\n${lines.join('')}`, `${'x'.repeat(63)}\n`]);
  });
});
