// The action `files.patch`: several changes at once, as edits or as a diff.
import { symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openWorkspace } from '../../../src/agent/plugins/index.ts';
import { applyPatch } from '../../../src/agent/plugins/builtin/files/patch.ts';
import type { Workspace } from '../../../src/agent/plugins/builtin/workspace/workspace.ts';
import { openFilesPlugin, type FilesPlugin } from '../../support/files-plugin.ts';

let plugin: FilesPlugin;
beforeEach(async () => {
  plugin = await openFilesPlugin(['data']);
});
afterEach(() => plugin.remove());

const tenLines = Array.from({ length: 10 }, (_, index) => `line ${index + 1}\n`).join('');

const header = (path: string): string => `--- a/${path}\n+++ b/${path}\n`;

/** Patches `a.txt`, which has this text, with the hunks, and returns its new text. */
async function patch(text: string, hunks: string): Promise<string | null> {
  await plugin.put({ 'a.txt': text });
  expect(await plugin.call('patch', { diff: header('a.txt') + hunks })).toMatchObject({ ok: true });
  return plugin.text('a.txt');
}

async function refusalOf(input: object): Promise<string> {
  const outcome = await plugin.call('patch', input);
  return outcome.ok ? 'it was applied' : outcome.message;
}

describe('files.patch with edits', () => {
  test('applies the edits in their order', async () => {
    await plugin.put({ 'a.ts': 'one two', 'b.ts': 'three' });
    expect(
      await plugin.call('patch', {
        edits: [
          { path: 'a.ts', oldText: 'one', newText: 'uno' },
          { path: 'a.ts', oldText: 'uno two', newText: 'uno dos' },
          { path: 'b.ts', oldText: 'three', newText: 'tres' },
        ],
      }),
    ).toMatchObject({ ok: true, output: { files: [{ path: 'a.ts', change: 'changed' }, { path: 'b.ts' }] } });
    expect([await plugin.text('a.ts'), await plugin.text('b.ts')]).toEqual(['uno dos', 'tres']);
  });

  test.each(['./a.ts', 'link/a.ts'])('applies edits of a.ts and %s to one file', async (otherPath) => {
    await plugin.put({ 'a.ts': 'one two' });
    await symlink('.', join(plugin.folder, 'link'));
    const edits = [
      { path: 'a.ts', oldText: 'one', newText: 'uno' },
      { path: otherPath, oldText: 'two', newText: 'dos' },
    ];
    expect(await plugin.call('patch', { edits })).toMatchObject({
      ok: true,
      output: { files: [{ path: 'a.ts', change: 'changed', bytes: 7 }] },
    });
    expect(await plugin.text('a.ts')).toBe('uno dos');
  });

  test('changes nothing when an edit does not fit', async () => {
    await plugin.put({ 'a.ts': 'one', 'b.ts': 'three' });
    const message = await refusalOf({
      edits: [
        { path: 'a.ts', oldText: 'one', newText: 'uno' },
        { path: 'b.ts', oldText: 'four', newText: 'x' },
      ],
    });
    expect(message).toContain('edits[1]');
    expect(await plugin.text('a.ts')).toBe('one');
  });
});

describe('files.patch with a diff', () => {
  test('changes, creates and deletes files', async () => {
    await plugin.put({ 'src/a.txt': tenLines, 'old.txt': 'gone\n' });
    const diff = [
      'diff --git a/src/a.txt b/src/a.txt',
      '--- a/src/a.txt',
      '+++ b/src/a.txt',
      '@@ -1,3 +1,3 @@',
      ' line 1',
      '-line 2',
      '+LINE 2',
      ' line 3',
      '@@ -8,3 +8,4 @@',
      ' line 8',
      '+line 8.5',
      ' line 9',
      ' line 10',
      '--- /dev/null',
      '+++ b/new/file.txt',
      '@@ -0,0 +1,2 @@',
      '+first',
      '+second',
      '\\ No newline at end of file',
      '--- a/old.txt',
      '+++ /dev/null',
      '@@ -1 +0,0 @@',
      '-gone',
      '',
    ].join('\n');
    expect(await plugin.call('patch', { diff })).toMatchObject({
      output: {
        files: [
          { path: 'src/a.txt', change: 'changed' },
          { path: 'new/file.txt', change: 'created' },
          { path: 'old.txt', change: 'deleted' },
        ],
      },
    });
    expect(await plugin.text('src/a.txt')).toBe(
      tenLines.replace('line 2', 'LINE 2').replace('line 9', 'line 8.5\nline 9'),
    );
    expect(await plugin.text('new/file.txt')).toBe('first\nsecond');
    expect(await plugin.text('old.txt')).toBeNull();
  });

  test('finds a hunk whose line numbers are wrong', async () => {
    expect(await patch(tenLines, '@@ -2,2 +2,2 @@\n line 7\n-line 8\n+eight\n')).toBe(
      tenLines.replace('line 8', 'eight'),
    );
  });

  test('puts hunks that only add lines after the lines of their headers', async () => {
    expect(await patch(tenLines, '@@ -1,0 +2 @@\n+first\n@@ -3,0 +5 @@\n+second\n')).toBe(
      tenLines.replace('line 1\n', 'line 1\nfirst\n').replace('line 3\n', 'line 3\nsecond\n'),
    );
  });

  test('ignores blank lines between files and hunks', async () => {
    await plugin.put({ 'a.txt': tenLines });
    const diff = [
      '--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n',
      `${header('a.txt')}@@ -1,2 +1,2 @@\n line 1\n-line 2\n+zwei\n`,
      '@@\n line 8\n+new\n\n',
    ].join('\n');
    expect(await plugin.call('patch', { diff })).toMatchObject({ ok: true });
    expect(await plugin.text('new.txt')).toBe('new\n');
    expect(await plugin.text('a.txt')).toBe(
      tenLines.replace('line 2', 'zwei').replace('line 8\n', 'line 8\nnew\n'),
    );
  });

  test('keeps unmarked blank lines that the header counts', async () => {
    const hunk = '@@ -3,3 +3,4 @@\n+zero\n one\n two\n\n';
    const nextFile = '\n--- /dev/null\n+++ b/b\n@@\n+b\n';
    expect(await patch('one\n\none\ntwo\n\n', hunk + nextFile)).toBe('one\n\nzero\none\ntwo\n\n');
  });

  test('keeps an unmarked blank line as the only context', async () => {
    expect(await patch('one\n\ntwo\n', '@@ -2 +2,2 @@\n+new\n\n')).toBe('one\nnew\n\ntwo\n');
  });

  test('keeps Windows line breaks', async () => {
    expect(await patch('one\r\ntwo\r\n', '@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n')).toBe('one\r\nzwei\r\n');
  });

  test('keeps the line breaks of a file that mixes them', async () => {
    const hunk = '@@ -1,3 +1,4 @@\n one\n two\n+two and a half\n-three\n+drei\n';
    expect(await patch('one\ntwo\r\nthree\nfour\n', hunk)).toBe('one\ntwo\r\ntwo and a half\r\ndrei\nfour\n');
  });

  test('counts the lines of a hunk without a number', async () => {
    expect(await patch(tenLines, '@@\n line 1\n+new\n+new\n@@ -8,0 +11 @@\n+last\n')).toBe(
      tenLines.replace('line 1\n', 'line 1\nnew\nnew\n').replace('line 8\n', 'line 8\nlast\n'),
    );
  });

  test('refuses hunks that are not in the order of the file', async () => {
    await plugin.put({ 'a.txt': tenLines });
    const diff = `${header('a.txt')}@@ -8 +8 @@\n-line 8\n+acht\n@@ -2 +2 @@\n-line 2\n+zwei\n`;
    expect(await refusalOf({ diff })).toBe(
      '"a.txt": The hunk 2 (@@ -2 +2 @@) does not fit: its lines come before those of the hunk 1; ' +
        'write the hunks in the order of the file. Nothing was changed.',
    );
  });

  test('changes nothing when a hunk does not fit', async () => {
    await plugin.put({ 'a.txt': tenLines, 'b.txt': tenLines });
    const diff = [
      '--- a/a.txt',
      '+++ b/a.txt',
      '@@ -1 +1 @@',
      '-line 1',
      '+eins',
      '--- a/b.txt',
      '+++ b/b.txt',
      '@@ -1 +1 @@',
      '-line 1',
      '+eins',
      '@@ -4,2 +4,2 @@',
      ' line 4',
      '-line five',
      '+fünf',
    ].join('\n');
    expect(await refusalOf({ diff })).toBe(
      '"b.txt": The hunk 2 (@@ -4,2 +4,2 @@) does not fit: line 5 should be "line five" and is "line 5". ' +
        'Read the file again. Nothing was changed.',
    );
    expect([await plugin.text('a.txt'), await plugin.text('b.txt')]).toEqual([tenLines, tenLines]);
  });

  test.each([
    { link: 'notes', target: '.husky', path: 'notes/pre-commit', file: '.husky/pre-commit' },
    { link: 'Notes.md', target: 'notes.md', path: 'Notes.md', file: 'notes.md' },
  ])('deletes no file through a link from $link to $target', async ({ link, target, path, file }) => {
    await plugin.put({ [file]: 'check\n' });
    await symlink(target, join(plugin.folder, link));
    const diff = `--- a/${path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-check\n`;
    expect(await refusalOf({ diff })).toContain('leads through a link');
    expect(await plugin.text(file)).toBe('check\n');
  });

  test('restores the first files when a later one cannot be written', async () => {
    await plugin.put({ 'a.txt': 'one\n' });
    // The second file would be in a folder `a.txt`, which is a file.
    const diff =
      '--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n--- /dev/null\n+++ b/a.txt/c\n@@ -0,0 +1 @@\n+x\n';
    expect(await refusalOf({ diff })).toContain('a.txt/c');
    expect(await plugin.text('a.txt')).toBe('one\n');
  });

  test('refuses two headers of one file', async () => {
    await plugin.put({ 'a.txt': 'one\ntwo\n' });
    const diff = `${header('a.txt')}@@ -1 +1 @@\n-one\n+uno\n${header('./a.txt')}@@ -2 +2 @@\n-two\n+dos\n`;
    expect(await refusalOf({ diff })).toContain('twice');
    expect(await plugin.text('a.txt')).toBe('one\ntwo\n');
  });

  test('names the files that it cannot restore', async () => {
    await plugin.put({ 'a.txt': 'one', 'b.txt': 'one', 'c.txt': 'one' });
    const workspace = await openWorkspace({ folder: plugin.folder, hidden: [] });
    const fullDisk: Workspace = {
      ...workspace,
      async write(path, content) {
        const isRestored = path === 'a.txt' && content.toString() === 'one';
        if (path === 'c.txt' || isRestored) throw new Error('no space is left');
        return workspace.write(path, content);
      },
    };
    const edits = ['a.txt', 'b.txt', 'c.txt'].map((path) => ({ path, oldText: 'one', newText: 'two' }));
    const patch = applyPatch(
      { edits },
      {
        workspace: fullDisk,
        readText: async (path) => (await workspace.read(path, 100)).toString(),
        maxBytes: 100,
      },
    );
    await expect(patch).rejects.toThrow('could not be restored: "a.txt".');
    expect(await plugin.text('b.txt')).toBe('one');
  });

  test.each([
    ['no diff at all', 'hello', 'names no file'],
    ['a rename', '--- a/a.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-a\n+b', 'renames'],
    ['a hunk without a file', '@@ -1 +1 @@\n-a\n+b', 'begins with a hunk'],
    ['a new file that exists', '--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+b', 'which exists'],
    ['a path outside', '--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b', 'only leads down'],
    ['a hidden file', '--- a/data/x\n+++ b/data/x\n@@ -1 +1 @@\n-a\n+b', 'does not exist'],
    ['a link', '--- a/link\n+++ b/link\n@@ -1 +1 @@\n-a\n+b', 'outside'],
  ])('refuses %s', async (_form, diff, message) => {
    await plugin.put({ 'a.txt': 'a\n', 'data/x': 'a\n' });
    await symlink('/etc/hostname', join(plugin.folder, 'link'));
    expect(await refusalOf({ diff })).toContain(message);
  });

  test('bounds its work on a file of equal lines', async () => {
    await plugin.put({ 'a.txt': 'x\n'.repeat(100_000) });
    const diff = `--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n${'-x\n'.repeat(50_000)}-y\n+z\n`;
    expect(await refusalOf({ diff })).toContain('repeats its lines');
  });
});

describe('the permissions of files.patch', () => {
  test('are those of writing and editing its files', async () => {
    const diff = '--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1 +1 @@\n-a\n+b\n';
    expect(await plugin.tool('patch').permissions({ diff }, { workspace: plugin.folder })).toEqual([
      { path: 'src/a.txt', isProtected: false },
      { right: 'write', path: 'src/a.txt', isProtected: false },
      { right: 'edit', path: 'src/a.txt', isProtected: false },
    ]);
  });

  test('name each file once however its path is written', async () => {
    const edit = { oldText: 'a', newText: 'b' };
    const paths = ['a.txt', './a.txt', 'src//b.txt', 'src/./b.txt'];
    const permissions = await plugin
      .tool('patch')
      .permissions({ edits: paths.map((path) => ({ path, ...edit })) }, { workspace: plugin.folder });
    expect(permissions?.filter(({ right }) => right === undefined)).toEqual([
      { path: 'a.txt', isProtected: false },
      { path: 'src/b.txt', isProtected: false },
    ]);
    // Three for each of the two files: to patch, to write and to edit it.
    expect(permissions).toHaveLength(6);
  });

  test('include an approval for a protected file', () => {
    const { needsApproval } = plugin.tool('patch');
    const edit = (path: string) => ({ edits: [{ path, oldText: 'a', newText: 'b' }] });
    const call = { workspace: plugin.folder };
    expect([needsApproval(edit('package.json'), call), needsApproval(edit('a.txt'), call)]).toEqual([
      true,
      false,
    ]);
  });
});
