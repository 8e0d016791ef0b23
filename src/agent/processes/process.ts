// Programs that the agent runs for somebody: commands of a shell, commands of a service, services themselves. The rule
// it keeps: a program and everything it has started ends when it was told to, however it takes it, and what it says is
// kept up to a bound and no further.
import { spawn, type ChildProcess } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import type { Clock } from '../../kernel/clock.ts';
import { Problem } from '../../kernel/problem.ts';
import { markProgram, type ProgramMark } from './mark.ts';

export interface ProgramOptions {
  /** The program and its arguments; no shell looks at them. */
  command: readonly string[];
  /** Absolute. */
  folder: string;
  /** All of it: nothing of the agent's own environment is added. */
  env: Readonly<Record<string, string>>;
  /** What it reads on standard input; without it there is none. */
  input?: string;
  /** Of what it says, on both outputs, so much is kept: half from the beginning and half from the end. */
  maxOutputBytes: number;
  /** Between asking it to end and ending it. */
  graceMs?: number;
  clock: Clock;
}

export interface ProgramEnd {
  /** Null when a signal ended it. */
  exitCode: number | null;
  signal: string | null;
  /** Why it ended: by itself, or because it was told to for this reason. */
  because: 'exit' | 'deadline' | 'aborted' | 'flood';
}

export interface Program {
  /** Once nothing of it is left; never rejects but with a Problem when it could not be started. */
  readonly ended: Promise<ProgramEnd>;
  /** Ends it and all that it has started; resolves when nothing is left. */
  stop(because?: 'deadline' | 'aborted'): Promise<ProgramEnd>;
  /** What it has said so far. */
  output(): { text: string; bytes: number; truncated: boolean };
}

// A program that says more than this is not worth waiting for.
const floodBytes = 64 * 1024 * 1024;
const shortestPollMs = 10;
const longestPollMs = 100;
const afterKillMs = 2_000;

/** The variables of an environment that programs are given: where programs and the home are, and the language. */
export function programEnvironment(
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const passed = /^(?:PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_[A-Z]+|TZ|TMPDIR)$/;
  return Object.fromEntries(
    Object.entries(env).filter(
      (entry): entry is [string, string] => entry[1] !== undefined && passed.test(entry[0]),
    ),
  );
}

export function startProgram(options: ProgramOptions): Program {
  const { command, folder, env, input, maxOutputBytes, graceMs = 2_000, clock } = options;
  const said = keepEnds(maxOutputBytes);
  let because: ProgramEnd['because'] = 'exit';
  let ending: Promise<void> | undefined;
  let child: ChildProcess;
  let mark: ProgramMark;
  try {
    // A group of its own, so that all of it can be ended at once.
    mark = markProgram(command, { folder, env });
    const [file = '', ...given] = mark.command;
    child = spawn(file, given, {
      cwd: folder,
      env: mark.env,
      detached: true,
      stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    });
  } catch (cause) {
    const failed = Promise.reject(notStarted(cause));
    failed.catch(() => {});
    return { ended: failed, stop: () => failed, output: said.read };
  }
  child.stdin?.on('error', () => {});
  child.stdin?.end(input);
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('error', () => {});
    stream?.on('data', (chunk: Buffer) => {
      if (said.add(chunk) > floodBytes) void end('flood');
    });
  }

  function end(reason: ProgramEnd['because']): Promise<void> {
    if (ending === undefined) {
      if (because === 'exit') because = reason;
      ending = endGroup(child.pid, { mark, graceMs, clock });
    }
    return ending;
  }

  const exited = new Promise<{ exitCode: number | null; signal: string | null }>((resolve, reject) => {
    child.once('error', (cause) => reject(notStarted(cause)));
    child.once('exit', (exitCode, signal) => resolve({ exitCode, signal }));
  });
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));

  async function finish(): Promise<ProgramEnd> {
    const status = await exited;
    // What it has left running in the background ends with it.
    await end('exit');
    // A writer that escaped could hold the pipe open for ever.
    await Promise.race([closed, clock.sleep(500)]);
    child.stdout?.destroy();
    child.stderr?.destroy();
    return { ...status, because };
  }
  const ended = finish();
  ended.catch(() => {});
  return {
    ended,
    async stop(reason = 'aborted') {
      // Without a process there is nothing to end.
      if (child.pid !== undefined) await end(reason);
      return ended;
    },
    output: said.read,
  };
}

export interface RunOptions extends ProgramOptions {
  timeoutMs: number;
  signal: AbortSignal;
}

export interface ProgramResult extends ProgramEnd {
  output: string;
  truncated: boolean;
}

/** Runs a program to its end, its deadline or the signal's; nothing of it is left when this resolves. */
export async function runProgram(options: RunOptions): Promise<ProgramResult> {
  const { signal, timeoutMs, clock } = options;
  if (signal.aborted)
    throw new Problem('unavailable', 'draining', 'The call was ended before the program was started.');
  const program = startProgram(options);
  const over = new AbortController();
  const onAbort = () => void program.stop('aborted').catch(() => {});
  signal.addEventListener('abort', onAbort, { once: true, signal: over.signal });
  clock.sleep(timeoutMs, over.signal).then(
    () => program.stop('deadline').catch(() => {}),
    () => {},
  );
  try {
    const end = await program.ended;
    const { text, truncated } = program.output();
    return { ...end, output: text, truncated };
  } finally {
    over.abort();
  }
}

/**
 * For a program that somebody else starts: the command and the environment that mark it and what it starts, and the end
 * of whatever of that is left. Throws a Problem when there is no such program.
 */
export function markedProgram(
  command: readonly string[],
  place: { folder: string; env: Readonly<Record<string, string>> },
): { command: readonly string[]; env: Record<string, string>; end(clock: Clock): Promise<void> } {
  try {
    const mark = markProgram(command, place);
    return {
      command: mark.command,
      env: mark.env,
      end: (clock) => endGroup(undefined, { mark, graceMs: 1_000, clock }),
    };
  } catch (cause) {
    throw notStarted(cause);
  }
}

// Asks the group to end, then ends it; then looks for what has left the group, which the marks give away.
async function endGroup(
  pid: number | undefined,
  { mark, graceMs, clock }: { mark: ProgramMark; graceMs: number; clock: Clock },
): Promise<void> {
  const killMs = clock.monotonicMs() + graceMs;
  // Whoever has left the group is asked as well, before the group's end takes its parent from it.
  const strays = await remaining(pid, mark);
  const wasThere = pid !== undefined && signal(-pid, 'SIGTERM');
  if (wasThere || strays.length > 0) {
    for (const stray of strays) signal(stray, 'SIGTERM');
    for (
      let waitMs = shortestPollMs;
      clock.monotonicMs() < killMs;
      waitMs = Math.min(waitMs * 2, longestPollMs)
    ) {
      await clock.sleep(waitMs);
      if ((await remaining(pid, mark)).length === 0) return;
    }
    if (pid !== undefined) signal(-pid, 'SIGKILL');
  }
  const giveUpMs = clock.monotonicMs() + afterKillMs;
  for (;;) {
    const left = await remaining(pid, mark);
    for (const stray of left) signal(stray, 'SIGKILL');
    if (left.length === 0 || clock.monotonicMs() > giveUpMs) return;
    await clock.sleep(longestPollMs);
  }
}

function signal(pid: number, name: NodeJS.Signals | 0): boolean {
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
  isOurs: boolean;
}

// The processes of the group, those that carry a mark wherever they have gone, and the children of all these, but for
// those that have ended and wait to be asked for their status. Where there is no /proc the group is all that is known.
async function remaining(group: number | undefined, mark: ProgramMark): Promise<number[]> {
  const names = await readdir('/proc').catch(() => null);
  if (names === null) return group !== undefined && signal(-group, 0) ? [-group] : [];
  const others = names.filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid);
  const rows = (await Promise.all(others.map((name) => readProcess(name, group, mark)))).filter(
    (row) => row !== undefined,
  );
  const ours = new Set(rows.filter(({ isOurs }) => isOurs).map(({ pid }) => pid));
  for (let before = -1; before !== ours.size;) {
    before = ours.size;
    for (const { pid, parent } of rows) if (ours.has(parent)) ours.add(pid);
  }
  return [...ours];
}

async function readProcess(
  name: string,
  group: number | undefined,
  mark: ProgramMark,
): Promise<ProcessRow | undefined> {
  const stat = await readFile(`/proc/${name}/stat`, 'latin1').catch(() => '');
  // The name of the program stands in parentheses and may hold anything; state, parent and group follow it.
  const [state, parent, itsGroup] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (state === undefined || state === '' || 'ZX'.includes(state)) return undefined;
  const isOurs = Number(itsGroup) === group || (await carriesMark(name, mark));
  return { pid: Number(name), parent: Number(parent), isOurs };
}

async function carriesMark(name: string, { variable, limit }: ProgramMark): Promise<boolean> {
  const environment = await readFile(`/proc/${name}/environ`, 'latin1').catch(() => '');
  if (environment.split('\0').includes(variable)) return true;
  if (limit === undefined) return false;
  const limits = await readFile(`/proc/${name}/limits`, 'latin1').catch(() => '');
  return /^Max file size\s+\S+\s+(\S+)/m.exec(limits)?.[1] === limit;
}

interface KeptEnds {
  /** All bytes that were ever added. */
  add(chunk: Buffer): number;
  read(): { text: string; bytes: number; truncated: boolean };
}

// The first half and the last half of a bound: how a program begins and how it ends are what tells most.
function keepEnds(maxBytes: number): KeptEnds {
  const half = Math.floor(maxBytes / 2);
  const head: Buffer[] = [];
  let headBytes = 0;
  let tail: Buffer[] = [];
  let tailBytes = 0;
  let total = 0;
  return {
    add(chunk) {
      total += chunk.length;
      const first = chunk.subarray(0, Math.max(0, half - headBytes));
      if (first.length > 0) {
        head.push(Buffer.from(first));
        headBytes += first.length;
      }
      const rest = chunk.subarray(first.length);
      if (rest.length > 0) {
        tail.push(Buffer.from(rest.subarray(-half)));
        tailBytes += Math.min(rest.length, half);
        // Joined now and then rather than each time, so that a flood in small pieces costs no more than its bytes.
        if (tailBytes > 2 * half) {
          tail = [Buffer.from(Buffer.concat(tail).subarray(-half))];
          tailBytes = half;
        }
      }
      return total;
    },
    read() {
      const end = Buffer.concat(tail).subarray(-half);
      const missing = total - headBytes - end.length;
      if (missing <= 0)
        return { text: readable(Buffer.concat([...head, end])), bytes: total, truncated: false };
      const text = `${readable(Buffer.concat(head))}\n[${missing} bytes are left out here]\n${readable(end)}`;
      return { text, bytes: total, truncated: true };
    },
  };
}

// Terminal control and other bytes that are no text would only cost room.
function readable(bytes: Buffer): string {
  return bytes
    .toString('utf8')
    .replaceAll(/\u001b\[[0-9;?]*[A-Za-z]/g, '')
    .replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g, '\ufffd');
}

function notStarted(cause: unknown): Problem {
  const code = (cause as NodeJS.ErrnoException).code;
  const why =
    code === 'ENOENT' ? 'it is not there' : code === 'EACCES' ? 'it may not be run' : 'the system refuses it';
  return new Problem('impossible', 'action_refused', `The program cannot be started: ${why}.`, { cause });
}
