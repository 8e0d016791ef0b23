// Parses the words after a command according to its table entry, and runs the action that they name. An
// undeclared word or option throws a SettingError, for which the process exits with 2.
import { parseArgs } from 'node:util';
import { SettingError } from '../../kernel/settings.ts';
import {
  optionsOf,
  pathOf,
  usageOf,
  wordsAfter,
  type Action,
  type Argument,
  type Command,
  type CommandContext,
  type Option,
} from './command.ts';
import { findNearest, suggest } from './suggestion.ts';

/** `words` are the words after the command's name. Returns the exit code. */
export async function runCommand(
  name: string,
  command: Command,
  words: readonly string[],
  context: CommandContext,
): Promise<number> {
  const { values, positionals } = parseOptions(command, words);
  const entry = findAction(name, command, positionals);
  requireOwnOptions(name, command, entry, Object.keys(values));
  const flags = Object.values(entry.settings?.table ?? {}).map(({ flag }) => flag);
  const { jq: expression } = values;
  const call = {
    arguments: readArguments(name, command, entry, positionals.slice(pathOf(entry).length)),
    options: readOptions(entry, expression === undefined ? values : { ...values, json: 'true' }),
    settings: Object.fromEntries(Object.entries(values).filter(([option]) => flags.includes(option))),
  };
  if (expression === undefined) return entry.run({ ...context, ...call });
  // Loaded only for --jq, since the module reads a megabyte of WebAssembly.
  const { withJq } = await import('./jq.ts');
  return withJq(expression, context, (filteredContext) => entry.run({ ...filteredContext, ...call }));
}

/** Options may be typed anywhere, so the options of all actions are parsed before the action is known. */
function parseOptions(
  command: Command,
  words: readonly string[],
): { values: Record<string, string>; positionals: readonly string[] } {
  const optionsByName = new Map<string, Option>(command.actions.flatMap((entry) => [...optionsOf(entry)]));
  const options = Object.fromEntries(
    [...optionsByName].map(([option, { kind }]) => {
      const type = kind === 'switch' ? 'boolean' : 'string';
      return [option, { type, multiple: true } as const];
    }),
  );
  try {
    const { values, positionals } = parseArgs({ args: [...words], options, allowPositionals: true });
    for (const [option, texts] of Object.entries(values)) {
      const spec = optionsByName.get(option);
      const isRepeatable = spec?.kind === 'value' && spec.isRepeatable === true;
      if (Array.isArray(texts) && texts.length > 1 && !isRepeatable)
        throw new SettingError(`the option --${option} is set twice.`);
    }
    // A repeated option is one comma-separated list, as in the environment.
    return {
      values: Object.fromEntries(Object.entries(values).map(([option, texts]) => [option, String(texts)])),
      positionals,
    };
  } catch (error) {
    if (error instanceof SettingError) throw error;
    throw new SettingError(explainParseError(error, words, [...optionsByName.keys()]));
  }
}

// The messages of parseArgs are written for the programmer who calls it, not for the user.
function explainParseError(error: unknown, words: readonly string[], names: readonly string[]): string {
  const { code, message } = error as { code?: unknown; message?: unknown };
  const option = /'(-[^' ,]*)/.exec(String(message))?.[1] ?? '';
  if (code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION') {
    const hint = suggest(option.replace(/^-+/, ''), names, (word) => `--${word}`);
    return `there is no option ${option} here; see --help.${hint}`;
  }
  if (code !== 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE') return String(message);
  const flag = /--[a-z0-9-]+/.exec(String(message))?.[0] ?? option;
  const isSwitch = words.some((word) => word.startsWith(`${flag}=`)) && /does not take/.test(String(message));
  return isSwitch ? `the option ${flag} takes no value.` : `the option ${flag} takes a value.`;
}

/** The action with the longest path that the words begin with. */
function findAction(name: string, command: Command, words: readonly string[]): Action {
  const beginsWith = (path: readonly string[], prefix: readonly string[]): boolean =>
    prefix.every((word, index) => path[index] === word);
  const [match] = command.actions
    .filter((entry) => beginsWith(words, pathOf(entry)))
    .sort((a, b) => pathOf(b).length - pathOf(a).length);
  // The number of leading words that begin the path of some action; the rest are arguments or typos.
  let depth = words.length;
  while (!command.actions.some((entry) => beginsWith(pathOf(entry), words.slice(0, depth)))) depth -= 1;
  if (match !== undefined && pathOf(match).length >= depth) return match;
  const candidates = command.actions.filter(
    (entry) => entry.isInternal !== true && beginsWith(pathOf(entry), words.slice(0, depth)),
  );
  throw new SettingError(`${usageAdvice(name, candidates)}${suggestCommand(name, command, words, depth)}`);
}

function usageAdvice(name: string, candidates: readonly Action[]): string {
  const usages = candidates.map((entry) => `"${usageOf(name, entry)}"`);
  const lastUsage = usages.pop() ?? '';
  return `use ${usages.length === 0 ? lastUsage : `${usages.join(', ')} or ${lastUsage}`}; see --help.`;
}

/** ` Did you mean …?` for a mistyped word at `position`, or an empty string. */
function suggestCommand(name: string, command: Command, words: readonly string[], position: number): string {
  const typedWord = words[position];
  if (typedWord === undefined) return '';
  const earlierWords = words.slice(0, position);
  const word = findNearest(typedWord, wordsAfter(command, earlierWords));
  return word === undefined ? '' : ` Did you mean "${['townhall', name, ...earlierWords, word].join(' ')}"?`;
}

function requireOwnOptions(name: string, command: Command, entry: Action, names: readonly string[]): void {
  const actionOptions = optionsOf(entry);
  const misplacedOption = names.find((option) => !actionOptions.has(option));
  if (misplacedOption === undefined) return;
  const owners = command.actions.filter((other) => optionsOf(other).has(misplacedOption));
  throw new SettingError(
    `--${misplacedOption} belongs to ${owners.map((other) => `"${usageOf(name, other)}"`).join(', ')}; see --help.`,
  );
}

function readArguments(
  name: string,
  command: Command,
  entry: Action,
  words: readonly string[],
): Record<string, never> {
  const values: Record<string, string | undefined | readonly string[]> = {};
  let position = 0;
  const path = pathOf(entry);
  const typedWords = [...path, ...words];
  for (const [key, argument] of Object.entries(entry.arguments ?? {})) {
    if (argument.isRest === true) {
      values[key] = words.slice(position);
      position = Math.max(position, words.length);
      continue;
    }
    const word = words[position];
    if (word === undefined && argument.isOptional !== true)
      throw new SettingError(usageAdvice(name, [entry]));
    if (word !== undefined && argument.choices?.includes(word) === false)
      throw new SettingError(
        `${choiceMessage(word, argument)}${suggestCommand(name, command, typedWords, path.length + position)}`,
      );
    values[key] = word;
    position += 1;
  }
  const surplusWord = words[position];
  if (surplusWord !== undefined)
    throw new SettingError(
      `"${surplusWord}" is not part of this command; see --help.${suggestCommand(name, command, typedWords, path.length + position)}`,
    );
  // The declared types of the action's arguments describe exactly these values.
  return values as Record<string, never>;
}

function choiceMessage(word: string, { choices = [] }: Argument): string {
  return `"${word}" is not one of ${choices.join(', ')}; see --help.`;
}

function readOptions(entry: Action, values: Readonly<Record<string, string>>): Record<string, never> {
  const options: Record<string, string | boolean | undefined> = {};
  for (const [option, { kind }] of Object.entries(entry.options ?? {}))
    options[option] = kind === 'switch' ? values[option] !== undefined : values[option];
  // The declared types of the action's options describe exactly these values.
  return options as Record<string, never>;
}
