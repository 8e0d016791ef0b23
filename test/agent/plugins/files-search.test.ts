// The actions of `files` that read parts of large files, and find files and lines.
import type { FileHandle } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readLines } from '../../../src/agent/plugins/builtin/files/read-lines.ts';
import { findPaths } from '../../../src/agent/plugins/builtin/files/search.ts';
import { openWorkspace } from '../../../src/agent/plugins/index.ts';
import { openFilesPlugin, type FilesPlugin } from '../../support/files-plugin.ts';

let plugin: FilesPlugin;
beforeEach(async () => {
  plugin = await openFilesPlugin(['data']);
});
afterEach(() => plugin.remove());

describe('files.read with an offset', () => {
  test('names the next line to read', async () => {
    await plugin.put({ 'a.txt': 'one\ntwo\nthree\nfour' });
    expect(await plugin.call('read', { path: 'a.txt', offset: 2, limit: 2 })).toEqual({
      ok: true,
      output: { path: 'a.txt', offset: 2, content: 'two\nthree\n', lines: 2, nextOffset: 4 },
    });
    expect(await plugin.call('read', { path: 'a.txt', offset: 4 })).toEqual({
      ok: true,
      output: { path: 'a.txt', offset: 4, content: 'four', lines: 1, nextOffset: null },
    });
  });

  test('names no further line after the last one', async () => {
    await plugin.put({ 'a.txt': 'one\ntwo\n' });
    expect(await plugin.call('read', { path: 'a.txt', offset: 1, limit: 2 })).toMatchObject({
      output: { content: 'one\ntwo\n', lines: 2, nextOffset: null },
    });
  });

  test('returns nothing beyond the last line', async () => {
    await plugin.put({ 'a.txt': 'one\n' });
    expect(await plugin.call('read', { path: 'a.txt', offset: 9 })).toMatchObject({
      output: { content: '', lines: 0, nextOffset: null },
    });
  });

  test('reads a large file in pieces', async () => {
    const lines = Array.from({ length: 20_000 }, (_, index) => `line ${index + 1} with some é text\n`);
    await plugin.put({ 'big.txt': lines.join('') });
    expect(await plugin.call('read', { path: 'big.txt' })).toMatchObject({ ok: false });
    let offset: number | null = 1;
    let text = '';
    while (offset !== null) {
      const outcome = await plugin.call('read', { path: 'big.txt', offset, limit: 20_000 });
      if (!outcome.ok) throw new Error(outcome.message);
      const output = outcome.output as { content: string; nextOffset: number | null };
      text += output.content;
      offset = output.nextOffset;
    }
    expect(text).toBe(lines.join(''));
  });

  test('refuses a line that is longer than 256 KiB', async () => {
    await plugin.put({ 'long.txt': `short\n${'x'.repeat(300_000)}\nlast\n` });
    const outcome = await plugin.call('read', { path: 'long.txt', offset: 2, limit: 1 });
    expect(outcome).toMatchObject({ ok: false, message: expect.stringContaining('The line 2') });
    expect(await plugin.call('read', { path: 'long.txt', offset: 3 })).toMatchObject({
      output: { content: 'last\n' },
    });
  });

  test('reports lines beyond the bytes that it scans', async () => {
    const endlessFile = {
      read: async (buffer: Buffer) => ({ bytesRead: buffer.length, buffer }),
    } as unknown as Pick<FileHandle, 'read'>;
    expect(await readLines(endlessFile, { offset: 2, limit: 1, maxBytes: 1_024 })).toBe('too_far');
  });

  test('refuses lines that are not text', async () => {
    await plugin.put({ 'bin.dat': 'a\u0000b\n' });
    expect(await plugin.call('read', { path: 'bin.dat', offset: 1 })).toMatchObject({
      ok: false,
      message: expect.stringContaining('not text'),
    });
  });
});

describe('files.glob', () => {
  const paths = async (input: object) => {
    const outcome = await plugin.call('glob', input);
    return outcome.ok ? (outcome.output as { paths: string[] }).paths : outcome.message;
  };

  test('finds files by their paths', async () => {
    await plugin.put({ 'a.ts': '', 'src/b.ts': '', 'src/deep/c.test.ts': '', 'src/d.md': '' });
    expect(await paths({ pattern: '**/*.ts' })).toEqual(['a.ts', 'src/b.ts', 'src/deep/c.test.ts']);
    expect(await paths({ pattern: '*.{md,ts}', path: 'src' })).toEqual(['src/b.ts', 'src/d.md']);
    expect(await paths({ pattern: 'src/**' })).toEqual(['src/b.ts', 'src/d.md', 'src/deep/c.test.ts']);
  });

  test('shows no hidden files and no packages', async () => {
    await plugin.put({
      'data/agent.db': '',
      'node_modules/x/index.js': '',
      'townhall.lock.txt': '',
      'b.js': '',
    });
    expect(await paths({ pattern: '**/*' })).toEqual(['b.js', 'townhall.lock.txt']);
  });

  test('refuses a pattern of too many alternatives', async () => {
    expect(await paths({ pattern: '{a,b}'.repeat(10) })).toContain('64 alternatives');
  });

  test('needs the right to list as well', async () => {
    const call = { workspace: plugin.folder };
    expect(await plugin.tool('glob').permissions({ pattern: '*', path: '.' }, call)).toEqual([
      { path: '.', includesBelow: true },
      { right: 'list', path: '.', includesBelow: true },
    ]);
  });
});

test('findPaths leaves the event loop free for an abort', async () => {
  const workspace = await openWorkspace({ folder: plugin.folder, hidden: [] });
  const entries = Array.from({ length: 2_000 }, (_, index) => ({
    name: `${'a'.repeat(250)}${index}`,
    type: 'file' as const,
  }));
  // 64 alternatives, each of which tries every place of each name: about ten milliseconds for a name.
  const pattern = `*${'{a,b}'.repeat(6)}*${'a'.repeat(100)}b`;
  const abort = new AbortController();
  setTimeout(() => abort.abort(new Error('The run has ended.')), 50);
  const search = findPaths(
    { ...workspace, list: async () => ({ entries, truncated: false }) },
    { pattern, folder: '.', signal: abort.signal },
  );
  await expect(search).rejects.toThrow('The run has ended.');
});

describe('files.search with a pattern', () => {
  test('finds the lines that a regular expression matches', async () => {
    await plugin.put({ 'a.ts': 'const a = 1;\nlet b = 22;\n', 'b.md': 'let b = 3;\n' });
    expect(await plugin.call('search', { pattern: String.raw`= \d{2};` })).toEqual({
      ok: true,
      output: { files: 2, matches: [{ path: 'a.ts', line: 2, text: 'let b = 22;' }] },
    });
    expect(
      await plugin.call('search', { pattern: '^LET', ignoreCase: true, files: '**/*.ts' }),
    ).toMatchObject({
      output: { files: 1, matches: [{ path: 'a.ts', line: 2 }] },
    });
  });

  test('finds the end of a line before a Windows line break', async () => {
    await plugin.put({ 'a.txt': 'one\r\ntwo\r\n' });
    expect(await plugin.call('search', { pattern: 'one$' })).toMatchObject({
      output: { matches: [{ path: 'a.txt', line: 1, text: 'one' }] },
    });
    expect(await plugin.call('search', { text: 'two' })).toMatchObject({
      output: { matches: [{ path: 'a.txt', line: 2, text: 'two' }] },
    });
  });

  test.each(['.', 'a.txt'])('reports matches beyond its limit in %s', async (path) => {
    await plugin.put({ 'a.txt': 'x\n'.repeat(201) });
    const outcome = await plugin.call('search', { text: 'x', path });
    expect(outcome).toMatchObject({ output: { files: 1, truncated: true } });
    const { matches } = (outcome as { output: { matches: object[] } }).output;
    expect(matches).toHaveLength(200);
  });

  test.each(['.', 'a.txt'])('reports no truncation in %s with as many matches as its limit', async (path) => {
    await plugin.put({ 'a.txt': 'x\n'.repeat(200) });
    const outcome = await plugin.call('search', { text: 'x', path });
    expect((outcome as { output: object }).output).not.toHaveProperty('truncated');
  });

  test('leaves the event loop free while a pattern backtracks', async () => {
    await plugin.put({ 'a.txt': `${'a'.repeat(60)}!\n` });
    let turns = 0;
    const timer = setInterval(() => (turns += 1), 20);
    const outcome = await plugin.call('search', { pattern: '^(a+)+$' });
    clearInterval(timer);
    expect(outcome).toMatchObject({ ok: false, message: expect.stringContaining('simpler pattern') });
    // The search ends after two seconds, in which a free event loop runs the timer about 100 times.
    expect(turns).toBeGreaterThan(20);
  });

  test('refuses a pattern that is not a regular expression', async () => {
    expect(await plugin.call('search', { pattern: '(' })).toMatchObject({
      ok: false,
      message: expect.stringContaining('not a regular expression'),
    });
  });

  test.each([{ pattern: 'a', text: 'a' }, {}])(
    'refuses %j, which does not have exactly one of text and pattern',
    async (input) => {
      expect(await plugin.call('search', input)).toMatchObject({
        ok: false,
        message: expect.stringContaining('Send either `text` or a `pattern`'),
      });
    },
  );

  test('never matches in a hidden file', async () => {
    await plugin.put({ 'data/secret.txt': 'secret', '.env': 'secret', 'open.txt': 'secret' });
    expect(await plugin.call('search', { pattern: 'secret' })).toMatchObject({
      output: { matches: [{ path: 'open.txt' }] },
    });
  });
});
