// One gateway that the supervisor started: what is asked of it, what it writes, and how it ends. It never outlives the
// time that its end is given.
import { spawn } from 'node:child_process';
import type { GatewayReply, GatewayMessage, GatewayRequest } from './messages.ts';

/** How to start a program of this installation: the command, and the arguments before its own. */
export interface Runner {
  command: string;
  arguments: readonly string[];
}

export interface GatewayProcessOptions {
  runner: Runner;
  env: Readonly<Record<string, string>>;
  cwd: string;
  /** The listening socket that it may accept from later. */
  fd: number;
  /** Takes what it writes, as it comes. */
  write(piece: Buffer): void;
}

export interface GatewayProcess {
  readonly pid: number | undefined;
  /** Rejects with the gateway's own words, and when it ends before it has answered. */
  ask(request: GatewayRequest, deadlineMs: number): Promise<void>;
  /**
   * Resolves when it takes no more callers; `ended` when it has finished what it did. It is killed when that takes longer
   * than its own deadlines allow.
   */
  leave(options: { lingerMs: number }): Promise<{ ended: Promise<unknown> }>;
  kill(): Promise<void>;
  /** Resolves when it has ended, with how. */
  readonly ended: Promise<string>;
  isOver(): boolean;
}

// Its drain, its last words, the closing of its services, and some air.
const hardStopMs = 40_000;
const answerMs = 10_000;
const tailBytes = 4_096;

export function startGatewayProcess({ runner, env, cwd, fd, write }: GatewayProcessOptions): GatewayProcess {
  const child = spawn(runner.command, [...runner.arguments, 'city', 'serve'], {
    cwd,
    env: { ...env },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc', fd],
  });
  const waiting = new Map<number, { resolve: () => void; reject: (error: Error) => void }>();
  let nextId = 1;
  let over = false;
  let complaints = '';
  const end = Promise.withResolvers<string>();

  child.stdout?.on('data', write);
  child.stderr?.on('data', (piece: Buffer) => {
    complaints = (complaints + piece.toString('utf8')).slice(-tailBytes);
    write(piece);
  });
  child.on('message', (message: GatewayReply) => {
    const asked = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.ok) asked?.resolve();
    else asked?.reject(new Error(message.message));
  });
  const finish = (how: string): void => {
    if (over) return;
    over = true;
    const said = complaints.trim();
    const reason = new Error(said === '' ? `The gateway ended (${how}) before it answered.` : said);
    for (const { reject } of waiting.values()) reject(reason);
    waiting.clear();
    end.resolve(how);
  };
  child.on('error', (error) => finish(error.message));
  child.on('close', (code, signal) => finish(signal === null ? `code ${code}` : signal));

  async function ask(request: GatewayRequest, deadlineMs: number): Promise<void> {
    if (over) throw new Error('The gateway has ended.');
    const id = nextId++;
    const question: GatewayMessage = { ...request, id };
    let timer: NodeJS.Timeout | undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        waiting.set(id, { resolve, reject });
        timer = setTimeout(
          () =>
            reject(
              new Error(
                `The gateway was not done after ${Math.round(deadlineMs / 1_000)} seconds (${request.kind}).`,
              ),
            ),
          deadlineMs,
        );
        child.send(question, (error) => (error === null ? undefined : reject(error)));
      });
    } finally {
      clearTimeout(timer);
      waiting.delete(id);
    }
  }

  async function kill(): Promise<void> {
    if (!over) child.kill('SIGKILL');
    await end.promise;
  }

  return {
    pid: child.pid,
    ask,
    ended: end.promise,
    isOver: () => over,
    kill,
    async leave({ lingerMs }) {
      if (over) return { ended: end.promise };
      const timer = setTimeout(() => child.kill('SIGKILL'), hardStopMs);
      const ended = end.promise.finally(() => clearTimeout(timer));
      // What does not even answer will not end by itself.
      await ask({ kind: 'leave', input: { lingerMs } }, answerMs).catch(() => child.kill('SIGKILL'));
      return { ended };
    },
  };
}
