// A command of `townhall` is a table entry. Help, parsing, suggestions and completions are derived
// from it.
import type { Setting } from '../../kernel/settings.ts';

/**
 * The process's streams and environment for a command. Commands do not use `process` themselves, so
 * tests can replace it.
 */
export interface CommandContext {
  env: Readonly<Record<string, string | undefined>>;
  /** Writes one line to standard output. */
  print(line: string): void;
  /** Writes one line to standard error. */
  printError(line: string): void;
  /**
   * False once the reader of standard output has closed it (`| head -1`), for commands that print
   * forever.
   */
  isOutputOpen(): boolean;
  /** Whether --jq filters the output; `print` then accepts only JSON documents. */
  isFiltered?: boolean;
  /** Standard output for binary data. */
  output: BinaryOutput;
}

export interface BinaryOutput {
  /** Whether it is a terminal, to which no images and audio are written. */
  isTerminal: boolean;
  /** The width of the terminal; absent when the output is not a terminal. */
  columns?: number | undefined;
  /** Resolves once the bytes are written or the reader has closed the pipe. */
  write(bytes: Uint8Array): Promise<void>;
}

/**
 * `--name VALUE` or `--name`. Internal switches are passed by Townhall itself and absent from help
 * and completions.
 */
export type Option =
  | { kind: 'value'; placeholder: string; summary: string; isRepeatable?: boolean }
  | { kind: 'switch'; summary: string; isInternal?: boolean };

/**
 * A word after the command. `choices` limits it to a few words; `isRest` takes all remaining words.
 */
export interface Argument {
  placeholder: string;
  isOptional?: boolean;
  isRest?: boolean;
  choices?: readonly string[];
  /** Reads the words that complete the argument, such as ids from a server. If it fails, none are offered. */
  readWords?(env: CommandContext['env']): Promise<readonly CompletionWord[]>;
}

export interface CompletionWord {
  word: string;
  /** What the shell shows beside the word; may be empty. */
  description: string;
}

export type Options = Readonly<Record<string, Option>>;
/** The arguments in the order in which they are typed. */
export type Arguments = Readonly<Record<string, Argument>>;
export type SettingsTable = Readonly<Record<string, Setting<unknown>>>;

type OptionValues<Table extends Options> = {
  [Name in keyof Table]: Table[Name] extends { kind: 'switch' } ? boolean : string | undefined;
};

type ArgumentValues<Table extends Arguments> = {
  [Name in keyof Table]: Table[Name] extends { isRest: true }
    ? readonly string[]
    : Table[Name] extends { isOptional: true }
      ? string | undefined
      : string;
};

/** One call of an action: its parsed arguments and the process around it. */
export interface ActionCall<
  O extends Options = Options,
  A extends Arguments = Arguments,
> extends CommandContext {
  options: OptionValues<O>;
  arguments: ArgumentValues<A>;
  /** The options that belong to the settings table, by flag. */
  settings: Readonly<Record<string, string | undefined>>;
}

/** One form of a command, such as `townhall admin token create`. */
export interface Action<O extends Options = Options, A extends Arguments = Arguments> {
  /** The words after the command's name, such as `token create`; absent for the command itself. */
  path?: string;
  /** A sentence for the help of a command with several actions. */
  summary?: string;
  arguments?: A;
  options?: O;
  /**
   * Every setting of the table with a flag becomes an option. With `sameAs` the help refers to
   * another command's list.
   */
  settings?: { table: SettingsTable; sameAs?: string };
  /** Whether only Townhall itself runs the action; help and completions omit it. */
  isInternal?: boolean;
  /** Returns the exit code. An action that runs a server returns once the server has stopped. */
  run(call: ActionCall<O, A>): Promise<number>;
}

/** A command's entry in the list of commands; the rest is loaded when it is called. */
export interface CommandEntry {
  name: string;
  /** Its line in the overview. */
  summary: string;
  load(): Promise<{ command: Command }>;
}

/** The declaration in a command's file. */
export interface Command {
  description: readonly string[];
  actions: readonly Action[];
  /** The last lines of the help, such as further environment keys or examples. */
  notes?: readonly string[];
  /** Completion words that are not in the table, by the typed words that they may follow. */
  readWords?(): Promise<ReadonlyMap<string, readonly string[]>>;
}

/** Infers the types of options and arguments for `run` from the action's declaration. */
export function action<const O extends Options = Options, const A extends Arguments = Arguments>(
  definition: Action<O, A>,
): Action {
  return definition as Action;
}

/** The option of a setting, with flag, purpose and default from the settings table. */
export function settingOption(
  setting: Setting<unknown>,
  placeholder: string,
): { kind: 'value'; placeholder: string; summary: string } {
  const shownDefault = setting.shownDefault === undefined ? '' : ` (${setting.shownDefault})`;
  return { kind: 'value', placeholder, summary: `${setting.description}${shownDefault}` };
}

export const jsonOption = { kind: 'switch', summary: 'Print the result as JSON.' } as const;

/** Added to every action that has `--json`. */
const jqOption = {
  kind: 'value',
  placeholder: 'EXPRESSION',
  summary: 'Filter the JSON with a jq expression; strings appear without quotes.',
} as const;

/** Whether help and completions omit the option. */
export function isInternalOption(option: Option): boolean {
  return option.kind === 'switch' && option.isInternal === true;
}

/** The words of an action's path. */
export function pathOf(entry: Action): string[] {
  return entry.path === undefined ? [] : entry.path.split(' ');
}

/** All options of an action including its settings, in the order of the help. */
export function optionsOf(entry: Action): Map<string, Option> {
  const options = new Map<string, Option>();
  for (const [name, option] of Object.entries(entry.options ?? {})) {
    options.set(name, option);
    if (name === 'json') options.set('jq', jqOption);
  }
  for (const setting of Object.values(entry.settings?.table ?? {})) {
    if (setting.flag === null) continue;
    if (setting.isSwitch === true) {
      options.set(setting.flag, { kind: 'switch', summary: setting.description });
      continue;
    }
    const isRepeatable = setting.isRepeatable ?? false;
    options.set(setting.flag, { ...settingOption(setting, 'VALUE'), isRepeatable });
  }
  return options;
}

/** The usage line of an action, such as `townhall db backup FILE`. */
export function usageOf(name: string, entry: Action): string {
  const words = Object.values(entry.arguments ?? {}).map(({ placeholder, choices, isOptional, isRest }) => {
    const word = `${choices?.join('|') ?? placeholder}${isRest === true ? ' ...' : ''}`;
    return isOptional === true || isRest === true ? `[${word}]` : word;
  });
  return ['townhall', name, ...pathOf(entry), ...words].join(' ');
}

/** The actions whose first argument is completed with words from a server. */
export function dynamicActions({ actions }: Command): { path: string; argument: Argument }[] {
  return actions.flatMap(({ path = '', arguments: table = {} }) => {
    const [argument] = Object.values(table);
    return argument?.readWords === undefined ? [] : [{ path, argument }];
  });
}

/** The fixed words that may follow `wordsBefore`: parts of paths, and arguments with choices. */
export function wordsAfter({ actions }: Command, wordsBefore: readonly string[]): string[] {
  const next = new Set<string>();
  for (const entry of actions.filter(({ isInternal }) => isInternal !== true)) {
    const choices = Object.values(entry.arguments ?? {}).map((argument) => argument.choices ?? []);
    const positions = [...pathOf(entry).map((word) => [word]), ...choices];
    if (wordsBefore.every((word, index) => positions[index]?.includes(word) === true))
      for (const word of positions[wordsBefore.length] ?? []) next.add(word);
  }
  return [...next];
}
