// Runs a command within the test's process, where no terminal, exit code or start of a process is of interest.
import { runCommand } from '../../src/cli/command-line/parse.ts';
import { commands } from '../../src/cli/commands.ts';

export interface CommandResult {
  code: number;
  /** The lines of standard output. */
  output: string[];
  /** The lines of standard error. */
  errors: string[];
}

/** `words` are those behind `townhall`. Rejects with what the command throws. */
export async function runInProcess(
  [name, ...words]: readonly string[],
  env: Readonly<Record<string, string | undefined>> = {},
): Promise<CommandResult> {
  const entry = commands.find((each) => each.name === name);
  if (name === undefined || entry === undefined) throw new Error(`There is no command ${name}.`);
  const { command } = await entry.load();
  const output: string[] = [];
  const errors: string[] = [];
  const code = await runCommand(name, command, words, {
    env,
    print: (line) => void output.push(line),
    printError: (line) => void errors.push(line),
    isOutputOpen: () => true,
    output: { isTerminal: false, write: async () => {} },
  });
  return { code, output, errors };
}
