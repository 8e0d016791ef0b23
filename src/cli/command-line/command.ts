// What a command is to the command line, and how its arguments become flags and words.
import { parseArgs } from 'node:util';
import { SettingError } from '../../kernel/settings.ts';
import { suggestion } from './nearest.ts';

/** One command of `townhall`. */
export interface Command {
  /** The whole text of `--help`. */
  help(): string;
  /** Runs to the end and gives the exit code; a server runs until it is told to stop. */
  run(input: CommandInput): Promise<number>;
}

/** What a command gets from the process; nothing below reads the process itself. */
export interface CommandInput {
  /** The arguments behind the command's name. */
  arguments: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  /** Writes one line to standard output. */
  print(line: string): void;
  /** Whether somebody still reads what is printed; for what would go on printing for ever. */
  isHeard(): boolean;
  /** Writes one line to standard error. */
  complain(line: string): void;
  /** Standard output for what is no text. */
  output: BinaryOutput;
}

export interface BinaryOutput {
  /** Bytes of an image or of sound do not belong on a screen. */
  isTerminal: boolean;
  /** Resolves once the bytes were taken, or their reader has left. */
  write(piece: Uint8Array): Promise<void>;
}

/** Flags by name, and the words that are not flags. */
export interface ParsedArguments {
  flags: Record<string, string | undefined>;
  words: readonly string[];
}

/**
 * Reads `--name value`, `--name=value` and the given switches (`--json`), which take no value. What is `repeatable`
 * becomes one value, separated by commas.
 * Throws a SettingError for anything else, such as a flag given twice or without its value.
 */
export function parseFlags(
  given: readonly string[],
  known: { flags: readonly string[]; switches?: readonly string[]; repeatable?: readonly string[] },
): ParsedArguments {
  const options: Record<string, { type: 'string' | 'boolean'; multiple?: boolean }> = {};
  for (const flag of known.flags)
    options[flag] = { type: 'string', multiple: known.repeatable?.includes(flag) ?? false };
  for (const name of known.switches ?? []) options[name] = { type: 'boolean' };
  try {
    const { values, positionals, tokens } = parseArgs({
      args: [...given],
      options,
      allowPositionals: true,
      strict: true,
      tokens: true,
    });
    const seen = new Set<string>();
    for (const { name } of tokens.filter((token) => token.kind === 'option')) {
      if (seen.has(name) && options[name]?.multiple === false)
        throw new SettingError(`the option --${name} is given twice.`);
      seen.add(name);
    }
    const flags: Record<string, string | undefined> = {};
    for (const [name, value] of Object.entries(values)) flags[name] = String(value);
    return { flags, words: positionals };
  } catch (error) {
    if (error instanceof SettingError) throw error;
    throw new SettingError(faultOf(error, given, Object.keys(options)));
  }
}

/** The flags of a command that takes nothing else; any word is refused as well. */
export function parseFlagsAlone(
  given: readonly string[],
  known: Parameters<typeof parseFlags>[1],
): ParsedArguments['flags'] {
  const { flags, words } = parseFlags(given, known);
  if (words[0] !== undefined) throw new SettingError(`"${words[0]}" has no meaning here; see --help.`);
  return flags;
}

// The words of parseArgs are for whoever wrote the program.
function faultOf(error: unknown, given: readonly string[], known: readonly string[]): string {
  const { code, message } = error as { code?: unknown; message?: unknown };
  const named = /'(-[^' ,]*)/.exec(String(message))?.[1] ?? '';
  if (code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION') {
    return `there is no option ${named} here; see --help.${suggestion(named.replace(/^-+/, ''), known, (word) => `--${word}`)}`;
  }
  if (code !== 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE') return String(message);
  const flag = /--[a-z0-9-]+/.exec(String(message))?.[0] ?? named;
  const isSwitch = given.some((word) => word.startsWith(`${flag}=`)) && /does not take/.test(String(message));
  return isSwitch ? `the option ${flag} takes no value.` : `the option ${flag} takes a value.`;
}

/** The flags of a settings table. */
export function flagsOf(table: Readonly<Record<string, { flag: string | null }>>): string[] {
  return Object.values(table).flatMap((setting) => (setting.flag === null ? [] : [setting.flag]));
}
