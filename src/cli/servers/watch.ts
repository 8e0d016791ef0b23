// `--watch`: runs the server in a child process and restarts it when a file that it has loaded
// changes.
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { isAbsolute, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isSingleExecutable } from '../../kernel/assets.ts';
import { isRecord } from '../../kernel/json-value.ts';
import type { Option } from '../command-line/command.ts';
import { createFileWatch, type FileWatch } from './file-watch.ts';

export const watchOption = {
  kind: 'switch',
  summary: 'Restart after a change of a loaded file, for development.',
} as const satisfies Option;

const stopSignals = ['SIGTERM', 'SIGINT'] as const;
type StopSignal = (typeof stopSignals)[number];

/**
 * Runs this command again without `--watch`, and again after each change, until a signal ends it. If the
 * server fails to start, waits for the next change. Returns the exit code. Throws in the single executable,
 * which has no files to watch.
 */
export async function runWatched(): Promise<number> {
  if (isSingleExecutable)
    throw new Error('--watch needs the package "townhall" of npm; the executable cannot restart itself.');
  const files = createFileWatch();
  const stop = nextSignal().then((signal) => ({ signal }));
  try {
    for (;;) {
      const server = startServer(files);
      const exit = once(server, 'exit').then(([code]) => ({ code: (code ?? 1) as number }));
      const change = files.nextChange().then((file) => ({ file }));
      let event = await Promise.race([stop, exit, change]);
      if ('code' in event && event.code !== 0) {
        process.stdout.write('The server has exited. It restarts when one of its files changes.\n');
        event = await Promise.race([stop, change]);
      }
      if ('code' in event) return event.code;
      if ('signal' in event) {
        forwardSignals(server, event.signal);
        return (await exit).code;
      }
      process.stdout.write(`\n${event.file} has changed. Restarting …\n`);
      server.kill('SIGTERM');
      await exit;
    }
  } finally {
    files.close();
  }
}

/**
 * With this variable, Node's loader reports each file that it loads or looks for over the IPC channel to
 * its parent process.
 */
function startServer(files: FileWatch): ChildProcess {
  const [program = '', ...words] = process.argv.slice(1);
  const server = fork(
    program,
    words.filter((word) => word !== '--watch'),
    { env: { ...process.env, WATCH_REPORT_DEPENDENCIES: '1' } },
  );
  server.on('message', (message) => {
    for (const file of reportedFiles(message)) files.add(file);
  });
  return server;
}

/**
 * The reported files outside of `node_modules`. Node's reports also contain nulls and addresses that are
 * not files.
 */
function reportedFiles(message: unknown): string[] {
  if (!isRecord(message)) return [];
  return [message['watch:import'], message['watch:require']]
    .flat()
    .filter((name) => typeof name === 'string')
    .map((name) => (name.startsWith('file:') ? fileURLToPath(name) : name))
    .filter((name) => isAbsolute(name) && !name.includes(`${sep}node_modules${sep}`));
}

function nextSignal(): Promise<StopSignal> {
  return new Promise((resolve) => {
    for (const signal of stopSignals) process.once(signal, () => resolve(signal));
  });
}

/** Sends this signal and later ones to the server. A terminal sends Ctrl-C to the server itself. */
function forwardSignals(server: ChildProcess, firstSignal: StopSignal): void {
  const send = (signal: StopSignal) => {
    if (signal === 'SIGTERM' || !process.stdin.isTTY) server.kill(signal);
  };
  for (const signal of stopSignals) process.on(signal, send);
  send(firstSignal);
}
