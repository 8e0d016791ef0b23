// The process of the command line: streams, environment and exit. run.ts runs the command.
import type { CommandContext } from './command-line/command.ts';
import { errorMessage } from './command-line/error-message.ts';
import { runTownhall } from './run.ts';

// A reader may close the pipe (`| head -1`). Servers and deployments keep running; their output is
// dropped.
let outputError: NodeJS.ErrnoException | undefined;
process.stdout.on('error', (error) => {
  outputError ??= error;
});
process.stderr.on('error', () => {});

const isOutputOpen = (): boolean => outputError === undefined;
const printError = (line: string): void => void process.stderr.write(`${line}\n`);

const context: CommandContext = {
  env: process.env,
  print: (line) => void (isOutputOpen() && process.stdout.write(`${line}\n`)),
  printError,
  isOutputOpen,
  output: {
    isTerminal: process.stdout.isTTY,
    columns: process.stdout.columns,
    write: (bytes) =>
      new Promise((resolve) => (isOutputOpen() ? process.stdout.write(bytes, () => resolve()) : resolve())),
  },
};

/** Output that could not be written fails the command, unless its reader closed the pipe. */
function exitCodeOf(code: number): number {
  if (outputError === undefined || outputError.code === 'EPIPE') return code;
  printError(`townhall: standard output cannot be written to: ${errorMessage(outputError)}`);
  return code === 0 ? 1 : code;
}

// A command closes everything before it returns. If a leftover handle still keeps the process alive, it
// exits after this time, so that a service manager does not wait forever.
const exitTimeoutMs = 10_000;

function exitAfterTimeout(): void {
  setTimeout(() => {
    printError(
      `townhall: the process did not exit within ${exitTimeoutMs / 1_000} s by itself; exiting now.`,
    );
    process.exit();
  }, exitTimeoutMs).unref();
}

void runTownhall(process.argv.slice(2), context).then((code) => {
  // The callback of the empty write runs once all earlier writes have completed.
  process.stdout.write('', (error) => {
    outputError ??= error ?? undefined;
    process.exitCode = exitCodeOf(code);
    exitAfterTimeout();
  });
});
