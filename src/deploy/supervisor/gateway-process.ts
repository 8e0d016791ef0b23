// A gateway process that the supervisor starts. The supervisor sends it requests over IPC, receives its
// output, and kills it when it exceeds its own shutdown deadlines.
import { spawn, type ChildProcess } from 'node:child_process';
import type { GatewayMessage, GatewayReply, GatewayRequest } from './messages.ts';

/** How to start a program of this installation: the command, and its leading arguments. */
export interface Runner {
  command: string;
  arguments: readonly string[];
}

export interface GatewayProcessOptions {
  runner: Runner;
  env: Readonly<Record<string, string>>;
  cwd: string;
  /** The listening socket, from which the process accepts connections once it is asked to `adopt` it. */
  fd: number;
  /** Receives the output of the process as it arrives. */
  write(chunk: Buffer): void;
}

export interface GatewayProcess {
  readonly pid: number | undefined;
  /**
   * Resolves when the gateway has carried out the request. Rejects with the gateway's error message, after
   * the deadline, and when the process exits before it answers.
   */
  ask(request: GatewayRequest, deadlineMs: number): Promise<void>;
  /**
   * Shuts the gateway down. Resolves when it accepts no more connections; `ended` resolves when it has
   * finished its requests and exited.
   */
  leave(options: { lingerMs: number }): Promise<{ ended: Promise<unknown> }>;
  kill(): Promise<void>;
  /** Resolves with the exit code or signal when the process has exited. */
  readonly ended: Promise<string>;
  isOver(): boolean;
}

// 25 s to drain, then time to close the services, and a margin.
const hardStopMs = 40_000;
const answerTimeoutMs = 10_000;
const tailBytes = 4_096;

export function startGatewayProcess({ runner, env, cwd, fd, write }: GatewayProcessOptions): GatewayProcess {
  const child = spawn(runner.command, [...runner.arguments, 'city', 'serve'], {
    cwd,
    env: { ...env },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc', fd],
  });
  const requests = createRequests(child);
  let isOver = false;
  let errorTail = '';
  const end = Promise.withResolvers<string>();

  child.stdout?.on('data', write);
  child.stderr?.on('data', (chunk: Buffer) => {
    errorTail = (errorTail + chunk.toString('utf8')).slice(-tailBytes);
    write(chunk);
  });
  const finish = (reason: string): void => {
    if (isOver) return;
    isOver = true;
    requests.rejectAll(new Error(errorTail.trim() || `The gateway exited (${reason}) before it answered.`));
    end.resolve(reason);
  };
  child.on('error', (error) => finish(error.message));
  child.on('close', (code, signal) => finish(signal === null ? `code ${code}` : signal));

  async function ask(request: GatewayRequest, deadlineMs: number): Promise<void> {
    if (isOver) throw new Error('The gateway has exited.');
    await requests.send(request, deadlineMs);
  }

  return {
    pid: child.pid,
    ask,
    ended: end.promise,
    isOver: () => isOver,
    async kill() {
      if (!isOver) child.kill('SIGKILL');
      await end.promise;
    },
    async leave({ lingerMs }) {
      if (isOver) return { ended: end.promise };
      const timer = setTimeout(() => child.kill('SIGKILL'), hardStopMs);
      const processEnd = end.promise.finally(() => clearTimeout(timer));
      // A gateway that does not answer will not exit by itself.
      await ask({ kind: 'leave', input: { lingerMs } }, answerTimeoutMs).catch(() => child.kill('SIGKILL'));
      return { ended: processEnd };
    },
  };
}

interface Requests {
  send(request: GatewayRequest, deadlineMs: number): Promise<void>;
  rejectAll(reason: Error): void;
}

/** Matches replies to requests by their ids. */
function createRequests(child: ChildProcess): Requests {
  const pendingRequests = new Map<number, { resolve: () => void; reject: (error: Error) => void }>();
  let nextId = 1;
  child.on('message', (reply: GatewayReply) => {
    const request = pendingRequests.get(reply.id);
    pendingRequests.delete(reply.id);
    if (reply.ok) request?.resolve();
    else request?.reject(new Error(reply.message));
  });
  return {
    async send(request, deadlineMs) {
      const id = nextId++;
      const message: GatewayMessage = { ...request, id };
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      pendingRequests.set(id, { resolve, reject });
      const timer = setTimeout(() => {
        const seconds = Math.round(deadlineMs / 1_000);
        reject(new Error(`The gateway did not finish within ${seconds} seconds (${request.kind}).`));
      }, deadlineMs);
      child.send(message, (error) => (error === null ? undefined : reject(error)));
      try {
        await promise;
      } finally {
        clearTimeout(timer);
        pendingRequests.delete(id);
      }
    },
    rejectAll(reason) {
      for (const { reject } of pendingRequests.values()) reject(reason);
      pendingRequests.clear();
    },
  };
}
