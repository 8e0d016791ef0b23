// Runs the command line as a user does: in its own process, with its output and exit code.
import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { compileCache } from '../support/compile-cache.ts';

/** The entry point of the command line. */
export const entry = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));

export interface Run {
  process: ChildProcess;
  /** Standard output and standard error so far. */
  screen(): string;
  /**
   * Resolves with the match once the output contains it. Rejects when the process exits first or the
   * timeout expires.
   */
  waitFor(pattern: RegExp, timeoutMs?: number): Promise<RegExpMatchArray>;
  /** The exit code, or the signal's name. */
  ended: Promise<number | string>;
}

export interface RunOptions {
  cwd: string;
  env?: Record<string, string>;
  /** Standard input; empty by default. */
  input?: string;
}

/** Starts `townhall …` in a folder. Of the test's environment it inherits only PATH. */
export function townhall(words: readonly string[], options: RunOptions): Run {
  const child = spawn(process.execPath, [entry, ...words], {
    cwd: options.cwd,
    env: {
      PATH: process.env['PATH'] ?? '',
      HOME: options.cwd,
      NODE_COMPILE_CACHE: compileCache,
      ...options.env,
    },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  child.stdin.end(options.input ?? '');
  let screen = '';
  const listeners = new Set<() => void>();
  const addOutput = (piece: Buffer): void => {
    screen += piece.toString('utf8');
    for (const listener of listeners) listener();
  };
  child.stdout.on('data', addOutput);
  child.stderr.on('data', addOutput);
  const exit = new Promise<number | string>((resolve) => {
    child.on('close', (code, signal) => resolve(code ?? signal ?? 'unknown'));
  });
  return {
    process: child,
    screen: () => screen,
    ended: exit,
    waitFor(pattern, timeoutMs = 80_000) {
      return new Promise<RegExpMatchArray>((resolve, reject) => {
        const check = (): void => {
          const match = screen.match(pattern);
          if (match === null) return;
          listeners.delete(check);
          clearTimeout(timer);
          resolve(match);
        };
        const timer = setTimeout(
          () => reject(new Error(`${String(pattern)} did not appear in:\n${screen}`)),
          timeoutMs,
        );
        listeners.add(check);
        void exit.then((code) => {
          clearTimeout(timer);
          reject(new Error(`ended with ${code} before ${String(pattern)}:\n${screen}`));
        });
        check();
      });
    },
  };
}

export interface RunResult {
  /** The exit code, or the signal's name. */
  code: number | string;
  /** Standard output and standard error. */
  screen: string;
}

/** Runs `townhall …` until it exits. */
export async function runTownhall(words: readonly string[], options: RunOptions): Promise<RunResult> {
  const run = townhall(words, options);
  return { code: await run.ended, screen: run.screen() };
}

/** The first line of the screen that is a JSON object: the result of a command with `--json`. */
export function jsonResult(screen: string): unknown {
  return JSON.parse(screen.split('\n').find((line) => line.startsWith('{')) ?? '');
}
