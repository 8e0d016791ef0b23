// Worktrees of the repository in the agent's workspace. git runs outside of the sandbox here, so it gets no hooks
// and no file system monitor of the repository.
import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { workspaceUnavailable } from './unavailable.ts';

export interface Repository {
  /** The folder `.git` of the agent's workspace, absolute. */
  folder: string;
  /** Creates a worktree with a branch of its own at a commit; its files only with `withFiles`. */
  add(worktree: Worktree, options: { commit: string; withFiles: boolean }): Promise<void>;
  /** The commit that a worktree has checked out. */
  commitOf(worktree: Worktree): Promise<string>;
  /** Takes the files of a worktree as they are for changes since its commit. */
  resetIndex(worktree: Worktree): Promise<void>;
  /** Forgets a worktree whose folder is gone, and its branch unless that has commits of its own. */
  forget(worktree: Worktree): Promise<void>;
}

export interface Worktree {
  /** The last name of its path, under which git knows it. */
  name: string;
  path: string;
}

const timeoutMs = 60_000;
const maxOutputBytes = 1024 * 1024;
const run = promisify(execFile);

export function branchOf(name: string): string {
  return `townhall/${name}`;
}

/** Throws a Problem unless the workspace is the top folder of a repository with a commit. */
export async function openRepository(
  workspace: string,
  env: Readonly<Record<string, string>>,
): Promise<Repository> {
  const git = (folder: string, words: readonly string[]) => runGit(env, folder, words);
  const [top, folder] = await git(workspace, [
    'rev-parse',
    '--path-format=absolute',
    '--show-toplevel',
    '--git-common-dir',
  ]).then((output) => output.split('\n'));
  if (top !== workspace || folder !== join(workspace, '.git'))
    throw workspaceUnavailable('The workspace of the agent is not the top folder of a git repository.');
  const administration = ({ name }: Worktree) => join(folder, 'worktrees', name);
  return {
    folder,
    async add(worktree, { commit, withFiles }) {
      const files = withFiles ? [] : ['--no-checkout'];
      const branch = branchOf(worktree.name);
      await git(workspace, ['worktree', 'add', '--quiet', ...files, '-b', branch, worktree.path, commit]);
    },
    commitOf: (worktree) => git(workspace, [`--git-dir=${administration(worktree)}`, 'rev-parse', 'HEAD']),
    async resetIndex({ path }) {
      await git(path, ['reset', '--quiet', '--mixed']);
    },
    async forget(worktree) {
      await rm(administration(worktree), { recursive: true, force: true });
      // git refuses to delete a branch with commits that are on no other one.
      await git(workspace, ['branch', '--delete', branchOf(worktree.name)]).catch(() => {});
    },
  };
}

async function runGit(
  env: Readonly<Record<string, string>>,
  folder: string,
  words: readonly string[],
): Promise<string> {
  const settings = ['-c', 'core.hooksPath=/dev/null', '-c', 'core.fsmonitor=false'];
  try {
    const { stdout } = await run('git', ['-C', folder, ...settings, ...words], {
      cwd: '/',
      env: { ...env, LC_ALL: 'C', GIT_TERMINAL_PROMPT: '0' },
      timeout: timeoutMs,
      maxBuffer: maxOutputBytes,
    });
    return stdout.trim();
  } catch (cause) {
    const { stderr, message } = cause as { stderr?: string; message: string };
    const lines = (stderr === undefined || stderr === '' ? message : stderr).trim().split('\n');
    throw workspaceUnavailable(`git says: ${(lines.at(-1) ?? '').slice(0, 300)}`, cause);
  }
}
