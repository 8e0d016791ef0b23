// Copies the files of a session's workspace for its fork. Programs of the session may still run, and could
// replace a folder with a link during the copy. So the copy runs in the sandbox, if there is one, where it
// sees the files of these two sessions only.
import { lstat, opendir } from 'node:fs/promises';
import { join } from 'node:path';
import { withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Problem } from '../../kernel/problem.ts';
import { runProcess, type Sandbox } from '../processes/index.ts';
import { workspaceUnavailable } from './unavailable.ts';

export interface CopyOptions {
  sandbox: Sandbox;
  env: Readonly<Record<string, string>>;
  clock: Clock;
}

const maxEntries = 50_000;
const maxBytes = 512 * 1024 * 1024;
const timeoutMs = 60_000;
// Each shell gets the folder to copy to as its `$0`, the inner one from the outer one. `+` passes many
// entries to one cp, and find fails when cp fails. A copy keeps links as they are.
const copyInBatches = `-exec sh -c 'cp -a "$@" "$0/"' "$0" {} +`;
const copyAll = `find . -mindepth 1 -maxdepth 1 ${copyInBatches}`;
// The file `.git` of a worktree names its own entry in the repository, so it is not copied.
const copyWithoutGit = `find . -mindepth 1 -maxdepth 1 ! -name .git ${copyInBatches}`;

/** Throws a Problem for a folder that is too large, or that cannot be copied within a minute. */
export async function copyFiles(
  { from, to, isWorktree }: { from: string; to: string; isWorktree: boolean },
  { sandbox, env, clock }: CopyOptions,
): Promise<void> {
  await withTimeout((signal) => refuseLargeFolder(from, signal), { ms: timeoutMs, clock, error: tooSlow });
  // With the sandbox off or missing, the copy runs unconfined (`false`): then no program of the session
  // is confined either.
  const isConfined = !sandbox.isOff && sandbox.missing === undefined;
  const program = sandbox.prepare({
    command: ['/bin/sh', '-c', isWorktree ? copyWithoutGit : copyAll, to],
    workspace: from,
    folder: from,
    env,
    settings: isConfined ? { write: [to] } : false,
    // The copy includes the files that the session's programs may not see.
    paths: { hidden: [], readOnly: [] },
  });
  const { exitCode, output, endReason } = await runProcess({
    ...program,
    maxOutputBytes: 4 * 1024,
    timeoutMs,
    // Only the timeout ends a copy.
    signal: new AbortController().signal,
    clock,
  });
  if (exitCode === 0) return;
  if (endReason === 'deadline') throw tooSlow();
  const reason = output.trim().split('\n')[0] ?? '';
  throw workspaceUnavailable(`The files of the session could not be copied: ${reason.slice(0, 300)}.`);
}

function tooSlow(): Problem {
  return workspaceUnavailable('The files of the session could not be copied within a minute.');
}

/**
 * Runs outside of the sandbox. If a program replaces a folder with a link meanwhile, this counts the files of
 * another folder, but reads none of them.
 */
async function refuseLargeFolder(folder: string, signal: AbortSignal): Promise<void> {
  let entries = 0;
  let bytes = 0;
  const folders = [folder];
  for (let next = folders.pop(); next !== undefined; next = folders.pop()) {
    // A folder may be removed meanwhile, or not be readable; then the copy fails with the reason.
    const content = await opendir(next).catch(() => undefined);
    if (content === undefined) continue;
    for await (const entry of content) {
      signal.throwIfAborted();
      entries += 1;
      const path = join(next, entry.name);
      if (entry.isDirectory()) folders.push(path);
      if (entry.isFile())
        bytes += await lstat(path).then(
          ({ size }) => size,
          () => 0,
        );
      if (entries > maxEntries || bytes > maxBytes)
        throw workspaceUnavailable(
          `The workspace of the session has more than ${maxEntries} files or ${maxBytes / 1024 ** 2} MiB, which is too much to copy.`,
        );
    }
  }
}
