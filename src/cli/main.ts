// The command line: finds the command, runs it, and turns what it throws into a line and an exit code.
// 0 is success, 1 a failure, 2 a command or an option that does not exist or cannot be read.
import { SettingError } from '../kernel/settings.ts';
import { commands } from './commands.ts';
import { version } from './version.ts';

const print = (line: string): void => void process.stdout.write(`${line}\n`);
const complain = (line: string): void => void process.stderr.write(`${line}\n`);

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

async function main(given: readonly string[]): Promise<number> {
  const [name, ...rest] = given;
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
    complain(`townhall: there is no command "${name}"; townhall --help lists them.`);
    return 2;
  }
  const command = await entry.load();
  if (rest.includes('--help') || rest.includes('-h')) {
    print(command.help());
    return 0;
  }
  try {
    return await command.run({ arguments: rest, env: process.env, print, complain });
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    complain(`townhall ${name}: ${message}`);
    return error instanceof SettingError ? 2 : 1;
  }
}

process.exitCode = await main(process.argv.slice(2));
