// The command line: finds the command, runs it, and turns what it throws into a line and an exit code.
// 0 is success, 1 a failure, 2 a command, an option or a setting that does not exist or cannot be read.
import { SettingError } from '../kernel/settings.ts';
import { enableCodeCache } from './command-line/code-cache.ts';
import type { CommandContext } from './command-line/command.ts';
import { errorMessage } from './command-line/error-message.ts';
import { renderHelp, renderOverview } from './command-line/help.ts';
import { runCommand } from './command-line/parse.ts';
import { suggestion } from './command-line/suggestion.ts';
import { version } from './command-line/version.ts';
import { commands } from './commands.ts';

// A reader may close the pipe (`| head -1`). Servers and deployments go on; their output is dropped.
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
    write: (bytes) =>
      new Promise((resolve) => (isOutputOpen() ? process.stdout.write(bytes, () => resolve()) : resolve())),
  },
};

async function main(words: readonly string[]): Promise<number> {
  const [name, ...rest] = words;
  if (name === 'help' && rest[0] !== undefined && !rest[0].startsWith('-')) return main([rest[0], '--help']);
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    context.print(renderOverview(commands));
    return name === undefined ? 2 : 0;
  }
  if (name === '--version' || name === '-v') {
    context.print(version);
    return 0;
  }
  const entry = commands.find((each) => each.name === name);
  if (entry === undefined) {
    const names = commands.map((each) => each.name);
    const hint = suggestion(name, names, (word) => `"townhall ${word}"`);
    printError(`townhall: there is no command "${name}"; townhall --help lists them.${hint}`);
    return 2;
  }
  enableCodeCache(process.env);
  const { command } = await entry.load();
  if (rest.includes('--help') || rest.includes('-h')) {
    context.print(renderHelp(name, command));
    return 0;
  }
  try {
    return await runCommand(name, command, rest, context);
  } catch (error) {
    printError(`townhall ${name}: ${errorMessage(error)}`);
    return error instanceof SettingError ? 2 : 1;
  }
}

/** Output that could not be written fails the command, unless its reader closed the pipe. */
function exitCodeOf(code: number): number {
  if (outputError === undefined || outputError.code === 'EPIPE') return code;
  printError(`townhall: standard output cannot be written to: ${errorMessage(outputError)}`);
  return code === 0 ? 1 : code;
}

// A command closes what it opened before it returns. If something still keeps the process alive, end it after this, so
// that a service manager sees an exit.
const exitTimeoutMs = 10_000;

function exitAfterTimeout(): void {
  setTimeout(() => {
    printError('townhall: something was still open; the process is ended.');
    process.exit();
  }, exitTimeoutMs).unref();
}

void main(process.argv.slice(2)).then((code) => {
  // The empty write calls back once everything before it was written or refused.
  process.stdout.write('', (error) => {
    outputError ??= error ?? undefined;
    process.exitCode = exitCodeOf(code);
    exitAfterTimeout();
  });
});
