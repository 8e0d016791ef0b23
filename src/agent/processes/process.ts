// Child processes of the agent: shell commands, commands of services, services. Stopping a process
// also ends all of its descendants, whether or not it handles SIGTERM; its output is bounded.
import { settlesWithin } from '../../kernel/async.ts';
import { spawn, type ChildProcess } from 'node:child_process';
import type { Clock } from '../../kernel/clock.ts';
import { errorCode } from '../../kernel/file-errors.ts';
import { Problem } from '../../kernel/problem.ts';
import { refusal } from '../refusal.ts';
import { markCommand, type ProcessMark } from './mark.ts';
import { boundedOutput } from './output.ts';
import { endTree } from './tree.ts';

export interface ProcessOptions {
  /** The program and its arguments; no shell interprets them. */
  command: readonly string[];
  /** The working directory, an absolute path. */
  folder: string;
  /** The whole environment; no variable of the agent is added. */
  env: Readonly<Record<string, string>>;
  /** The content of standard input; empty by default. */
  input?: string | undefined;
  /**
   * The limit of standard output and standard error together; half is kept from the beginning and
   * half from the end.
   */
  maxOutputBytes: number;
  /** Called with each chunk of output as it arrives, even beyond `maxOutputBytes`. */
  onOutput?: ((chunk: Buffer) => void) | undefined;
  /** The time between SIGTERM and SIGKILL. */
  graceMs?: number;
  /** Whether the command is bubblewrap, whose exit kills the program in the sandbox. */
  isSandboxed?: boolean | undefined;
  clock: Clock;
}

export interface ProcessEnd {
  /** Null when a signal ended the process. */
  exitCode: number | null;
  signal: string | null;
  /** `exit` when the process exited by itself, otherwise why it was stopped. */
  endReason: 'exit' | 'deadline' | 'aborted' | 'flood';
}

export interface RunningProcess {
  /**
   * Resolves once the process and its descendants are gone; rejects with a Problem
   * when it could not be started.
   */
  readonly ended: Promise<ProcessEnd>;
  /** Ends the process and its descendants; resolves when they are gone. */
  stop(reason?: 'deadline' | 'aborted'): Promise<ProcessEnd>;
  /** The output so far. */
  output(): { text: string; bytes: number; truncated: boolean };
}

// A process that writes more than this is stopped: only a fraction of its output would be kept anyway.
const floodBytes = 64 * 1024 * 1024;
// How long to wait for the output pipes to close: a descendant that escaped could keep them open.
const pipeCloseMs = 500;

/** The variables that child processes inherit: search path, home, user, language and time zone. */
export function childEnvironment(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const inheritedNames = /^(?:PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_[A-Z]+|TZ|TMPDIR)$/;
  return Object.fromEntries(
    Object.entries(env).filter(
      (entry): entry is [string, string] => entry[1] !== undefined && inheritedNames.test(entry[0]),
    ),
  );
}

/** Never throws; `ended` rejects when the process cannot be started. */
export function startProcess(options: ProcessOptions): RunningProcess {
  const { maxOutputBytes, graceMs = 2_000, isSandboxed = false, clock } = options;
  const output = boundedOutput(maxOutputBytes);
  let child: ChildProcess;
  let mark: ProcessMark;
  try {
    ({ child, mark } = spawnMarked(options));
  } catch (cause) {
    const failure = Promise.reject(startProblem(cause));
    failure.catch(() => {});
    return { ended: failure, stop: () => failure, output: output.read };
  }
  let endReason: ProcessEnd['endReason'] = 'exit';
  let treeEnd: Promise<void> | undefined;

  // The first call decides the reason; after an exit it only ends the descendants.
  function end(reason: ProcessEnd['endReason']): Promise<void> {
    if (treeEnd === undefined) {
      endReason = reason;
      treeEnd = endTree(child.pid, { mark, graceMs, isSandboxed, clock });
    }
    return treeEnd;
  }

  collectOutput(child, (chunk) => {
    options.onOutput?.(chunk);
    if (output.add(chunk) > floodBytes) void end('flood');
  });
  const exit = waitForExit(child, { endDescendants: () => end('exit'), clock }).then((status) => ({
    ...status,
    endReason,
  }));
  exit.catch(() => {});
  return {
    ended: exit,
    async stop(reason = 'aborted') {
      if (child.pid !== undefined) await end(reason);
      return exit;
    },
    output: output.read,
  };
}

export interface RunOptions extends ProcessOptions {
  timeoutMs: number;
  signal: AbortSignal;
}

export interface ProcessResult extends ProcessEnd {
  output: string;
  truncated: boolean;
}

/**
 * Runs a process until it exits, its deadline passes or the signal is aborted. Resolves once its descendants
 * are gone as well.
 */
export async function runProcess(options: RunOptions): Promise<ProcessResult> {
  const { signal, timeoutMs, clock } = options;
  if (signal.aborted)
    throw new Problem('unavailable', 'draining', 'The call ended before the program was started.');
  const child = startProcess(options);
  const completion = new AbortController();
  const abort = () => void child.stop('aborted').catch(() => {});
  signal.addEventListener('abort', abort, { once: true, signal: completion.signal });
  clock.sleep(timeoutMs, completion.signal).then(
    () => child.stop('deadline').catch(() => {}),
    () => {},
  );
  try {
    const end = await child.ended;
    const { text, truncated } = child.output();
    return { ...end, output: text, truncated };
  } finally {
    completion.abort();
  }
}

/**
 * Prepares a process that other code spawns: returns the command and environment that mark it and
 * its descendants, and a function that ends them all. Throws a Problem when the program does not exist.
 */
export function prepareCommand(
  command: readonly string[],
  options: { folder: string; env: Readonly<Record<string, string>>; isSandboxed?: boolean },
): { command: readonly string[]; env: Record<string, string>; end(clock: Clock): Promise<void> } {
  try {
    const mark = markCommand(command, options);
    return {
      command: mark.command,
      env: mark.env,
      end: (clock) =>
        endTree(undefined, { mark, graceMs: 1_000, isSandboxed: options.isSandboxed ?? false, clock }),
    };
  } catch (cause) {
    throw startProblem(cause);
  }
}

function spawnMarked({ command, folder, env, input }: ProcessOptions): {
  child: ChildProcess;
  mark: ProcessMark;
} {
  const mark = markCommand(command, { folder, env });
  const [file = '', ...args] = mark.command;
  const child = spawn(file, args, {
    cwd: folder,
    env: mark.env,
    // A process group of its own, so that one signal reaches all of it.
    detached: true,
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  });
  child.stdin?.on('error', () => {});
  child.stdin?.end(input);
  return { child, mark };
}

function collectOutput(child: ChildProcess, add: (chunk: Buffer) => void): void {
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('error', () => {});
    stream?.on('data', add);
  }
}

async function waitForExit(
  child: ChildProcess,
  { endDescendants, clock }: { endDescendants(): Promise<void>; clock: Clock },
): Promise<{ exitCode: number | null; signal: string | null }> {
  const streamsClosed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const status = await new Promise<{ exitCode: number | null; signal: string | null }>((resolve, reject) => {
    child.once('error', (cause) => reject(startProblem(cause)));
    child.once('exit', (exitCode, signal) => resolve({ exitCode, signal }));
  });
  await endDescendants();
  await settlesWithin(streamsClosed, { ms: pipeCloseMs, clock });
  child.stdout?.destroy();
  child.stderr?.destroy();
  return status;
}

function startProblem(cause: unknown): Problem {
  const reason = startErrorReasons.get(errorCode(cause) ?? '') ?? 'the system refused to start it';
  return refusal(`The program cannot be started: ${reason}.`, cause);
}

const startErrorReasons: ReadonlyMap<string, string> = new Map([
  ['ENOENT', 'it does not exist'],
  ['EACCES', 'it is not executable'],
  // Linux accepts 128 KiB. A command of 64 Ki characters may have more bytes.
  ['E2BIG', 'its command is too long; write a part of it to a file or to its standard input'],
]);
