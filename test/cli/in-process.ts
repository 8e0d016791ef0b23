// Runs a command in the test's own process, which saves a second per run. Only for commands that
// neither read standard input nor keep running.
import { runCommand } from '../../src/cli/command-line/parse.ts';
import { commands } from '../../src/cli/commands.ts';
import { runTownhall } from '../../src/cli/run.ts';

export interface CommandResult {
  code: number;
  /** Lines of standard output. */
  output: string[];
  /** Lines of standard error. */
  errors: string[];
}

/** `words` are the arguments after `townhall`. Rejects with the command's error. */
export async function runInProcess(
  [name, ...words]: readonly string[],
  env: Readonly<Record<string, string | undefined>> = {},
): Promise<CommandResult> {
  const entry = commands.find((command) => command.name === name);
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

/**
 * Runs a whole command line: an error becomes a line of output and an exit code, as in a process.
 * `cwd` changes the working directory of the test process meanwhile, so such calls must not
 * overlap.
 */
export async function runCommandLine(
  words: readonly string[],
  { cwd, env = {} }: { cwd?: string; env?: Readonly<Record<string, string | undefined>> } = {},
): Promise<{ code: number; screen: string }> {
  let screen = '';
  const print = (line: string): void => {
    screen += `${line}\n`;
  };
  const output = {
    isTerminal: false,
    write: async (bytes: Uint8Array) => print(Buffer.from(bytes).toString()),
  };
  const formerDirectory = process.cwd();
  if (cwd !== undefined) process.chdir(cwd);
  try {
    const context = { env, print, printError: print, isOutputOpen: () => true, output };
    const code = await runTownhall(words, context);
    return { code, screen };
  } finally {
    process.chdir(formerDirectory);
  }
}
