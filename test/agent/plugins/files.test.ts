// The plugin `files` on a real folder: its actions, and every known way to escape the folder.
import { execFileSync } from 'node:child_process';
import {
  link,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  realpath,
  rm,
  stat,
  symlink,
  writeFile,
  chmod,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  callAction,
  createRegistry,
  files,
  openWorkspace,
  type ActionOutcome,
} from '../../../src/agent/plugins/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../support/databases.ts';

const outsideText = 'a text outside of the workspace';
let outsideFolder: string;
let workspace: string;
let call: (action: string, input: unknown) => Promise<ActionOutcome>;

async function openPlugin(hiddenPaths: string[]): Promise<void> {
  const workspaceFiles = await openWorkspace({ folder: workspace, hidden: hiddenPaths });
  const registry = createRegistry([files(() => workspaceFiles)]);
  call = (action, input) => {
    const tool = registry.tool(`files_${action}`);
    if (!tool) throw new Error(`There is no files_${action}.`);
    return callAction({
      tool,
      input,
      workspace: workspaceFiles.root,
      signal: new AbortController().signal,
      timeoutMs: 5_000,
      clock: systemClock,
      log: silentLog,
    });
  };
}

beforeEach(async () => {
  outsideFolder = await realpath(await mkdtemp(join(tmpdir(), 'townhall-files-')));
  workspace = join(outsideFolder, 'workspace');
  await mkdir(join(workspace, 'data'), { recursive: true });
  await writeFile(join(outsideFolder, 'secret.txt'), outsideText);
  await mkdir(join(outsideFolder, 'workspace-of-another'));
  await writeFile(join(outsideFolder, 'workspace-of-another', 'secret.txt'), 'a text of another workspace');
  await writeFile(join(workspace, 'data', 'agent.token'), 'th_agt_hidden');
  await openPlugin([join(workspace, 'data')]);
});
afterEach(() => rm(outsideFolder, { recursive: true, force: true }));

describe('files.write and files.edit', () => {
  test('creates a file with its folders', async () => {
    expect(await call('write', { path: 'a/b/c.sh', content: 'één' })).toEqual({
      ok: true,
      output: { path: 'a/b/c.sh', bytes: 5, created: true },
    });
    expect(await call('read', { path: 'a/b/c.sh' })).toEqual({
      ok: true,
      output: { path: 'a/b/c.sh', bytes: 5, content: 'één' },
    });
  });

  test('replaces a file and keeps its mode', async () => {
    await mkdir(join(workspace, 'a/b'), { recursive: true });
    await writeFile(join(workspace, 'a/b/c.sh'), 'one');
    await chmod(join(workspace, 'a/b/c.sh'), 0o750);
    expect(await call('write', { path: './a//b/c.sh', content: 'two!' })).toMatchObject({
      ok: true,
      output: { created: false },
    });
    expect(await readFile(join(workspace, 'a/b/c.sh'), 'utf8')).toBe('two!');
    expect((await stat(join(workspace, 'a/b/c.sh'))).mode & 0o777).toBe(0o750);
    expect(await readdir(join(workspace, 'a/b'))).toEqual(['c.sh']);
  });

  test('refuses content of more than 1 MiB', async () => {
    expect(await call('write', { path: 'a', content: 'x'.repeat(1024 * 1024 + 1) })).toMatchObject({
      ok: false,
      message: expect.stringContaining('does not match the schema'),
    });
  });

  test('refuses a path that is a pipe', async () => {
    execFileSync('mkfifo', [join(workspace, 'pipe')]);
    expect(await call('write', { path: 'pipe', content: 'x' })).toMatchObject({ ok: false });
  });

  test('refuses an edit whose result is too large', async () => {
    await writeFile(join(workspace, 'many.txt'), 'a'.repeat(200_000));
    const edit = { path: 'many.txt', oldText: 'a', newText: 'b'.repeat(1024 * 1024), all: true };
    expect(await call('edit', edit)).toMatchObject({
      ok: false,
      problem: { code: 'action_refused' },
      message: expect.stringContaining('would be larger than'),
    });
    expect((await stat(join(workspace, 'many.txt'))).size).toBe(200_000);
  });
});

describe('files.read and files.list', () => {
  test.each([
    ['bytes that are not UTF-8', 'binary', 'not text'],
    ['zeros', 'zeros', 'not text'],
    ['more than 256 KiB', 'large', 'larger than the 256 KiB'],
    ['a pipe', 'pipe', 'not a plain file'],
    ['a folder', '.', 'is a folder'],
    ['nothing', 'absent', 'does not exist'],
  ])('refuses to read %s', async (_kind, path, reason) => {
    await writeFile(join(workspace, 'binary'), Buffer.from([0xff, 0xfe, 0x00, 0x01]));
    await writeFile(join(workspace, 'zeros'), 'a\u0000b');
    await writeFile(join(workspace, 'large'), 'x'.repeat(256 * 1024 + 1));
    execFileSync('mkfifo', [join(workspace, 'pipe')]);
    expect(await call('read', { path })).toMatchObject({
      ok: false,
      message: expect.stringContaining(reason),
    });
  });

  test('lists a folder with the sizes of its files', async () => {
    await mkdir(join(workspace, 'a'));
    await writeFile(join(workspace, 'a/c.sh'), 'two');
    expect(await call('list', { path: 'a' })).toEqual({
      ok: true,
      output: { path: 'a', entries: [{ name: 'c.sh', type: 'file', bytes: 3 }] },
    });
  });

  test('cuts a list after a thousand entries and reports it', async () => {
    await Promise.all(
      Array.from({ length: 1_005 }, (_, index) => writeFile(join(workspace, `f${index}`), '')),
    );
    const result = await call('list', {});
    expect(result).toMatchObject({ ok: true, output: { truncated: true } });
    expect(result.ok && (result.output as { entries: unknown[] }).entries).toHaveLength(1_000);
  });
});

describe('a path out of the workspace', () => {
  test.each([
    ['..', 'contains `..`'],
    ['../secret.txt', 'contains `..`'],
    ['a/../../secret.txt', 'contains `..`'],
    ['a/..', 'contains `..`'],
    ['/etc/passwd', 'is absolute'],
    ['//etc/passwd', 'is absolute'],
    ['C:/secret.txt', 'is absolute'],
    ['..\\secret.txt', 'contains a backslash'],
    ['secret.txt\u0000.md', 'contains control characters'],
    ['a\nb', 'contains control characters'],
    ['\ud800', 'contains control characters'],
    ['x'.repeat(300), 'is too long'],
  ])('is refused in every action: %j', async (path, reason) => {
    const calls: [string, object][] = [
      ['list', { path }],
      ['read', { path }],
      ['write', { path, content: 'x' }],
    ];
    for (const [action, input] of calls) {
      expect(await call(action, input)).toMatchObject({
        ok: false,
        message: expect.stringContaining(reason),
      });
    }
  });

  test('is not reached through a link', async () => {
    await symlink(join(outsideFolder, 'secret.txt'), join(workspace, 'file-link'));
    await symlink(outsideFolder, join(workspace, 'folder-link'));
    await symlink('folder-link', join(workspace, 'chain'));
    await symlink('../workspace-of-another', join(workspace, 'sibling'));
    await symlink(join(outsideFolder, 'new.txt'), join(workspace, 'dangling'));
    for (const path of [
      'file-link',
      'folder-link/secret.txt',
      'chain/secret.txt',
      'sibling/secret.txt',
      'dangling',
    ]) {
      expect(await call('read', { path })).toMatchObject({ ok: false });
      expect(await call('write', { path, content: 'replaced' })).toMatchObject({ ok: false });
    }
    for (const path of ['folder-link', 'chain', 'sibling'])
      expect(await call('list', { path })).toMatchObject({ ok: false });
    expect(await readFile(join(outsideFolder, 'secret.txt'), 'utf8')).toBe(outsideText);
    expect((await readdir(outsideFolder)).sort()).toEqual([
      'secret.txt',
      'workspace',
      'workspace-of-another',
    ]);
    expect(await readdir(join(outsideFolder, 'workspace-of-another'))).toEqual(['secret.txt']);
  });
});

describe('a link within the workspace', () => {
  test('is followed for reading only', async () => {
    await writeFile(join(workspace, 'real.txt'), 'here');
    await symlink('real.txt', join(workspace, 'alias.txt'));
    expect(await call('read', { path: 'alias.txt' })).toMatchObject({
      ok: true,
      output: { content: 'here' },
    });
    expect(await call('write', { path: 'alias.txt', content: 'x' })).toMatchObject({
      ok: false,
      message: expect.stringContaining('is a link'),
    });
  });
});

describe('a hard link', () => {
  test('keeps its content when another name of it is replaced', async () => {
    await link(join(outsideFolder, 'secret.txt'), join(workspace, 'hard.txt'));
    expect(await call('write', { path: 'hard.txt', content: 'replaced' })).toMatchObject({ ok: true });
    expect(await readFile(join(outsideFolder, 'secret.txt'), 'utf8')).toBe(outsideText);
  });

  test('is neither read nor searched', async () => {
    await link(join(outsideFolder, 'secret.txt'), join(workspace, 'hard.txt'));
    expect(await call('read', { path: 'hard.txt' })).toMatchObject({
      ok: false,
      message: expect.stringContaining('hard link'),
    });
    expect(await call('edit', { path: 'hard.txt', oldText: 'outside', newText: 'inside' })).toMatchObject({
      ok: false,
    });
    expect(await call('search', { text: 'outside' })).toMatchObject({ ok: true, output: { matches: [] } });
  });

  test('is read in the folders of package managers', async () => {
    for (const folder of ['node_modules/.pnpm/a', '.venv/lib/site-packages/a']) {
      await mkdir(join(workspace, folder), { recursive: true });
      await link(join(outsideFolder, 'secret.txt'), join(workspace, folder, 'index.js'));
      expect(await call('read', { path: `${folder}/index.js` })).toMatchObject({ ok: true });
    }
  });
});

describe('a hidden file', () => {
  test('is any file of the agent’s data folder within the workspace', async () => {
    await symlink('data/agent.token', join(workspace, 'token-link'));
    await symlink('data', join(workspace, 'data-link'));
    for (const path of ['data/agent.token', 'token-link', 'data-link/agent.token']) {
      expect(await call('read', { path })).toMatchObject({
        ok: false,
        message: expect.stringContaining('does not exist'),
      });
    }
    expect(await call('list', { path: 'data' })).toMatchObject({ ok: false });
    expect(await call('write', { path: 'data/new', content: 'x' })).toMatchObject({ ok: false });
    const listing = await call('list', {});
    expect(listing).toMatchObject({ ok: true });
    expect(JSON.stringify(listing)).not.toContain('"data"');
  });

  // Files of other gateways or agents in the same workspace; no setting of this agent names them.
  test.each(['master.key', 'agent.token', 'local.token', 'control.sock', 'Master.KEY'])(
    'is any file named %s',
    async (name) => {
      await mkdir(join(workspace, 'other'));
      await writeFile(join(workspace, 'other', name), 'secret bytes');
      await symlink(`other/${name}`, join(workspace, 'plain-name'));
      for (const path of [`other/${name}`, 'plain-name']) {
        expect(await call('read', { path })).toMatchObject({
          ok: false,
          message: expect.stringContaining('reserved for secrets'),
        });
        expect(await call('edit', { path, oldText: 'secret', newText: 'x' })).toMatchObject({ ok: false });
        expect(await call('write', { path, content: 'x' })).toMatchObject({ ok: false });
      }
      expect(await call('list', { path: 'other' })).toEqual({
        ok: true,
        output: { path: 'other', entries: [] },
      });
      expect(await call('search', { text: 'secret bytes' })).toMatchObject({
        ok: true,
        output: { matches: [] },
      });
      expect(await readFile(join(workspace, 'other', name), 'utf8')).toBe('secret bytes');
    },
  );

  test('is any file in the folder of an embedded database', async () => {
    await mkdir(join(workspace, 'var', 'db', 'pg'), { recursive: true });
    await writeFile(join(workspace, 'var', 'db', 'townhall.lock'), '');
    await writeFile(join(workspace, 'var', 'db', 'pg', 'rows'), 'secret bytes');
    await symlink('var/db/pg', join(workspace, 'rows-link'));
    for (const path of ['var/db/pg/rows', 'rows-link/rows']) {
      expect(await call('read', { path })).toMatchObject({
        ok: false,
        message: expect.stringContaining('does not exist'),
      });
      expect(await call('write', { path, content: 'x' })).toMatchObject({ ok: false });
    }
    expect(await call('write', { path: 'src/townhall.lock', content: '' })).toMatchObject({
      ok: false,
      message: expect.stringContaining('reserved for secrets'),
    });
    expect(await call('list', { path: 'var/db' })).toMatchObject({ ok: false });
    expect(await call('list', { path: 'var' })).toEqual({ ok: true, output: { path: 'var', entries: [] } });
    expect(await call('list', { path: 'rows-link' })).toMatchObject({ ok: false });
    expect(await call('search', { text: 'secret bytes' })).toMatchObject({
      ok: true,
      output: { matches: [] },
    });
  });

  test('stays hidden under another name in the same tree', async () => {
    // A hard link gives one file two names, as a case-insensitive file system does.
    await mkdir(join(workspace, 'node_modules'));
    await writeFile(join(workspace, 'key'), 'secret bytes');
    await link(join(workspace, 'key'), join(workspace, 'node_modules', 'key'));
    await openPlugin([join(workspace, 'data'), join(workspace, 'key')]);
    expect(await call('read', { path: 'node_modules/key' })).toMatchObject({
      ok: false,
      message: expect.stringContaining('does not exist'),
    });
    expect(await call('list', { path: 'node_modules' })).toEqual({
      ok: true,
      output: { path: 'node_modules', entries: [] },
    });
  });
});

describe('an environment file', () => {
  test.each(['.env', '.env.production', 'app/.env.local', '.ENV'])('is not opened: %s', async (path) => {
    await mkdir(join(workspace, 'app'));
    await writeFile(join(workspace, path), 'API_KEY=secret');
    await symlink(path, join(workspace, 'settings'));
    for (const name of [path, 'settings']) {
      expect(await call('read', { path: name })).toMatchObject({
        ok: false,
        message: expect.stringContaining('environment file'),
      });
      expect(await call('write', { path: name, content: 'x' })).toMatchObject({ ok: false });
    }
    expect(await call('search', { text: 'API_KEY' })).toMatchObject({ ok: true, output: { matches: [] } });
    expect(await readFile(join(workspace, path), 'utf8')).toBe('API_KEY=secret');
  });

  test('is not a sample or a folder named .env', async () => {
    for (const path of ['.env.example', '.env.sample', '.env.template', '.env/lib.py']) {
      expect(await call('write', { path, content: 'API_KEY=' })).toMatchObject({ ok: true });
      expect(await call('read', { path })).toMatchObject({ ok: true, output: { content: 'API_KEY=' } });
    }
  });
});
