// Worktrees of the repository in the agent's workspace. A repository's config names programs that
// git runs, such as filters, hooks and transports, so git runs in the sandbox, which shows it the
// repository and one worktree.
import { constants } from 'node:fs';
import { lstat, open, readdir, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { runProcess, type Sandbox } from '../processes/index.ts';
import { workspaceUnavailable } from './unavailable.ts';

export interface Repository {
  /**
   * Turns an empty folder into a worktree with a new branch at a commit. Checks out the files only when
   * `withFiles` is true.
   */
  add(worktree: Worktree, options: { commit: string; withFiles: boolean }): Promise<void>;
  /** The commit that a worktree has checked out. */
  commitOf(worktree: Worktree): Promise<string>;
  /** Resets the index to the worktree's commit, so that git shows its files as changes since that commit. */
  resetIndex(worktree: Worktree): Promise<void>;
  /** The names of the worktrees that git has registered directly in a folder, even if they are gone. */
  namesIn(folder: string): Promise<string[]>;
  /**
   * Deletes git's registration of a worktree whose folder is gone, and its branch, unless the branch has
   * commits that the current branch lacks.
   */
  forget(worktree: Worktree): Promise<void>;
}

export interface Worktree {
  /** The last segment of its path, under which git registers it. */
  name: string;
  path: string;
}

export interface RepositoryOptions {
  sandbox: Sandbox;
  env: Readonly<Record<string, string>>;
  clock: Clock;
}

const timeoutMs = 60_000;
const maxOutputBytes = 16 * 1024;
// The longest path of Linux.
const maxPathBytes = 4096;

export function branchOf(name: string): string {
  return `townhall/${name}`;
}

/** Throws a Problem unless the workspace is the top folder of a repository. */
export async function openRepository(workspace: string, options: RepositoryOptions): Promise<Repository> {
  const repository = join(workspace, '.git');
  const stats = await lstat(repository).catch(() => undefined);
  if (stats?.isDirectory() !== true)
    throw workspaceUnavailable('The workspace of the agent is not the top folder of a git repository.');
  const administration = ({ name }: Worktree) => join(repository, 'worktrees', name);
  const git = (folder: string, args: readonly string[]) => runGit({ folder, repository, args }, options);
  return {
    async add({ name, path }, { commit, withFiles }) {
      const files = withFiles ? [] : ['--no-checkout'];
      const args = ['worktree', 'add', '--quiet', ...files, '-b', branchOf(name), path, commit];
      await git(path, [`--git-dir=${repository}`, ...args]);
    },
    commitOf: (worktree) => git(repository, [`--git-dir=${administration(worktree)}`, 'rev-parse', 'HEAD']),
    async resetIndex(worktree) {
      const folders = [`--git-dir=${administration(worktree)}`, `--work-tree=${worktree.path}`];
      await git(worktree.path, [...folders, 'reset', '--quiet', '--mixed']);
    },
    async namesIn(folder) {
      const names = await readdir(join(repository, 'worktrees')).catch(() => []);
      const paths = await Promise.all(names.map((name) => readPath(join(repository, 'worktrees', name))));
      return names.filter((name, index) => paths[index] === join(folder, name, '.git'));
    },
    async forget(worktree) {
      await rm(administration(worktree), { recursive: true, force: true });
      // git refuses to delete a branch with commits that the current one lacks.
      const args = ['branch', '--quiet', '--delete', branchOf(worktree.name)];
      await git(repository, [`--git-dir=${repository}`, ...args]).catch(() => {});
    },
  };
}

/**
 * Reads the path of the `.git` file of a worktree. Approved commands may write to the administration folder,
 * so links, pipes and large files there are ignored.
 */
async function readPath(administrationFolder: string): Promise<string | undefined> {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
  const file = await open(join(administrationFolder, 'gitdir'), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(
    () => {},
  );
  if (file === undefined) return undefined;
  try {
    const stats = await file.stat();
    if (!stats.isFile() || stats.size > maxPathBytes) return undefined;
    return resolve(administrationFolder, (await file.readFile('utf8')).trim());
  } catch {
    return undefined;
  } finally {
    await file.close();
  }
}

async function runGit(
  { folder, repository, args }: { folder: string; repository: string; args: readonly string[] },
  { sandbox, env, clock }: RepositoryOptions,
): Promise<string> {
  if (sandbox.missing !== undefined) throw workspaceUnavailable(sandbox.missing);
  const settings = ['-c', 'core.hooksPath=/dev/null', '-c', 'core.fsmonitor=false'];
  const program = sandbox.prepare({
    command: ['git', ...settings, ...args],
    workspace: folder,
    folder,
    env,
    ownEnv: { LC_ALL: 'C', GIT_TERMINAL_PROMPT: '0' },
    settings: sandbox.isOff ? false : { write: [repository] },
    paths: { hidden: [], readOnly: [] },
  });
  const { exitCode, output, endReason } = await runProcess({
    ...program,
    maxOutputBytes,
    timeoutMs,
    signal: new AbortController().signal,
    clock,
  });
  const lastLine = output.trim().split('\n').at(-1) ?? '';
  if (exitCode === 0) return lastLine;
  const reason = endReason === 'deadline' ? 'it took longer than a minute' : lastLine;
  throw workspaceUnavailable(`git failed: ${reason.slice(0, 300)}`);
}
