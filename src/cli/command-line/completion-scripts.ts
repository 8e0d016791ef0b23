// The completion scripts for bash, zsh and fish, generated from the commands' table entries.
import { dynamicActions, isInternalOption, optionsOf, wordsAfter, type Command } from './command.ts';

export const shells = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof shells)[number];

export interface NamedCommand {
  name: string;
  summary: string;
  command: Command;
  /** The result of `command.readWords`. */
  words: ReadonlyMap<string, readonly string[]>;
}

/** A position on the command line, and the words that may follow it. */
interface Position {
  /** The words typed so far after `townhall`, such as `admin token`. */
  typed: string;
  words: readonly string[];
  /** Whether the words come from a server. */
  isDynamic?: boolean;
}

/** The command that prints the words from a server: one per line, then a tab and its description. */
const wordsCommand = ({ typed }: Position): string => `townhall completions words ${typed} 2>/dev/null`;

export function completionScript(shell: Shell, commands: readonly NamedCommand[]): string {
  const positions = commands.flatMap(positionsOf);
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](commands, positions).join('\n');
}

function positionsOf({ name, command, words: extraWords }: NamedCommand): Position[] {
  const positions: Position[] = [...extraWords].map(([path, words]) => ({ typed: `${name} ${path}`, words }));
  const visit = (wordsBefore: readonly string[]): void => {
    const words = wordsAfter(command, wordsBefore);
    if (words.length === 0 && wordsBefore.length > 0) return;
    positions.push({ typed: [name, ...wordsBefore].join(' '), words });
    for (const word of words) visit([...wordsBefore, word]);
  };
  visit([]);
  const dynamicPositions = dynamicActions(command).map(({ path }) => ({
    typed: `${name} ${path}`.trimEnd(),
    words: [],
    isDynamic: true,
  }));
  const dynamicPaths = new Set(dynamicPositions.map(({ typed }) => typed));
  return [...positions.filter(({ typed }) => !dynamicPaths.has(typed)), ...dynamicPositions];
}

/** The options of all actions, with dashes. An option may be typed before the words of its action. */
function flagsOf({ command }: NamedCommand): string[] {
  const visibleActions = command.actions.filter(({ isInternal }) => isInternal !== true);
  const options = visibleActions.flatMap((entry) => [...optionsOf(entry)]);
  const publicNames = options.filter(([, option]) => !isInternalOption(option)).map(([name]) => name);
  const names = new Set(['help', ...publicNames]);
  return [...names].sort().map((name) => `--${name}`);
}

function bashScript(commands: readonly NamedCommand[], positions: readonly Position[]): string[] {
  return [
    '# Completions of townhall for bash.',
    '_townhall() {',
    '  local current="${COMP_WORDS[COMP_CWORD]}" path="" word words=""',
    '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
    '    [[ $word == -* ]] || path="${path:+$path }$word"',
    '  done',
    '  if [[ $current == -* ]]; then',
    '    case "${path%% *}" in',
    `      "") words="--help --version" ;;`,
    ...commands.map((entry) => `      ${entry.name}) words="${flagsOf(entry).join(' ')}" ;;`),
    '    esac',
    '  else',
    '    case "$path" in',
    `      "") words="${commands.map(({ name }) => name).join(' ')}" ;;`,
    ...positions.map((position) => {
      const words = position.isDynamic ? `$(${wordsCommand(position)} | cut -f1)` : position.words.join(' ');
      return `      "${position.typed}") words="${words}" ;;`;
    }),
    '    esac',
    '  fi',
    // `compgen -W` would expand each word, so a server could run a command by an id such as $(…).
    '  local -a candidates',
    '  read -r -d "" -a candidates <<< "$words"',
    '  COMPREPLY=()',
    '  for word in "${candidates[@]}"; do',
    '    [[ $word == "$current"* ]] || continue',
    '    printf -v word %q "$word"',
    '    COMPREPLY+=("$word")',
    '  done',
    '}',
    'complete -o default -F _townhall townhall',
  ];
}

function zshScript(commands: readonly NamedCommand[], positions: readonly Position[]): string[] {
  return [
    '#compdef townhall',
    '# Completions of townhall for zsh.',
    '_townhall() {',
    '  local path_so_far="" word',
    '  for word in "${(@)words[2,CURRENT-1]}"; do',
    '    [[ $word == -* ]] || path_so_far="${path_so_far:+$path_so_far }$word"',
    '  done',
    '  if [[ $PREFIX == -* ]]; then',
    '    case "${path_so_far%% *}" in',
    '      "") compadd -- --help --version ;;',
    ...commands.map((entry) => `      ${entry.name}) compadd -- ${flagsOf(entry).join(' ')} ;;`),
    '    esac',
    '    return',
    '  fi',
    '  case "$path_so_far" in',
    '    "")',
    '      local -a commands=(',
    ...commands.map(({ name, summary }) => `        ${quote(`${name}:${summary}`)}`),
    '      )',
    "      _describe 'command' commands ;;",
    ...positions.flatMap((position) => {
      const { typed, words, isDynamic } = position;
      if (isDynamic)
        return [
          `    "${typed}")`,
          `      local -a ids=(\${(f)"$(${wordsCommand(position)})"})`,
          "      ids=(${ids//$'\\t'/:})",
          "      _describe 'id' ids ;;",
        ];
      return words.length === 0 ? [] : [`    "${typed}") compadd -- ${words.join(' ')} ;;`];
    }),
    '    *) _files ;;',
    '  esac',
    '}',
    // zsh calls a file in fpath as the function itself; after `source` the function has to be
    // registered.
    'if [[ $funcstack[1] == _townhall ]]; then _townhall "$@"; else compdef _townhall townhall; fi',
  ];
}

function fishScript(commands: readonly NamedCommand[], positions: readonly Position[]): string[] {
  const withWords = positions.filter(({ words, isDynamic }) => words.length > 0 || isDynamic);
  return [
    '# Completions of townhall for fish.',
    'function __townhall_path',
    "    string match --invert -- '-*' (commandline --cut-at-cursor --tokenize --current-process)[2..] | string join ' '",
    'end',
    // In fish, a command substitution that prints nothing expands to no argument at all. A quoted
    // variable always expands to one.
    'function __townhall_at',
    '    set --local typed (__townhall_path)',
    '    test "$typed" = "$argv"',
    'end',
    'function __townhall_in',
    '    set --local typed (__townhall_path)',
    '    test (string split --max 1 \' \' -- "$typed ")[1] = "$argv"',
    'end',
    'function __townhall_in_flag',
    '    set --local word (commandline --cut-at-cursor --current-token)',
    '    string match --quiet -- \'-*\' "$word"',
    'end',
    // -f: do not offer file names where a word of the command is expected.
    `complete -c townhall -n '__townhall_at ""' -f`,
    ...withWords.map(({ typed }) => `complete -c townhall -n '__townhall_at ${typed}' -f`),
    ...['help', 'version'].map((flag) => `complete -c townhall -n '__townhall_at ""' -l ${flag}`),
    ...commands.map(
      ({ name, summary }) => `complete -c townhall -n '__townhall_at ""' -a ${name} -d ${quote(summary)}`,
    ),
    ...withWords.flatMap((position) => {
      const words = position.isDynamic
        ? [`'(__townhall_in_flag; or ${wordsCommand(position)})'`]
        : position.words;
      return words.map((word) => `complete -c townhall -n '__townhall_at ${position.typed}' -a ${word}`);
    }),
    ...commands.flatMap((entry) =>
      flagsOf(entry).map(
        (flag) => `complete -c townhall -n '__townhall_in ${entry.name}' -l ${flag.slice(2)}`,
      ),
    ),
  ];
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
