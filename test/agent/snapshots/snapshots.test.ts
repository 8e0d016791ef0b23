// Snapshots of the workspace without an agent around them: changes after a crash, undo, and the
// deletion of contents.
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openWorkspace, type Workspace } from '../../../src/agent/plugins/index.ts';
import { createSnapshots, type Snapshots } from '../../../src/agent/snapshots/index.ts';
import { restoreFiles } from '../../../src/agent/snapshots/restore.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import type { TestAgent } from '../../support/agent.ts';
import { silentLog } from '../../support/databases.ts';
import { openWorld, type World } from '../../support/session-world.ts';

let world: World;
let agent: TestAgent;
let folder: string;
let workspace: Workspace;
let sessionKey: string;
beforeAll(async () => {
  world = await openWorld();
  agent = await world.start();
});
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-snapshots-'));
  await mkdir(join(folder, 'workspace'));
  workspace = await openWorkspace({ folder: join(folder, 'workspace'), hidden: [] });
  const { id } = await agent.client.sessions.create({});
  const [row] = await agent.sql<{ session_id: string }[]>`
    select session_id from agent.sessions_sessions where public_id = ${id}`;
  sessionKey = row?.session_id ?? '';
});
afterEach(() => rm(folder, { recursive: true, force: true }));
afterAll(async () => {
  await world.reset();
  await world.close();
});

const { signal } = new AbortController();
const put = (path: string, text: string) => writeFile(join(folder, 'workspace', path), text);

/** Opens the snapshots as a new process would. */
async function open({ limits = {}, clock = systemClock, isShared = false } = {}): Promise<Snapshots> {
  return createSnapshots({
    isShared,
    dataDir: folder,
    database: agent.database,
    // Each test has an agent of its own, and its folder is a unique name.
    agentId: folder,
    limits,
    clock,
    log: silentLog,
  });
}

/** The files of stored contents; their names are hashes, below folders with short names. */
async function listContents(): Promise<string[]> {
  const names = await readdir(join(folder, 'snapshots'), { recursive: true });
  return names.filter((name) => name.length > 10).sort();
}

const runOf = (runId: string) => ({ sessionKey, runId: `${runId}-${sessionKey}`, workspace });

describe('a run whose process died', () => {
  test('has the changes that the next process finds', async () => {
    await put('a.txt', 'one\n');
    const run = runOf('run');
    await (await open()).begin(run).beforeChange(signal);
    await put('a.txt', 'two\n');
    const snapshots = await open();
    expect(await snapshots.changes(run)).toMatchObject({ status: 'applied', files: [{ path: 'a.txt' }] });
    await put('a.txt', 'three\n');
    expect(await snapshots.changes(run)).toMatchObject({ files: [{ additions: 1, deletions: 1 }] });
  });

  test('has no changes where its contents are gone', async () => {
    const run = runOf('run');
    await (await open()).begin(run).beforeChange(signal);
    await rm(join(folder, 'snapshots'), { recursive: true });
    expect(await (await open()).changes(run)).toEqual({ status: 'none', files: [] });
  });
});

describe('a snapshot', () => {
  test('notices a change that keeps the size', async () => {
    await put('a.txt', 'one');
    const snapshots = await open();
    for (const [index, text] of ['two', 'six', 'ten'].entries()) {
      const run = snapshots.begin(runOf(`run${index}`));
      await run.beforeChange(signal);
      await put('a.txt', text);
      expect((await run.end()).files).toMatchObject([{ path: 'a.txt', additions: 1 }]);
    }
  });

  test('explains once per session why it is missing', async () => {
    await put('a.txt', 'one');
    await put('b.txt', 'one');
    const snapshots = await open({ limits: { maxFiles: 1 } });
    const [firstSnapshot, secondSnapshot] = [snapshots.begin(runOf('run1')), snapshots.begin(runOf('run2'))];
    expect(await firstSnapshot.beforeChange(signal)).toContain('more than 1 files');
    expect([await firstSnapshot.beforeChange(signal), await secondSnapshot.beforeChange(signal)]).toEqual([
      null,
      null,
    ]);
    expect(await firstSnapshot.end()).toEqual({ files: [], notice: null });
  });

  test('of a cancelled run does not wait for the snapshot of another workspace', async () => {
    const slowWorkspace = {
      ...workspace,
      root: `${workspace.root}-slow`,
      content: () => new Promise<never>(() => {}),
    };
    const snapshots = await open();
    const [slowAbort, abort] = [new AbortController(), new AbortController()];
    const slowRun = snapshots.begin({ ...runOf('run1'), workspace: slowWorkspace });
    const slowSnapshot = slowRun.beforeChange(slowAbort.signal);
    const run = snapshots.begin(runOf('run2'));
    const snapshot = run.beforeChange(abort.signal);
    abort.abort();
    expect(await snapshot).toBeNull();
    slowAbort.abort();
    await slowSnapshot;
    await run.end();
    expect(await snapshots.changes(runOf('run2'))).toEqual({ status: 'none', files: [] });
  });

  test('that fails at the end leaves no changes for later', async () => {
    await put('a.txt', 'one');
    const snapshots = await open({ limits: { maxFiles: 1 } });
    const run = snapshots.begin(runOf('run'));
    await run.beforeChange(signal);
    await put('b.txt', 'one');
    expect((await run.end()).notice).toContain('more than 1 files');
    await rm(join(folder, 'workspace', 'b.txt'));
    // Only a person has changed this file, after the run.
    await put('a.txt', 'two');
    const laterSnapshots = await open({ limits: { maxFiles: 1 } });
    expect(await laterSnapshots.changes(runOf('run'))).toEqual({ status: 'none', files: [] });
  });

  test('is not taken when the limit of files is 0', async () => {
    const snapshots = await open({ limits: { maxFiles: 0 } });
    const run = snapshots.begin(runOf('run'));
    expect(await run.beforeChange(signal)).toBeNull();
    await put('a.txt', 'one');
    expect(await run.end()).toEqual({ files: [], notice: null });
    expect(await snapshots.changes(runOf('run'))).toEqual({ status: 'none', files: [] });
  });

  test('leaves out files above the maximum size', async () => {
    await put('large.txt', 'x'.repeat(100));
    const run = (await open({ limits: { maxFileBytes: 50 } })).begin(runOf('run'));
    await run.beforeChange(signal);
    await put('large.txt', 'small');
    await put('new.txt', 'new');
    expect((await run.end()).files).toMatchObject([{ path: 'new.txt' }]);
  });
});

test('a run has no changes in a folder that was a link before', async () => {
  await mkdir(join(folder, 'outside'));
  await symlink(join(folder, 'outside'), join(folder, 'workspace/lib'));
  const run = (await open()).begin(runOf('run'));
  await run.beforeChange(signal);
  await rm(join(folder, 'workspace/lib'));
  await mkdir(join(folder, 'workspace/lib/deep'), { recursive: true });
  await put('lib/deep/a.txt', 'x');
  await put('library.txt', 'x');
  expect((await run.end()).files).toMatchObject([{ path: 'library.txt' }]);
});

describe('an undo', () => {
  async function changeFile(): Promise<void> {
    await put('a.txt', 'one');
    const run = (await open()).begin(runOf('run'));
    await run.beforeChange(signal);
    await put('a.txt', 'two');
    await run.end();
  }

  test('releases the lock of the session at its deadline', async () => {
    await changeFile();
    const snapshots = await open({ clock: { ...systemClock, sleep: async () => {} } });
    const slowDisk = { ...workspace, open: () => new Promise<never>(() => {}) };
    const restoration = snapshots.restore({ ...runOf('run'), workspace: slowDisk }, 'undo', (apply) =>
      apply(agent.sql),
    );
    await expect(restoration).rejects.toMatchObject({ status: 503, code: 'not_ready' });
  });

  test('keeps the files as another process has restored them', async () => {
    await changeFile();
    const undoElsewhere = async () => {
      await put('a.txt', 'one');
      await agent.sql`
        update agent.snapshots_runs set status = 'undone' where run_id = ${runOf('run').runId}`;
    };
    const restoration = (await open()).restore(runOf('run'), 'undo', async (apply) => {
      // The other process has the session's lock first.
      await undoElsewhere();
      const problem = await apply(agent.sql);
      if (problem !== null) throw problem;
    });
    await expect(restoration).rejects.toMatchObject({ status: 409, code: 'nothing_to_undo' });
    expect(await readFile(join(folder, 'workspace', 'a.txt'), 'utf8')).toBe('one');
  });

  describe('of a file that has replaced a folder', () => {
    let snapshots: Snapshots;
    beforeEach(async () => {
      await mkdir(join(folder, 'workspace', 'a'));
      await put('a/b.txt', 'one');
      snapshots = await open();
      const run = snapshots.begin(runOf('run'));
      await run.beforeChange(signal);
      await rm(join(folder, 'workspace', 'a'), { recursive: true });
      await put('a', 'two');
      await run.end();
    });
    const restore = (direction: 'undo' | 'redo') =>
      snapshots.restore(runOf('run'), direction, (apply) => apply(agent.sql));
    const read = (path: string) => readFile(join(folder, 'workspace', path), 'utf8');

    test('restores the folder, and a redo the file', async () => {
      expect(await restore('undo')).toBeNull();
      expect(await read('a/b.txt')).toBe('one');
      expect(await restore('redo')).toBeNull();
      expect(await read('a')).toBe('two');
    });

    test('can be repeated after a lost transaction', async () => {
      const setStatus = (status: string) =>
        agent.sql`update agent.snapshots_runs set status = ${status} where run_id = ${runOf('run').runId}`;
      expect(await restore('undo')).toBeNull();
      await setStatus('applied');
      expect(await restore('undo')).toBeNull();
      expect(await restore('redo')).toBeNull();
      await setStatus('undone');
      expect(await restore('redo')).toBeNull();
      expect(await read('a')).toBe('two');
    });

    test('keeps a folder with other files', async () => {
      expect(await restore('undo')).toBeNull();
      await put('a/c.txt', 'three');
      expect(await restore('redo')).toMatchObject({ code: 'files_changed' });
      expect(await Promise.all(['a/b.txt', 'a/c.txt'].map(read))).toEqual(['one', 'three']);
    });

    test('puts the file back if the transaction fails', async () => {
      const restoration = snapshots.restore(runOf('run'), 'undo', (apply) =>
        agent.database.tx(async (tx) => {
          expect(await apply(tx)).toBeNull();
          throw new Error('The transaction failed.');
        }),
      );
      await expect(restoration).rejects.toThrow('The transaction failed.');
      expect(await read('a')).toBe('two');
    });
  });

  test('restores the files before one that fails for an unknown reason', async () => {
    await put('a.txt', 'after');
    const [before, after] = ['before', 'after'].map((hash) => ({ hash, mode: 0o644 }));
    const restorations = ['a.txt', 'b.txt'].map((path) => ({
      path,
      from: after ?? null,
      to: before ?? null,
    }));
    const brokenDisk: Workspace = {
      ...workspace,
      write(path, ...content) {
        if (path === 'b.txt') throw new Error('The disk is broken.');
        return workspace.write(path, ...content);
      },
    };
    const restoration = restoreFiles(brokenDisk, restorations, {
      contentOf: async (hash) => Buffer.from(hash),
    });
    await expect(restoration).rejects.toThrow('The disk is broken.');
    expect(await readFile(join(folder, 'workspace', 'a.txt'), 'utf8')).toBe('after');
  });

  test('restores the files it changed when its deadline passes', async () => {
    await put('a.txt', 'after');
    await put('b.txt', 'after');
    const deadline = new AbortController();
    const [before, after] = ['before', 'after'].map((hash) => ({ hash, mode: 0o644 }));
    const restorations = ['a.txt', 'b.txt'].map((path) => ({
      path,
      from: after ?? null,
      to: before ?? null,
    }));
    const restoration = restoreFiles(workspace, restorations, {
      signal: deadline.signal,
      async contentOf(hash) {
        deadline.abort(new Error('It is late.'));
        return Buffer.from(hash);
      },
    });
    await expect(restoration).rejects.toThrow('It is late.');
    const texts = ['a.txt', 'b.txt'].map((path) => readFile(join(folder, 'workspace', path), 'utf8'));
    expect(await Promise.all(texts)).toEqual(['after', 'after']);
  });
});

describe('the contents of snapshots', () => {
  test('are deleted once nothing refers to them', async () => {
    // No other test refers to these contents.
    await put('same.txt', `same ${sessionKey}`);
    await put('a.txt', `one ${sessionKey}`);
    const snapshots = await open();
    const run = snapshots.begin(runOf('run'));
    await run.beforeChange(signal);
    await put('a.txt', `two ${sessionKey}`);
    await run.end();
    await snapshots.sweep();
    const changes = await snapshots.changes(runOf('run'));
    expect(changes.files[0]?.diff).toContain('-one');
    await snapshots.removeSession(sessionKey, null);
    // A new process relies on no earlier snapshot, so that it deletes all contents.
    await (await open()).sweep();
    expect(await listContents()).toEqual([]);
  });

  test('are deleted with the workspace of a session', async () => {
    await put('a.txt', `one ${sessionKey}`);
    // A second later the file counts as settled, so that the next snapshot would rely on its content.
    const clock = { ...systemClock, now: () => new Date(Date.now() + 1_000) };
    const snapshots = await open({ clock });
    const run = snapshots.begin(runOf('run'));
    await run.beforeChange(signal);
    await run.end();
    await snapshots.sweep();
    expect(await listContents()).toHaveLength(1);
    await snapshots.removeSession(sessionKey, workspace.root);
    await snapshots.sweep();
    expect(await listContents()).toEqual([]);
  });

  test('are written again after another process has deleted them', async () => {
    let aheadMs = 1_000;
    const clock = {
      ...systemClock,
      now: () => new Date(Date.now() + aheadMs),
      monotonicMs: () => systemClock.monotonicMs() + aheadMs,
    };
    const snapshots = await open({ clock, isShared: true });
    await put('a.txt', `one ${sessionKey}`);
    const firstRun = snapshots.begin(runOf('run1'));
    await firstRun.beforeChange(signal);
    await firstRun.end();
    // Later than the ten minutes for which a sweep leaves shared contents alone.
    aheadMs = 15 * 60_000;
    await (await open({ clock, isShared: true })).sweep();
    expect(await listContents()).toEqual([]);
    const run = snapshots.begin(runOf('run2'));
    await run.beforeChange(signal);
    await rm(join(folder, 'workspace/a.txt'));
    await run.end();
    expect((await snapshots.changes(runOf('run2'))).files[0]?.diff).toContain('-one');
  });

  test('stay for ten minutes where several processes share them', async () => {
    await put('a.txt', `one ${sessionKey}`);
    const run = (await open()).begin(runOf('run'));
    await run.beforeChange(signal);
    await run.end();
    const contentsBefore = await listContents();
    expect(contentsBefore).not.toEqual([]);
    await (await open({ isShared: true })).sweep();
    expect(await listContents()).toEqual(contentsBefore);
  });

  test('stay while a run is open', async () => {
    await put('a.txt', 'one');
    await (await open()).begin(runOf('run')).beforeChange(signal);
    const contentsBefore = await listContents();
    await (await open()).sweep();
    expect(await listContents()).toEqual(contentsBefore);
  });
});
