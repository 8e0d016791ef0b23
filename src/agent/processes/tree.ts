// Ends a process and its descendants: SIGTERM, a grace period, SIGKILL. Descendants
// that have left the process group are found by their mark.
import { readdir, readFile } from 'node:fs/promises';
import type { Clock } from '../../kernel/clock.ts';
import type { ProcessMark } from './mark.ts';

const shortestPollMs = 10;
const longestPollMs = 100;
// A process in an uninterruptible system call survives SIGKILL until the call returns.
const afterKillMs = 2_000;

/** Resolves when no process of the tree is left, at the latest two seconds after `graceMs`. */
export async function endTree(
  group: number | undefined,
  {
    mark,
    graceMs,
    isSandboxed,
    clock,
  }: { mark: ProcessMark; graceMs: number; isSandboxed: boolean; clock: Clock },
): Promise<void> {
  const killAtMs = clock.monotonicMs() + graceMs;
  // List strays first: once the group has ended, their parent is gone and no longer leads to them.
  const strayPids = await listTree(group, mark);
  const hadGroup = group !== undefined && sendSignal(-group, isSandboxed ? 0 : 'SIGTERM');
  if (hadGroup || strayPids.length > 0) {
    // SIGTERM would end bubblewrap at once and so kill its program without a grace period. SIGKILL below
    // ends both.
    for (const pid of strayPids) if (!isSandboxed || !(await isBubblewrap(pid))) sendSignal(pid, 'SIGTERM');
    let pollMs = shortestPollMs;
    while (clock.monotonicMs() < killAtMs) {
      await clock.sleep(pollMs);
      if ((await listTree(group, mark)).length === 0) return;
      pollMs = Math.min(pollMs * 2, longestPollMs);
    }
    if (group !== undefined) sendSignal(-group, 'SIGKILL');
  }
  const giveUpAtMs = clock.monotonicMs() + afterKillMs;
  for (;;) {
    const remainingPids = await listTree(group, mark);
    for (const pid of remainingPids) sendSignal(pid, 'SIGKILL');
    if (remainingPids.length === 0 || clock.monotonicMs() > giveUpAtMs) return;
    await clock.sleep(longestPollMs);
  }
}

async function isBubblewrap(pid: number): Promise<boolean> {
  const name = await readFile(`/proc/${pid}/comm`, 'latin1').catch(() => '');
  return name.trim() === 'bwrap';
}

function sendSignal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, name);
    return true;
  } catch {
    return false;
  }
}

interface ProcessRow {
  pid: number;
  parent: number;
  /** Whether the process is in the group or marked. */
  isInTree: boolean;
}

// The process group, every marked process, and the descendants of all these; zombies do not count.
// Without /proc only the group can be checked.
async function listTree(group: number | undefined, mark: ProcessMark): Promise<number[]> {
  const names = await readdir('/proc').catch(() => null);
  if (names === null) return group !== undefined && sendSignal(-group, 0) ? [-group] : [];
  const otherIds = names.filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid);
  const rows = (await Promise.all(otherIds.map((name) => readProcess(name, group, mark)))).filter(
    (row) => row !== undefined,
  );
  const tree = new Set(rows.filter(({ isInTree }) => isInTree).map(({ pid }) => pid));
  for (let sizeBefore = -1; sizeBefore !== tree.size;) {
    sizeBefore = tree.size;
    for (const { pid, parent } of rows) if (tree.has(parent)) tree.add(pid);
  }
  return [...tree];
}

async function readProcess(
  name: string,
  group: number | undefined,
  mark: ProcessMark,
): Promise<ProcessRow | undefined> {
  const stat = await readFile(`/proc/${name}/stat`, 'latin1').catch(() => '');
  // proc_pid_stat(5): the program's name is in parentheses and can contain any character, even
  // parentheses; state, parent and group follow.
  const [state, parent, processGroup] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (state === undefined || state === '' || 'ZX'.includes(state)) return undefined;
  const isInTree = Number(processGroup) === group || (await carriesMark(name, mark));
  return { pid: Number(name), parent: Number(parent), isInTree };
}

async function carriesMark(name: string, { variable, limit }: ProcessMark): Promise<boolean> {
  const environment = await readFile(`/proc/${name}/environ`, 'latin1').catch(() => '');
  if (environment.split('\0').includes(variable)) return true;
  if (limit === undefined) return false;
  const limits = await readFile(`/proc/${name}/limits`, 'latin1').catch(() => '');
  return /^Max file size\s+\S+\s+(\S+)/m.exec(limits)?.[1] === limit;
}
