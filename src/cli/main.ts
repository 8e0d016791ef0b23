// The command line: finds the command, runs it, and turns what it throws into a line and an exit code.
// 0 is success, 1 a failure, 2 a command or an option that does not exist or cannot be read.
import { SettingError } from '../kernel/settings.ts';
import { keepCompiledCode } from './code-cache.ts';
import { commands } from './commands.ts';
import { nearest, suggestion } from './command-line/nearest.ts';
import { shapeOf, wordsBehind } from './command-line/shape.ts';
import { messageOf } from './command-line/error-message.ts';
import { version } from './command-line/version.ts';

const print = (line: string): void => void (isHeard() && process.stdout.write(`${line}\n`));
const complain = (line: string): void => void process.stderr.write(`${line}\n`);

// Whoever reads along may leave (`| head -1`), and nothing under way ends for it, be it a server or a deployment.
let lost: NodeJS.ErrnoException | undefined;
const isHeard = (): boolean => lost === undefined;
process.stdout.on('error', (error) => {
  lost ??= error;
});
process.stderr.on('error', () => {});

const output = {
  isTerminal: process.stdout.isTTY,
  write: (piece: Uint8Array) =>
    new Promise<void>((resolve) => (isHeard() ? process.stdout.write(piece, () => resolve()) : resolve())),
};

/** A result that could not be written is none, unless its reader had seen enough. */
function codeOf(code: number): number {
  if (lost === undefined || lost.code === 'EPIPE') return code;
  complain(`townhall: standard output cannot be written to: ${messageOf(lost)}`);
  return code === 0 ? 1 : code;
}

function overview(): string {
  const width = Math.max(...Object.keys(commands).map((name) => name.length)) + 2;
  const rows = Object.entries(commands).map(([name, command]) => `  ${name.padEnd(width)}${command.summary}`);
  return [
    'Townhall: a model gateway and an agent runtime.',
    '',
    'Usage: townhall COMMAND [OPTIONS]',
    '',
    ...rows,
    '',
    'townhall COMMAND --help says what a command takes; townhall --version prints the version.',
  ].join('\n');
}

/** The whole of what was probably meant, when one of the words behind the command is none of its own. */
function meantWords(name: string, help: string, rest: readonly string[]): string | undefined {
  const shape = shapeOf(name, help);
  const said: string[] = [];
  for (const word of rest.filter((part) => !part.startsWith('-'))) {
    const known = wordsBehind(shape, said);
    if (known.length === 0) return undefined;
    if (!known.includes(word)) {
      const meant = nearest(word, known);
      return meant === undefined ? undefined : ['townhall', name, ...said, meant].join(' ');
    }
    said.push(word);
  }
  return undefined;
}

async function main(given: readonly string[]): Promise<number> {
  const [name, ...rest] = given;
  if (name === 'help' && rest[0] !== undefined && !rest[0].startsWith('-')) return main([rest[0], '--help']);
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    print(overview());
    return name === undefined ? 2 : 0;
  }
  if (name === '--version' || name === '-v') {
    print(version);
    return 0;
  }
  const entry = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (entry === undefined) {
    complain(
      `townhall: there is no command "${name}"; townhall --help lists them.${suggestion(name, Object.keys(commands), (word) => `"townhall ${word}"`)}`,
    );
    return 2;
  }
  keepCompiledCode(process.env);
  const command = await entry.load();
  if (rest.includes('--help') || rest.includes('-h')) {
    print(command.help());
    return 0;
  }
  try {
    return await command.run({ arguments: rest, env: process.env, print, complain, isHeard, output });
  } catch (error) {
    complain(`townhall ${name}: ${messageOf(error)}`);
    if (!(error instanceof SettingError)) return 1;
    const meant = meantWords(name, command.help(), rest);
    if (meant !== undefined) complain(`Did you mean "${meant}"?`);
    return 2;
  }
}

// A command that has returned has closed what it opened. Should something be left that keeps the process alive, a
// service manager must still see an end.
const exitMs = 10_000;

function endWithin(ms: number): void {
  const timer = setTimeout(() => {
    complain('townhall: something was still open; the process is ended.');
    process.exit();
  }, ms);
  timer.unref();
}

void main(process.argv.slice(2)).then((code) => {
  // Once the last line has been written, or refused.
  process.stdout.write('', (error) => {
    lost ??= error ?? undefined;
    process.exitCode = codeOf(code);
    endWithin(exitMs);
  });
});
