// The workspace of each session: the agent's workspace, or a workspace of the session's own, which is an
// empty folder or a worktree of the agent's repository. A session's own workspace lies in the data folder,
// under the session's key, and is removed with the session.
import { execFile } from 'node:child_process';
import { chmod, lstat, mkdir, readdir, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createLruCache, type LruCache } from '../../kernel/cache.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { openWorkspace, type Workspace, type WorkspaceAt } from '../plugins/index.ts';
import type { Sandbox } from '../processes/index.ts';
import { copyFiles } from './copy.ts';
import { branchOf, openRepository, type Repository } from './repository.ts';
import { addMember, workspaceUnavailable, type WorkspaceMember } from './unavailable.ts';

export type WorkspaceKind = 'shared' | 'folder' | 'worktree';

export interface WorkspaceSession {
  key: string;
  workspace: WorkspaceKind;
}

export interface Workspaces {
  /** Returns an open workspace by its root: the agent's, or one that `of` has returned before. */
  at: WorkspaceAt;
  /** Opens the workspace of a session. Throws a Problem when the folder is not on this machine. */
  of(session: WorkspaceSession): Promise<Workspace>;
  rootOf(session: WorkspaceSession): string;
  /** The branch of a worktree; null for other kinds. */
  branchOf(session: WorkspaceSession): string | null;
  /** Creates the folder of a new session. Throws a Problem, and leaves nothing behind, when it cannot. */
  create(session: WorkspaceSession): Promise<void>;
  /** Creates the folder of a fork with the current files of its parent; fails like `create`. */
  copy(parent: WorkspaceSession, fork: WorkspaceSession): Promise<void>;
  /** Never throws: a later sweep removes what could not be removed. */
  remove(session: WorkspaceSession): Promise<void>;
  /** Removes folders and worktrees that a crash has left without a session. */
  sweep(existingKeys: (keys: readonly string[]) => Promise<ReadonlySet<string>>): Promise<void>;
}

export interface WorkspacesOptions {
  shared: Workspace;
  dataDir: string;
  /** The environment of git and other programs; none of the agent's secrets are in it. */
  env: Readonly<Record<string, string>>;
  /** The sandbox of the programs; available before the first fork of a session. */
  sandbox(): Sandbox;
  clock: Clock;
  log: Pick<Log, 'warn'>;
}

interface Context extends WorkspacesOptions {
  /** The folder of all sessions' own workspaces, absolute and without links. */
  folder: string;
}

// The maximum of AGENT_MAX_WORKSPACES, so that no workspace is evicted: a run that waits for an approval
// would fail if its workspace were no longer open.
const maxOpen = 10_000;
// Younger folders stay: another process with the same data folder may be about to insert their session.
const sweepAgeMs = 10 * 60_000;

export async function createWorkspaces(options: WorkspacesOptions): Promise<Workspaces> {
  const context: Context = { ...options, folder: join(await realpath(options.dataDir), 'workspaces') };
  const cache = createLruCache<string, Workspace>({ capacity: maxOpen });
  return {
    ...openWorkspaces(context, cache),
    rootOf: (session) => rootOf(context, session),
    branchOf: ({ key, workspace }) => (workspace === 'worktree' ? branchOf(key) : null),
    create: (session) => createOwn(context, { session, param: 'workspace' }, () => fillOwn(context, session)),
    copy: (parent, fork) =>
      createOwn(context, { session: fork, param: 'sessionId' }, () => copyOwn(context, { parent, fork })),
    async remove(session) {
      if (session.workspace === 'shared') return;
      cache.delete(rootOf(context, session));
      await discard(context, session);
    },
    sweep: (existingKeys) => sweep(context, existingKeys),
  };
}

async function sweep(context: Context, existingKeys: Parameters<Workspaces['sweep']>[0]): Promise<void> {
  const repository = await repositoryOf(context).catch(() => undefined);
  const folders = await readdir(context.folder).catch(() => []);
  // A crash during a removal may leave git's registration of a worktree whose folder is gone.
  const worktrees = (await repository?.namesIn(context.folder)) ?? [];
  const keys = [...new Set([...folders, ...worktrees])];
  if (keys.length === 0) return;
  const existing = await existingKeys(keys);
  for (const key of keys)
    if (!existing.has(key) && !(await isNew(context, key)))
      await discard(context, { key, workspace: repository === undefined ? 'folder' : 'worktree' });
}

function openWorkspaces(context: Context, cache: LruCache<string, Workspace>): Pick<Workspaces, 'at' | 'of'> {
  const { shared } = context;
  return {
    at(root) {
      const workspace = root === shared.root ? shared : cache.get(root);
      if (workspace === undefined) throw workspaceUnavailable('The workspace of the session is not open.');
      return workspace;
    },
    async of(session) {
      if (session.workspace === 'shared') return shared;
      const root = rootOf(context, session);
      const workspace = cache.get(root);
      if (workspace !== undefined && (await isFolder(root))) return workspace;
      const ownWorkspace = await openOwn(context, session);
      cache.set(root, ownWorkspace);
      return ownWorkspace;
    },
  };
}

function rootOf({ shared, folder }: Context, { key, workspace }: WorkspaceSession): string {
  return workspace === 'shared' ? shared.root : join(folder, key);
}

async function createOwn(
  context: Context,
  { session, param }: { session: WorkspaceSession; param: WorkspaceMember },
  fill: () => Promise<void>,
): Promise<void> {
  if (session.workspace === 'shared') return;
  try {
    await mkdir(context.folder, { recursive: true, mode: 0o700 });
    await fill();
  } catch (error) {
    await discard(context, session);
    throw addMember(error, param);
  }
}

async function fillOwn(context: Context, session: WorkspaceSession): Promise<void> {
  const repository = session.workspace === 'worktree' ? await repositoryOf(context) : undefined;
  const worktree = { name: session.key, path: rootOf(context, session) };
  await mkdir(worktree.path, { mode: 0o700 });
  await repository?.add(worktree, { commit: 'HEAD', withFiles: true });
}

function repositoryOf({ shared, env, clock, sandbox }: Context): Promise<Repository> {
  return openRepository(shared.root, { sandbox: sandbox(), env, clock });
}

async function openOwn(
  { shared, folder }: Context,
  { key, workspace }: WorkspaceSession,
): Promise<Workspace> {
  const root = join(folder, key);
  if (!(await isFolder(root)))
    throw workspaceUnavailable(
      'The workspace of the session is not on this machine, or was deleted.',
      'sessionId',
    );
  return openWorkspace({
    folder: root,
    hidden: shared.hidden,
    repository: workspace === 'worktree' ? join(shared.root, '.git') : null,
  });
}

async function copyOwn(
  context: Context,
  { parent, fork }: { parent: WorkspaceSession; fork: WorkspaceSession },
): Promise<void> {
  const [from, to] = [join(context.folder, parent.key), join(context.folder, fork.key)];
  const { env, clock } = context;
  if (!(await isFolder(from)))
    throw workspaceUnavailable('The workspace of the parent is not on this machine, or was deleted.');
  const isWorktree = parent.workspace === 'worktree';
  const worktree = { name: fork.key, path: to };
  const repository = isWorktree ? await repositoryOf(context) : undefined;
  await mkdir(to, { mode: 0o700 });
  if (repository !== undefined) {
    const commit = await repository.commitOf({ name: parent.key, path: from });
    await repository.add(worktree, { commit, withFiles: false });
  }
  await copyFiles({ from, to, isWorktree }, { sandbox: context.sandbox(), env, clock });
  await repository?.resetIndex(worktree);
}

/** Removes a workspace's folder, and its registration and branch in the repository. */
async function discard(context: Context, { key, workspace }: WorkspaceSession): Promise<void> {
  const { folder, log } = context;
  const path = join(folder, key);
  try {
    if (await isFolder(path)) {
      // A program may have removed permissions of folders, which `rm` needs.
      await promisify(execFile)('chmod', ['-R', 'u+rwX', path], { timeout: 60_000 }).catch(() => {});
      await chmod(path, 0o700);
      await rm(path, { recursive: true, force: true });
    }
    if (workspace !== 'worktree') return;
    const repository = await repositoryOf(context).catch(() => undefined);
    await repository?.forget({ name: key, path });
  } catch (error) {
    log.warn({ err: error, workspace: key }, 'the workspace of a session could not be removed');
  }
}

async function isFolder(path: string): Promise<boolean> {
  return lstat(path).then(
    (stats) => stats.isDirectory(),
    () => false,
  );
}

async function isNew({ folder, clock }: Context, key: string): Promise<boolean> {
  return lstat(join(folder, key)).then(
    ({ mtimeMs }) => clock.now().getTime() - mtimeMs <= sweepAgeMs,
    () => false,
  );
}
