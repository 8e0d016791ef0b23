// Sessions with a workspace of their own: a folder, or a git worktree of the agent's workspace.
import { execFileSync } from 'node:child_process';
import { chmod, mkdir, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { AgentClient } from '@townhall/agent';
import type { TestAgent } from '../../support/agent.ts';
import { hasBubblewrap } from '../../support/bubblewrap.ts';
import { calls, says, type StreamRequest } from '../../support/scripted-gateway.ts';
import { openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

interface SessionRun {
  sessionId: string;
  runId: string;
}

const wait = { headers: { prefer: 'wait=60' } };
const unavailableError = { status: 409, code: 'workspace_unavailable', param: 'workspace' };
// Requests about a session that exists have no member `workspace`.
const unavailableSession = { ...unavailableError, param: 'sessionId' };

function git(folder: string, ...args: string[]): string {
  const identity = ['-c', 'user.name=Test', '-c', 'user.email=test@example.com'];
  return execFileSync('git', ['-C', folder, ...identity, ...args], { encoding: 'utf8' }).trim();
}

/** An agent whose workspace is a repository with one commit. */
async function startInRepository(settings = {}): Promise<TestAgent> {
  const agent = await world.start({ settings });
  git(agent.workspace, 'init', '--quiet', '--initial-branch=main');
  await writeFile(join(agent.workspace, 'a.txt'), 'one\n');
  git(agent.workspace, 'add', '.');
  git(agent.workspace, 'commit', '--quiet', '--message', 'First');
  return agent;
}

/** Runs a tool in a session and returns its output, or the state of the call without one. */
async function callTool(
  { client }: TestAgent,
  sessionId: string,
  tool: { name: string; input: object },
): Promise<unknown> {
  world.gateway.answer((request: StreamRequest) =>
    request.prompt.at(-1)?.role === 'tool' ? says('Done.') : calls({ ...tool, id: 'call' }),
  );
  await client.sessions.prompt({ sessionId, text: 'Go.' }, wait);
  const { items } = await client.sessions.listMessages({ sessionId });
  const part = items.at(-1)?.parts.find(({ type }) => type === 'dynamic-tool');
  if (part?.type !== 'dynamic-tool') throw new Error('No tool was called.');
  return part.state === 'output-available' ? part.output : part.state;
}

const write = (path: string, content: string) => ({ name: 'files_write', input: { path, content } });
const command = (text: string, input = {}) => ({ name: 'shell_run', input: { command: text, ...input } });

async function folderOf({ client }: TestAgent, sessionId: string): Promise<string> {
  return (await client.sessions.getSystem({ sessionId })).workspace.folder;
}

async function lastRunOf({ client }: TestAgent, sessionId: string): Promise<string> {
  const [message] = (await client.sessions.listMessages({ sessionId, order: 'desc' })).items;
  return String(message?.metadata?.['runId']);
}

async function forkOf({ client }: TestAgent, sessionId: string): Promise<string> {
  const fork = await client.sessions.fork({ sessionId });
  return 'id' in fork ? fork.id : '';
}

async function allowShell({ client }: TestAgent): Promise<void> {
  for (const tool of ['shell.run', 'shell.protected'])
    await client.permissions.create({ tool, effect: 'allow' });
}

const readText = (folder: string, path: string) => readFile(join(folder, path), 'utf8').catch(() => null);
const exists = (path: string) =>
  stat(path).then(
    () => true,
    () => false,
  );

describe('a session with a folder of its own', () => {
  test('works outside of the agent’s workspace', async () => {
    const agent = await world.start();
    const { id, workspace } = await agent.client.sessions.create({ workspace: 'folder' });
    expect(workspace).toBe('folder');
    await callTool(agent, id, write('a.txt', 'own'));
    expect(await readText(await folderOf(agent, id), 'a.txt')).toBe('own');
    expect(await readText(agent.workspace, 'a.txt')).toBeNull();
  });

  test('needs an approval for a protected file', async () => {
    const agent = await world.start();
    const { id } = await agent.client.sessions.create({ workspace: 'folder' });
    expect(await callTool(agent, id, write('package.json', '{}'))).toBe('output-denied');
  });

  test('undoes and redoes a run', async () => {
    const agent = await world.start();
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'folder' });
    await callTool(agent, sessionId, write('a.txt', 'own'));
    const folder = await folderOf(agent, sessionId);
    const runId = await lastRunOf(agent, sessionId);
    await agent.client.sessions.undoRun({ sessionId, runId });
    expect(await readText(folder, 'a.txt')).toBeNull();
    await agent.client.sessions.redoRun({ sessionId, runId });
    expect(await readText(folder, 'a.txt')).toBe('own');
  });

  test('deletes its folder when it is removed', async () => {
    const agent = await world.start();
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'folder' });
    const folder = await folderOf(agent, sessionId);
    await mkdir(join(folder, 'closed'));
    await chmod(join(folder, 'closed'), 0);
    await agent.client.sessions.remove({ sessionId });
    expect(await exists(folder)).toBe(false);
  });

  test.runIf(hasBubblewrap)('sees no other workspace in a command', async () => {
    const agent = await world.start();
    await allowShell(agent);
    await writeFile(join(agent.workspace, 'shared.txt'), 'x');
    const otherSession = await agent.client.sessions.create({ workspace: 'folder' });
    const { id } = await agent.client.sessions.create({ workspace: 'folder' });
    const otherFolder = await folderOf(agent, otherSession.id);
    const probe = `pwd; ls ${agent.workspace} ${otherFolder} 2>/dev/null; ls ..`;
    const { output } = (await callTool(agent, id, command(probe))) as { output: string };
    const folder = await folderOf(agent, id);
    expect(output.trim().split('\n')).toEqual([folder, folder.split('/').at(-1)]);
  });
});

describe('a session with a worktree', () => {
  test('has the files of the commit on its own branch', async () => {
    const agent = await startInRepository();
    await writeFile(join(agent.workspace, 'a.txt'), 'not committed\n');
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'worktree' });
    const { workspace } = await agent.client.sessions.getSystem({ sessionId });
    expect(await readText(workspace.folder, 'a.txt')).toBe('one\n');
    expect(git(workspace.folder, 'branch', '--show-current')).toBe(workspace.branch);
  });

  test.runIf(hasBubblewrap)('commits from a command only with an approval', async () => {
    const agent = await startInRepository();
    await allowShell(agent);
    const { id } = await agent.client.sessions.create({ workspace: 'worktree' });
    await callTool(agent, id, write('b.txt', 'new\n'));
    expect(await callTool(agent, id, command('git status --porcelain'))).toMatchObject({
      output: '?? b.txt\n',
    });
    const commit = 'git add . && git -c user.name=T -c user.email=t@example.com commit -qm Second';
    const { exitCode } = (await callTool(agent, id, command(commit))) as { exitCode: number };
    expect(exitCode).toBeGreaterThan(0);
    expect(await callTool(agent, id, command(commit, { protected: true }))).toMatchObject({ exitCode: 0 });
    expect(git(await folderOf(agent, id), 'log', '--format=%s', '-1')).toBe('Second');
  });

  test('is removed from git with the session', async () => {
    const agent = await startInRepository();
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'worktree' });
    await agent.client.sessions.remove({ sessionId });
    expect(git(agent.workspace, 'worktree', 'list').split('\n')).toHaveLength(1);
    expect(git(agent.workspace, 'branch', '--list', 'townhall/*')).toBe('');
  });

  test('keeps its branch when it has commits of its own', async () => {
    const agent = await startInRepository();
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'worktree' });
    const { workspace } = await agent.client.sessions.getSystem({ sessionId });
    git(workspace.folder, 'commit', '--quiet', '--allow-empty', '--message', 'Second');
    await agent.client.sessions.remove({ sessionId });
    expect(git(agent.workspace, 'branch', '--list', 'townhall/*')).toBe(workspace.branch);
  });

  test('runs no hook of the repository', async () => {
    const agent = await startInRepository();
    const hook = join(agent.workspace, '.git/hooks/post-checkout');
    await writeFile(hook, `#!/bin/sh\ntouch ${agent.dataDir}/hooked\n`, { mode: 0o755 });
    await agent.client.sessions.create({ workspace: 'worktree' });
    expect(await exists(join(agent.dataDir, 'hooked'))).toBe(false);
  });

  test.runIf(hasBubblewrap)('confines the programs that the config of the repository names', async () => {
    const agent = await startInRepository();
    const { workspace, dataDir } = agent;
    const escapedFiles = ['smudge', 'clean'].map((name) => join(dataDir, name));
    for (const name of ['smudge', 'clean'])
      git(workspace, 'config', `filter.x.${name}`, `touch ${dataDir}/${name}; touch smudged; cat`);
    await writeFile(join(workspace, '.git/info/attributes'), '*.txt filter=x\n');
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'worktree' });
    const folder = await folderOf(agent, sessionId);
    await writeFile(join(folder, 'a.txt'), 'two\n');
    await forkOf(agent, sessionId);
    // The filter has run.
    expect(await exists(join(folder, 'smudged'))).toBe(true);
    expect(await Promise.all(escapedFiles.map(exists))).toEqual([false, false]);
  });

  test('leaves nothing behind outside of a repository', async () => {
    const agent = await world.start();
    await expect(agent.client.sessions.create({ workspace: 'worktree' })).rejects.toMatchObject(
      unavailableError,
    );
    expect(await readdir(join(agent.dataDir, 'workspaces'))).toEqual([]);
  });

  test('is refused where the workspace is a folder of a repository', async () => {
    const { workspace } = await startInRepository();
    await mkdir(join(workspace, 'part'));
    const agent = await world.start({ workspace: join(workspace, 'part') });
    await expect(agent.client.sessions.create({ workspace: 'worktree' })).rejects.toMatchObject(
      unavailableError,
    );
  });
});

describe('sessions.create with a workspace', () => {
  test('is refused beyond the limit', async () => {
    const { client } = await world.start({ settings: { maxWorkspaces: 1 } });
    await client.sessions.create({ workspace: 'folder' });
    await expect(client.sessions.create({ workspace: 'folder' })).rejects.toMatchObject(unavailableError);
  });

  test('keeps the limit when sessions are created at once', async () => {
    const { client, dataDir } = await world.start({ settings: { maxWorkspaces: 1 } });
    const creations = [1, 2, 3].map(() => client.sessions.create({ workspace: 'folder' }));
    const outcomes = await Promise.allSettled(creations);
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect(await readdir(join(dataDir, 'workspaces'))).toHaveLength(1);
  });

  test('returns an existing session even at the limit', async () => {
    const { client } = await world.start({ settings: { maxWorkspaces: 1 } });
    const request = { id: 's', workspace: 'folder', ifExists: 'return' } as const;
    await client.sessions.create(request);
    expect(await client.sessions.create(request)).toMatchObject({ id: 's' });
    await expect(client.sessions.create({ ...request, ifExists: 'error' })).rejects.toMatchObject({
      code: 'session_exists',
    });
  });

  test('creates no second folder for an existing session', async () => {
    const { client, dataDir } = await world.start();
    const request = { id: 's', workspace: 'folder', ifExists: 'return' } as const;
    await client.sessions.create(request);
    await client.sessions.create(request);
    expect(await readdir(join(dataDir, 'workspaces'))).toHaveLength(1);
  });
});

describe('the fork of a session with a workspace of its own', () => {
  test('is refused beyond the limit', async () => {
    const { client } = await world.start({ settings: { maxWorkspaces: 1 } });
    const { id: sessionId } = await client.sessions.create({ workspace: 'folder' });
    await expect(client.sessions.fork({ sessionId })).rejects.toMatchObject(unavailableSession);
  });

  test('has a copy of the folder', async () => {
    const agent = await world.start();
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'folder' });
    await callTool(agent, sessionId, write('sub/a.txt', 'before'));
    const forkId = await forkOf(agent, sessionId);
    await callTool(agent, forkId, write('sub/a.txt', 'after'));
    expect(await readText(await folderOf(agent, sessionId), 'sub/a.txt')).toBe('before');
    expect(await readText(await folderOf(agent, forkId), 'sub/a.txt')).toBe('after');
  });

  test.runIf(hasBubblewrap)('leaves nothing behind when a file cannot be copied', async () => {
    const agent = await world.start();
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'folder' });
    await writeFile(join(await folderOf(agent, sessionId), 'closed.txt'), 'x', { mode: 0 });
    await expect(agent.client.sessions.fork({ sessionId })).rejects.toMatchObject(unavailableSession);
    expect(await readdir(join(agent.dataDir, 'workspaces'))).toHaveLength(1);
  });

  test('has a worktree with the same changes at the same commit', async () => {
    const agent = await startInRepository();
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'worktree' });
    const folder = await folderOf(agent, sessionId);
    git(folder, 'commit', '--quiet', '--allow-empty', '--message', 'Second');
    await callTool(agent, sessionId, write('a.txt', 'two\n'));
    const fork = await folderOf(agent, await forkOf(agent, sessionId));
    expect(git(fork, 'status', '--porcelain')).toBe('M a.txt');
    expect(git(fork, 'rev-parse', 'HEAD')).toBe(git(folder, 'rev-parse', 'HEAD'));
    expect(git(fork, 'branch', '--show-current')).not.toBe(git(folder, 'branch', '--show-current'));
  });
});

describe('a workspace whose folder is gone', () => {
  /** A session with one run, whose folder was deleted afterwards. */
  async function createBrokenSession(): Promise<{ client: AgentClient; run: SessionRun }> {
    const agent = await world.start();
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'folder' });
    await callTool(agent, sessionId, write('a.txt', 'own'));
    const run = { sessionId, runId: await lastRunOf(agent, sessionId) };
    await rm(await folderOf(agent, sessionId), { recursive: true });
    return { client: agent.client, run };
  }

  test('refuses undo, redo and forks', async () => {
    const { client, run } = await createBrokenSession();
    await expect(client.sessions.undoRun(run)).rejects.toMatchObject(unavailableSession);
    await expect(client.sessions.redoRun(run)).rejects.toMatchObject(unavailableSession);
    const fork = client.sessions.fork({ sessionId: run.sessionId });
    await expect(fork).rejects.toMatchObject(unavailableSession);
  });

  test('shows the changes of its runs', async () => {
    const { client, run } = await createBrokenSession();
    expect(await client.sessions.getChanges(run)).toMatchObject({ files: [{ path: 'a.txt' }] });
  });

  test('fails a run with the reason', async () => {
    const agent = await world.start();
    const { id: sessionId } = await agent.client.sessions.create({ workspace: 'folder' });
    await rm(await folderOf(agent, sessionId), { recursive: true });
    const { runId } = await agent.client.sessions.prompt({ sessionId, text: 'Go.' });
    await expect
      .poll(() => agent.client.sessions.getRun({ sessionId, runId }))
      .toMatchObject({
        status: 'failed',
        error: { code: 'workspace_unavailable' },
      });
  });
});

test('a decision in another process is stored as a rule', async () => {
  const firstAgent = await world.start();
  await firstAgent.client.sessions.create({ id: 's', workspace: 'folder', attended: true });
  world.gateway.answer((request: StreamRequest) =>
    request.prompt.at(-1)?.role === 'tool'
      ? says('Done.')
      : calls({ ...write('package.json', '{}'), id: 'call' }),
  );
  await firstAgent.client.sessions.prompt({ sessionId: 's', text: 'Go.' });
  const pending = async () =>
    (await firstAgent.client.sessions.listApprovals({ sessionId: 's', status: 'pending' })).items;
  await expect.poll(pending).toHaveLength(1);
  const [approval] = await pending();
  const secondAgent = await world.start({ dataDir: firstAgent.dataDir, name: firstAgent.name });
  await secondAgent.client.sessions.decideApproval({
    sessionId: 's',
    approvalId: approval?.approvalId ?? '',
    decision: 'deny',
    scope: 'session',
  });
  expect((await secondAgent.client.permissions.list({ sessionId: 's' })).items).toMatchObject([
    { tool: 'files.write', effect: 'deny' },
  ]);
});

test('a start unregisters only worktrees of sessions that are gone', async () => {
  const agent = await startInRepository();
  const { dataDir, name, workspace } = agent;
  await agent.client.sessions.create({ workspace: 'worktree' });
  const paths = [join(dataDir, 'workspaces', 'gone'), join(dataDir, 'elsewhere')];
  for (const path of paths) {
    git(workspace, 'worktree', 'add', '--quiet', '-b', `townhall/${basename(path)}`, path);
    await rm(path, { recursive: true });
  }
  const branches = () => git(workspace, 'branch', '--list', '--format=%(refname:short)', 'townhall/*');
  expect(branches()).toContain('townhall/gone');
  await world.start({ dataDir, name, workspace });
  await expect.poll(branches).not.toContain('townhall/gone');
  // The repository itself, the worktree of the session, and `elsewhere`, which is not below the agent's
  // folder.
  expect(git(workspace, 'worktree', 'list').split('\n')).toHaveLength(3);
  expect(branches()).toContain('townhall/elsewhere');
});

test('a start removes only old folders without a session', async () => {
  const agent = await world.start();
  const { id } = await agent.client.sessions.create({ workspace: 'folder' });
  const folder = await folderOf(agent, id);
  const folders = ['old', 'new'].map((name) => join(agent.dataDir, 'workspaces', name));
  for (const path of folders) await mkdir(path);
  const hourAgo = new Date(Date.now() - 3_600_000);
  for (const path of [folders[0] ?? '', folder]) await utimes(path, hourAgo, hourAgo);
  await world.start({ dataDir: agent.dataDir, name: agent.name });
  await expect.poll(() => readdir(join(agent.dataDir, 'workspaces'))).not.toContain('old');
  expect(await readdir(join(agent.dataDir, 'workspaces'))).toHaveLength(2);
});
