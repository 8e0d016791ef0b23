// What a run changes in the files of the workspace: the changes, undo and redo.
import { chmod, mkdir, readFile, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { SessionEvent } from '@townhall/agent';
import { definePlugin } from '../../../src/agent/plugins/index.ts';
import { calls, says, type StreamRequest } from '../../support/scripted-gateway.ts';
import { collect, holdAnswer, openWorld, type World } from '../../support/session-world.ts';
import type { TestAgent } from '../../support/agent.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

const wait = { headers: { prefer: 'wait=60' } };

/** A plugin whose tool changes the workspace as a command would. */
function createWorkPlugin(act: (folder: string) => Promise<void>) {
  return definePlugin({
    name: 'work',
    title: 'Work',
    description: 'Works.',
    actions: {
      do: {
        description: 'Works.',
        input: { type: 'object' },
        async run(_input, { workspace }) {
          await act(workspace);
        },
      },
    },
  });
}

/** An agent with these files, whose model calls the tools of the list, one a run. */
async function startWith(
  files: Readonly<Record<string, string>>,
  tools: readonly { name: string; input: object }[],
  act: (folder: string) => Promise<void> = async () => {},
): Promise<TestAgent> {
  let next = 0;
  world.gateway.answer((request: StreamRequest) => {
    const tool = tools[next];
    if (request.prompt.at(-1)?.role === 'tool' || tool === undefined) return says('Done.');
    next += 1;
    return calls({ ...tool, id: `call_${next}` });
  });
  const agent = await world.start({ createOptions: { plugins: [createWorkPlugin(act)] } });
  await put(agent, files);
  await agent.client.sessions.create({ id: 's' });
  return agent;
}

async function put({ workspace }: TestAgent, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(workspace, path)), { recursive: true });
    await writeFile(join(workspace, path), text);
  }
}

const readText = ({ workspace }: TestAgent, path: string): Promise<string | null> =>
  readFile(join(workspace, path), 'utf8').catch(() => null);

async function run({ client }: TestAgent): Promise<string> {
  const { runId } = await client.sessions.prompt({ sessionId: 's', text: 'Go.' }, wait);
  expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({ status: 'completed' });
  return runId;
}

async function eventsOf({ client }: TestAgent): Promise<SessionEvent[]> {
  return collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
}

const write = (path: string, content: string) => ({ name: 'files_write', input: { path, content } });

describe('sessions.getChanges', () => {
  test('shows what a run has changed, as a diff', async () => {
    const agent = await startWith(
      { 'a.txt': 'one\ntwo\n', 'gone.txt': 'bye\n', 'same.txt': 'same' },
      [{ name: 'work_do', input: {} }],
      async (folder) => {
        await writeFile(join(folder, 'a.txt'), 'one\nzwei\n');
        await writeFile(join(folder, 'new.txt'), 'hello\n');
        await rm(join(folder, 'gone.txt'));
      },
    );
    const runId = await run(agent);
    const files = [
      { path: 'a.txt', change: 'changed', additions: 1, deletions: 1 },
      { path: 'gone.txt', change: 'deleted', additions: 0, deletions: 1 },
      { path: 'new.txt', change: 'created', additions: 1, deletions: 0 },
    ];
    const changes = await agent.client.sessions.getChanges({ sessionId: 's', runId });
    expect(changes).toMatchObject({ sessionId: 's', runId, status: 'applied', files });
    expect(changes.files[0]?.diff).toBe('--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n');
    const events = await eventsOf(agent);
    const index = events.findIndex(({ type }) => type === 'workspace.changed');
    expect(events[index]).toMatchObject({ runId, count: 3, files });
    expect(events[index + 1]).toMatchObject({ type: 'run.settled' });
  });

  test('is empty for a run that only reads', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [{ name: 'files_read', input: { path: 'a.txt' } }]);
    const runId = await run(agent);
    expect(await agent.client.sessions.getChanges({ sessionId: 's', runId })).toEqual({
      sessionId: 's',
      runId,
      status: 'none',
      files: [],
    });
    expect(await stat(join(agent.dataDir, 'snapshots')).catch(() => null)).toBeNull();
  });

  test('leaves out what git ignores, secrets, packages and links', async () => {
    const ignoredPaths = ['dist/out.js', 'x.log', '.env', 'node_modules/p/i.js', '.git/config'];
    const agent = await startWith(
      { '.gitignore': 'dist/\n*.log\n!keep.log\n', 'sub/.gitignore': '/only.txt\n' },
      [{ name: 'work_do', input: {} }],
      async (folder) => {
        for (const path of [...ignoredPaths, 'keep.log', 'sub/only.txt', 'sub/deep/only.txt']) {
          await mkdir(dirname(join(folder, path)), { recursive: true });
          await writeFile(join(folder, path), 'x');
        }
        await symlink('/etc/hostname', join(folder, 'link'));
      },
    );
    const { files } = await agent.client.sessions.getChanges({ sessionId: 's', runId: await run(agent) });
    expect(files.map(({ path }) => path)).toEqual(['keep.log', 'sub/deep/only.txt']);
  });

  test('marks an open run, which can be neither undone nor redone', async () => {
    const modelAnswer = holdAnswer();
    world.gateway.answer(() => modelAnswer.answer);
    const { client } = await world.start();
    await client.sessions.create({ id: 's' });
    const { runId } = await client.sessions.prompt({ sessionId: 's', text: 'Go.' });
    await modelAnswer.request;
    expect(await client.sessions.getChanges({ sessionId: 's', runId })).toMatchObject({ status: 'open' });
    for (const call of [client.sessions.undoRun, client.sessions.redoRun])
      await expect(call({ sessionId: 's', runId })).rejects.toMatchObject({
        status: 409,
        code: 'session_busy',
      });
    modelAnswer.end();
  });

  test('refuses an unknown run or session, as do undo and redo', async () => {
    const { client } = await world.start();
    await client.sessions.create({ id: 's' });
    const unknownRun = { sessionId: 's', runId: 'run_of_another' };
    for (const call of [client.sessions.getChanges, client.sessions.undoRun, client.sessions.redoRun]) {
      await expect(call(unknownRun)).rejects.toMatchObject({ status: 404, code: 'run_not_found' });
      await expect(call({ ...unknownRun, sessionId: 'none' })).rejects.toMatchObject({
        code: 'session_not_found',
      });
    }
  });
});

describe('sessions.undoRun', () => {
  test('restores changed, created and deleted files with their modes', async () => {
    const agent = await startWith(
      { 'a.sh': 'one\n', 'old/gone.txt': 'bye\n' },
      [{ name: 'work_do', input: {} }],
      async (folder) => {
        await writeFile(join(folder, 'a.sh'), 'two\n');
        await chmod(join(folder, 'a.sh'), 0o644);
        await rm(join(folder, 'old'), { recursive: true });
        await mkdir(join(folder, 'new/deep'), { recursive: true });
        await writeFile(join(folder, 'new/deep/file.txt'), 'hello\n');
      },
    );
    await chmod(join(agent.workspace, 'a.sh'), 0o775);
    const runId = await run(agent);
    const undoAnswer = await agent.client.sessions.undoRun({ sessionId: 's', runId });
    expect(undoAnswer).toMatchObject({ runId, status: 'undone', files: [{ path: 'a.sh' }, {}, {}] });
    expect([await readText(agent, 'a.sh'), await readText(agent, 'old/gone.txt')]).toEqual([
      'one\n',
      'bye\n',
    ]);
    expect((await stat(join(agent.workspace, 'a.sh'))).mode & 0o777).toBe(0o775);
    expect(await stat(join(agent.workspace, 'new')).catch(() => null)).toBeNull();
    expect((await eventsOf(agent)).find((event) => event.type === 'workspace.undone')).toMatchObject({
      seq: undoAnswer.seq,
      runId,
      count: 3,
    });
    expect(await agent.client.sessions.getChanges({ sessionId: 's', runId })).toMatchObject({
      status: 'undone',
    });
  });

  test('tells the model about the undo, even after a restart', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [write('a.txt', 'two')]);
    const runId = await run(agent);
    await agent.client.sessions.undoRun({ sessionId: 's', runId });
    await run(agent);
    const notes = (request: StreamRequest | undefined) =>
      JSON.stringify(request?.prompt).match(/\[A note from the agent[^\]]*\]/g) ?? [];
    const firstRequest = world.gateway.requests.at(-1);
    expect(notes(firstRequest)).toEqual([expect.stringContaining('were undone')]);
    expect(notes(firstRequest)[0]).toContain('a.txt');
    await agent.close();
    const restartedAgent = await world.start({ name: agent.name });
    await restartedAgent.client.sessions.prompt({ sessionId: 's', text: 'Go.' }, wait);
    expect(notes(world.gateway.requests.at(-1))).toEqual(notes(firstRequest));
  });

  test('keeps the input that a regeneration answers', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [write('a.txt', 'two')]);
    const { sessions } = agent.client;
    await sessions.undoRun({ sessionId: 's', runId: await run(agent) });
    const receipt = await sessions.regenerate({ sessionId: 's' });
    await eventsOf(agent);
    const { items } = await sessions.listMessages({ sessionId: 's' });
    expect(receipt.messageId).toBe(items[0]?.id);
    expect(items.map(({ metadata }) => metadata?.['status'])).toEqual([undefined, 'replaced', 'completed']);
  });

  test('puts its note before the regenerated input', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [write('a.txt', 'two')]);
    const { sessions } = agent.client;
    await sessions.undoRun({ sessionId: 's', runId: await run(agent) });
    await sessions.regenerate({ sessionId: 's' });
    await eventsOf(agent);
    const inputs = world.gateway.requests.at(-1)?.prompt.filter(({ role }) => role === 'user');
    const [texts, input] = [JSON.stringify(inputs), JSON.stringify(inputs?.at(-1))];
    expect(texts).toContain('A note from the agent');
    expect(input.indexOf('A note from the agent')).toBeLessThan(input.indexOf('Go.'));
  });

  test('restores nothing when another program has changed a file', async () => {
    const agent = await startWith(
      { 'a.txt': 'one', 'b.txt': 'one' },
      [{ name: 'work_do', input: {} }],
      async (folder) => {
        await writeFile(join(folder, 'a.txt'), 'two');
        await writeFile(join(folder, 'b.txt'), 'two');
      },
    );
    const runId = await run(agent);
    await put(agent, { 'b.txt': 'three' });
    await expect(agent.client.sessions.undoRun({ sessionId: 's', runId })).rejects.toMatchObject({
      status: 409,
      code: 'files_changed',
      details: [{ path: 'b.txt' }],
    });
    expect([await readText(agent, 'a.txt'), await readText(agent, 'b.txt')]).toEqual(['two', 'three']);
  });

  test('restores the files once the change of another program is reverted', async () => {
    const agent = await startWith({ 'b.txt': 'one' }, [write('b.txt', 'two')]);
    const runId = await run(agent);
    await put(agent, { 'b.txt': 'three' });
    await put(agent, { 'b.txt': 'two' });
    await agent.client.sessions.undoRun({ sessionId: 's', runId });
    expect(await readText(agent, 'b.txt')).toBe('one');
  });

  test('restores nothing while a later run has changed the file', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [write('a.txt', 'two'), write('a.txt', 'three')]);
    const [firstRun, secondRun] = [await run(agent), await run(agent)];
    const undo = (runId: string) => agent.client.sessions.undoRun({ sessionId: 's', runId });
    await expect(undo(firstRun)).rejects.toMatchObject({ code: 'files_changed' });
    await undo(secondRun);
    await undo(firstRun);
    expect(await readText(agent, 'a.txt')).toBe('one');
  });

  test('follows no link that replaces a folder', async () => {
    const agent = await startWith({ 'sub/a.txt': 'one' }, [write('sub/a.txt', 'two')]);
    const runId = await run(agent);
    const outsideFolder = join(agent.dataDir, 'outside');
    await mkdir(outsideFolder);
    await writeFile(join(outsideFolder, 'a.txt'), 'two');
    await rm(join(agent.workspace, 'sub'), { recursive: true });
    await symlink(outsideFolder, join(agent.workspace, 'sub'));
    await expect(agent.client.sessions.undoRun({ sessionId: 's', runId })).rejects.toMatchObject({
      code: 'files_changed',
    });
    expect(await readFile(join(outsideFolder, 'a.txt'), 'utf8')).toBe('two');
  });

  test('refuses a run without changes', async () => {
    const agent = await startWith({}, []);
    const runId = await run(agent);
    await expect(agent.client.sessions.undoRun({ sessionId: 's', runId })).rejects.toMatchObject({
      code: 'nothing_to_undo',
    });
  });

  test('keeps files that a changed .gitignore no longer ignores', async () => {
    const agent = await startWith({ '.gitignore': 'data\n', data: 'mine' }, [
      { name: 'files_write', input: { path: '.gitignore', content: '' } },
    ]);
    const runId = await run(agent);
    const { files } = await agent.client.sessions.undoRun({ sessionId: 's', runId });
    expect(files.map(({ path }) => path)).toEqual(['.gitignore']);
    expect(await readText(agent, 'data')).toBe('mine');
  });
});

describe('sessions.redoRun', () => {
  test('puts undone changes in place again', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [write('a.txt', 'two')]);
    const target = { sessionId: 's', runId: await run(agent) };
    await agent.client.sessions.undoRun(target);
    expect(await agent.client.sessions.redoRun(target)).toMatchObject({
      status: 'applied',
      files: [{ path: 'a.txt' }],
    });
    expect(await readText(agent, 'a.txt')).toBe('two');
  });

  test('tells the model about the redo', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [write('a.txt', 'two')]);
    const target = { sessionId: 's', runId: await run(agent) };
    await agent.client.sessions.undoRun(target);
    await agent.client.sessions.redoRun(target);
    await run(agent);
    expect(JSON.stringify(world.gateway.requests.at(-1)?.prompt)).toContain('are in place again');
  });

  test('refuses a run whose changes are in place', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [write('a.txt', 'two')]);
    const runId = await run(agent);
    await expect(agent.client.sessions.redoRun({ sessionId: 's', runId })).rejects.toMatchObject({
      code: 'nothing_to_redo',
    });
  });

  test('names the files that another program has changed', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [write('a.txt', 'two')]);
    const target = { sessionId: 's', runId: await run(agent) };
    await agent.client.sessions.undoRun(target);
    await put(agent, { 'a.txt': 'other' });
    await expect(agent.client.sessions.redoRun(target)).rejects.toMatchObject({
      code: 'files_changed',
      details: [{ path: 'a.txt' }],
    });
  });
});

describe('snapshots of the workspace', () => {
  test('are skipped with one warning when it is too large', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [write('b.txt', 'x'), write('c.txt', 'x')]);
    // 65 files of 4 MiB exceed the limit of 256 MiB. They are sparse, so they take no space.
    for (let index = 0; index < 65; index += 1) {
      await writeFile(join(agent.workspace, `${index}.bin`), '');
      await truncate(join(agent.workspace, `${index}.bin`), 4 * 1024 * 1024);
    }
    const runId = await run(agent);
    await run(agent);
    const warnings = (await eventsOf(agent)).filter((event) => event.type === 'run.warning');
    expect(warnings).toMatchObject([
      { code: 'snapshot_skipped', message: expect.stringContaining('more than 256 MiB') },
    ]);
    expect(await agent.client.sessions.getChanges({ sessionId: 's', runId })).toMatchObject({
      status: 'none',
    });
  });

  test('are deleted with their session', async () => {
    const agent = await startWith({ 'a.txt': 'one' }, [write('a.txt', 'two')]);
    const runId = await run(agent);
    const rows = () => agent.sql`select 1 from agent.snapshots_files where run_id = ${runId}`;
    expect(await rows()).toHaveLength(1);
    await agent.client.sessions.remove({ sessionId: 's' });
    expect(await rows()).toHaveLength(0);
  });
});
