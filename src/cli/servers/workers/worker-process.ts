// A worker from the view of its primary process: its start, its output line by line, its metrics and its
// exit.
import { type ChildProcess, spawn } from 'node:child_process';
import type { Runner } from '../../../deploy/index.ts';
import {
  type BreakerMessage,
  listeningFd,
  type PrimaryMessage,
  type WorkerMessage,
  workerVariable,
  type WorkerStart,
} from './messages.ts';

export interface WorkerProcessOptions {
  runner: Runner;
  /** The arguments of the primary process, which the worker parses too. */
  words: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  start: WorkerStart;
  /** The file descriptor of the listening socket. */
  fd: number;
  /** Writes complete lines of output. */
  write(lines: Buffer): void;
  onBreaker(message: BreakerMessage): void;
}

export interface WorkerProcess {
  readonly index: number;
  readonly pid: number | undefined;
  /** Resolves to true when the worker accepts connections, and to false when it exits first. */
  readonly listening: Promise<boolean>;
  /** Resolves to its exit code or the name of its signal. */
  readonly ended: Promise<number | string>;
  /** Null when it does not answer within two seconds. */
  readMetrics(): Promise<string | null>;
  sendBreaker(message: BreakerMessage): void;
  stop(): void;
  kill(): void;
}

const metricsMs = 2_000;

export function startWorkerProcess(options: WorkerProcessOptions): WorkerProcess {
  const { runner, words, env, start, fd, write } = options;
  const stdio: ('ignore' | 'pipe' | 'inherit' | 'ipc' | number)[] = ['ignore', 'pipe', 'inherit', 'ipc'];
  stdio[listeningFd] = fd;
  const child = spawn(runner.command, [...runner.arguments, ...words], {
    env: { ...env, [workerVariable]: JSON.stringify(start) },
    stdio,
  });
  const listenResult = Promise.withResolvers<boolean>();
  const exit = Promise.withResolvers<number | string>();
  const metrics = createMetricsRequests(child);
  let isListening = false;
  const becomeListening = (): void => {
    isListening = true;
    listenResult.resolve(true);
  };

  child.stdout?.on('data', splitLines(write));
  child.on('message', (message: WorkerMessage) => {
    if (message.kind === 'listening') becomeListening();
    else if (message.kind === 'breaker') options.onBreaker(message);
    else metrics.answer(message.id, message.text);
  });
  const finish = (reason: number | string): void => {
    listenResult.resolve(false);
    exit.resolve(reason);
    metrics.end();
  };
  child.on('error', (error) => finish(error.message));
  child.on('close', (code, signal) => finish(signal ?? code ?? 1));

  return {
    index: start.index,
    pid: child.pid,
    listening: listenResult.promise,
    ended: exit.promise,
    readMetrics: metrics.read,
    sendBreaker: (message) => send(child, message, () => undefined),
    stop() {
      // A worker that is still starting does not read messages yet.
      if (isListening) send(child, { kind: 'stop' }, () => child.kill('SIGTERM'));
      else child.kill('SIGTERM');
    },
    kill: () => void child.kill('SIGKILL'),
  };
}

interface MetricsRequests {
  /** Resolves to null when the worker does not answer in time, or exits. */
  read(): Promise<string | null>;
  answer(id: number, text: string): void;
  /** Resolves the open requests to null. */
  end(): void;
}

/** Matches the worker's answers to requests by their ids. */
function createMetricsRequests(child: ChildProcess): MetricsRequests {
  const pendingRequests = new Map<number, (text: string | null) => void>();
  let nextId = 1;
  return {
    async read() {
      const { promise, resolve } = Promise.withResolvers<string | null>();
      const id = nextId++;
      const timer = setTimeout(() => resolve(null), metricsMs);
      pendingRequests.set(id, resolve);
      send(child, { kind: 'read_metrics', id }, () => resolve(null));
      return promise.finally(() => {
        clearTimeout(timer);
        pendingRequests.delete(id);
      });
    },
    answer: (id, text) => pendingRequests.get(id)?.(text),
    end() {
      for (const resolve of pendingRequests.values()) resolve(null);
    },
  };
}

function send(child: ChildProcess, message: PrimaryMessage, onFailure: () => void): void {
  if (child.connected) child.send(message, (error) => (error === null ? undefined : onFailure()));
  else onFailure();
}

/** Passes on only complete lines, since several workers write to the same output. */
function splitLines(write: (lines: Buffer) => void): (chunk: Buffer) => void {
  let unfinishedLine: Buffer = Buffer.alloc(0);
  return (chunk) => {
    const end = chunk.lastIndexOf(10) + 1;
    if (end > 0) write(Buffer.concat([unfinishedLine, chunk.subarray(0, end)]));
    unfinishedLine = end > 0 ? chunk.subarray(end) : Buffer.concat([unfinishedLine, chunk]);
  };
}
