// Runs one command line: finds the command, runs it, and converts an error into a line and an exit
// code.
import { SettingError } from '../kernel/settings.ts';
import { enableCodeCache } from './command-line/code-cache.ts';
import type { CommandContext } from './command-line/command.ts';
import { errorMessage } from './command-line/error-message.ts';
import { renderHelp, renderOverview } from './command-line/help.ts';
import { runCommand } from './command-line/parse.ts';
import { suggest } from './command-line/suggestion.ts';
import { version } from './command-line/version.ts';
import { commands } from './commands.ts';

/**
 * Resolves with the exit code: 0 is success, 1 a failure, 2 an unknown command or
 * option or an unreadable setting.
 */
export async function runTownhall(words: readonly string[], context: CommandContext): Promise<number> {
  const [name, ...rest] = words;
  const { print, printError } = context;
  if (name === 'help' && rest[0] !== undefined && !rest[0].startsWith('-'))
    return runTownhall([rest[0], '--help'], context);
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    print(renderOverview(commands));
    return name === undefined ? 2 : 0;
  }
  if (name === '--version' || name === '-v') {
    print(version);
    return 0;
  }
  const entry = commands.find((command) => command.name === name);
  if (entry === undefined) {
    const names = commands.map((command) => command.name);
    const hint = suggest(name, names, (word) => `"townhall ${word}"`);
    printError(`townhall: there is no command "${name}"; townhall --help lists them.${hint}`);
    return 2;
  }
  enableCodeCache(context.env);
  const { command } = await entry.load();
  if (rest.includes('--help') || rest.includes('-h')) {
    print(renderHelp(name, command));
    return 0;
  }
  try {
    return await runCommand(name, command, rest, context);
  } catch (error) {
    printError(`townhall ${name}: ${errorMessage(error)}`);
    return error instanceof SettingError ? 2 : 1;
  }
}
