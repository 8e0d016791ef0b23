// The plugin `files` against a real folder: what it does, and every way out of the folder that we know of.
import { execFileSync } from 'node:child_process';
import { link, mkdir, mkdtemp, readdir, readFile, realpath, rm, stat, symlink, writeFile, chmod } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { callAction, createRegistry, files, openWorkspace, type ActionOutcome } from '../../../src/agent/plugins/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../support/databases.ts';

describe('the plugin files', () => {
  let outside: string;
  let workspace: string;
  let call: (action: string, input: unknown) => Promise<ActionOutcome>;

  beforeEach(async () => {
    outside = await realpath(await mkdtemp(join(tmpdir(), 'townhall-files-')));
    workspace = join(outside, 'workspace');
    await mkdir(join(workspace, 'data'), { recursive: true });
    await writeFile(join(outside, 'secret.txt'), 'nobody may read this');
    await mkdir(join(outside, 'workspace-of-another'));
    await writeFile(join(outside, 'workspace-of-another', 'secret.txt'), 'nor this');
    await writeFile(join(workspace, 'data', 'agent.token'), 'th_agt_hidden');
    const opened = await openWorkspace({ folder: workspace, hidden: [join(workspace, 'data')] });
    const registry = createRegistry([files(opened)]);
    call = (action, input) => {
      const tool = registry.tool(`files_${action}`);
      if (!tool) throw new Error(`There is no files_${action}.`);
      return callAction({ tool, input, workspace: opened.root, signal: new AbortController().signal, timeoutMs: 5_000, clock: systemClock, log: silentLog });
    };
  });
  afterEach(() => rm(outside, { recursive: true, force: true }));

  test('writes a file and its folders, reads it, lists it and replaces it with its mode kept', async () => {
    expect(await call('write', { path: 'a/b/c.sh', content: 'één' })).toEqual({ ok: true, output: { path: 'a/b/c.sh', bytes: 5, created: true } });
    await chmod(join(workspace, 'a/b/c.sh'), 0o750);
    expect(await call('write', { path: './a//b/c.sh', content: 'two' })).toMatchObject({ ok: true, output: { created: false } });
    expect((await stat(join(workspace, 'a/b/c.sh'))).mode & 0o777).toBe(0o750);
    expect(await call('read', { path: 'a/b/c.sh' })).toEqual({ ok: true, output: { path: 'a/b/c.sh', bytes: 3, content: 'two' } });
    expect(await call('list', { path: 'a/b' })).toEqual({ ok: true, output: { path: 'a/b', entries: [{ name: 'c.sh', type: 'file', bytes: 3 }] } });
    expect(await readdir(join(workspace, 'a/b'))).toEqual(['c.sh']);
  });

  test.each([
    ['..', 'holds `..`'],
    ['../secret.txt', 'holds `..`'],
    ['a/../../secret.txt', 'holds `..`'],
    ['a/..', 'holds `..`'],
    ['/etc/passwd', 'is absolute'],
    ['//etc/passwd', 'is absolute'],
    ['C:/secret.txt', 'is absolute'],
    ['..\\secret.txt', 'holds a backslash'],
    ['secret.txt\u0000.md', 'holds characters'],
    ['a\nb', 'holds characters'],
    ['\ud800', 'holds characters'],
    ['x'.repeat(300), 'is too long'],
  ])('refuses the path %j in every action', async (path, why) => {
    const asked: [string, object][] = [['list', { path }], ['read', { path }], ['write', { path, content: 'x' }]];
    for (const [action, input] of asked) {
      expect(await call(action, input)).toMatchObject({ ok: false, message: expect.stringContaining(why) });
    }
  });

  test('does not follow a link out of the workspace, whether it is the file, a folder on the way, or a chain', async () => {
    await symlink(join(outside, 'secret.txt'), join(workspace, 'file-link'));
    await symlink(outside, join(workspace, 'folder-link'));
    await symlink('folder-link', join(workspace, 'chain'));
    await symlink('../workspace-of-another', join(workspace, 'sibling'));
    await symlink(join(outside, 'new.txt'), join(workspace, 'dangling'));
    for (const path of ['file-link', 'folder-link/secret.txt', 'chain/secret.txt', 'sibling/secret.txt', 'dangling']) {
      expect(await call('read', { path })).toMatchObject({ ok: false });
      expect(await call('write', { path, content: 'mine now' })).toMatchObject({ ok: false });
    }
    for (const path of ['folder-link', 'chain', 'sibling']) expect(await call('list', { path })).toMatchObject({ ok: false });
    expect(await readFile(join(outside, 'secret.txt'), 'utf8')).toBe('nobody may read this');
    expect((await readdir(outside)).sort()).toEqual(['secret.txt', 'workspace', 'workspace-of-another']);
    expect(await readdir(join(outside, 'workspace-of-another'))).toEqual(['secret.txt']);
  });

  test('follows a link that stays within, but writes through none', async () => {
    await writeFile(join(workspace, 'real.txt'), 'here');
    await symlink('real.txt', join(workspace, 'alias.txt'));
    expect(await call('read', { path: 'alias.txt' })).toMatchObject({ ok: true, output: { content: 'here' } });
    expect(await call('write', { path: 'alias.txt', content: 'x' })).toMatchObject({ ok: false, message: expect.stringContaining('is a link') });
  });

  test('leaves another name of a file as it was when it replaces it', async () => {
    await link(join(outside, 'secret.txt'), join(workspace, 'hard.txt'));
    expect(await call('write', { path: 'hard.txt', content: 'mine now' })).toMatchObject({ ok: true });
    expect(await readFile(join(outside, 'secret.txt'), 'utf8')).toBe('nobody may read this');
  });

  test('hides the agent’s own data within the workspace, by name and through a link', async () => {
    await symlink('data/agent.token', join(workspace, 'token-link'));
    await symlink('data', join(workspace, 'data-link'));
    for (const path of ['data/agent.token', 'token-link', 'data-link/agent.token']) {
      expect(await call('read', { path })).toMatchObject({ ok: false, message: expect.stringContaining('does not exist') });
    }
    expect(await call('list', { path: 'data' })).toMatchObject({ ok: false });
    expect(await call('write', { path: 'data/new', content: 'x' })).toMatchObject({ ok: false });
    expect(JSON.stringify(await call('list', {}))).not.toContain('"data"');
  });

  test('refuses what is no text file: binary, too large, a folder, a pipe that nobody writes', async () => {
    await writeFile(join(workspace, 'binary'), Buffer.from([0xff, 0xfe, 0x00, 0x01]));
    await writeFile(join(workspace, 'zeros'), 'a\u0000b');
    await writeFile(join(workspace, 'large'), 'x'.repeat(256 * 1024 + 1));
    execFileSync('mkfifo', [join(workspace, 'pipe')]);
    expect(await call('read', { path: 'binary' })).toMatchObject({ ok: false, message: expect.stringContaining('not text') });
    expect(await call('read', { path: 'zeros' })).toMatchObject({ ok: false, message: expect.stringContaining('not text') });
    expect(await call('read', { path: 'large' })).toMatchObject({ ok: false, message: expect.stringContaining('larger than the 256 KiB') });
    expect(await call('read', { path: '.' })).toMatchObject({ ok: false });
    expect(await call('read', { path: 'pipe' })).toMatchObject({ ok: false, message: expect.stringContaining('not a plain file') });
    expect(await call('read', { path: 'absent' })).toMatchObject({ ok: false, message: expect.stringContaining('does not exist') });
    expect(await call('write', { path: 'pipe', content: 'x' })).toMatchObject({ ok: false });
    expect(await call('write', { path: 'a', content: 'x'.repeat(1024 * 1024 + 1) })).toMatchObject({ ok: false, message: expect.stringContaining('does not fit') });
  });

  test('lists a thousand entries at most and says that there are more', async () => {
    await Promise.all(Array.from({ length: 1_005 }, (_, index) => writeFile(join(workspace, `f${index}`), '')));
    const listed = await call('list', {});
    expect(listed).toMatchObject({ ok: true, output: { truncated: true } });
    expect(listed.ok && (listed.output as { entries: unknown[] }).entries).toHaveLength(1_000);
  });
});
