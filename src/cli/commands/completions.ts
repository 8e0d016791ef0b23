// `townhall completions bash|zsh|fish`: a script for the shell, made from the table of commands and their help.
import { SettingError } from '../../kernel/settings.ts';
import { parseFlags } from '../command-line/command.ts';
import type { Command } from '../command-line/command.ts';
import { shapeOf, wordsBehind, type CommandShape } from '../command-line/shape.ts';

interface Known {
  name: string;
  summary: string;
  shape: CommandShape;
}

const shells = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof shells)[number];

/** Takes the table, which also lists this very command. */
export function completionsCommand(
  table: () => Readonly<Record<string, { summary: string; load(): Promise<Command> }>>,
): Command {
  return {
    help: () =>
      [
        'Usage: townhall completions bash|zsh|fish',
        '',
        'Prints a script that completes commands and options in the shell:',
        '',
        '  bash   townhall completions bash > ~/.local/share/bash-completion/completions/townhall',
        '  zsh    townhall completions zsh > "${fpath[1]}/_townhall"',
        '  fish   townhall completions fish > ~/.config/fish/completions/townhall.fish',
      ].join('\n'),
    async run(input) {
      const { words } = parseFlags(input.arguments, { flags: [] });
      const [shell = '', ...surplus] = words;
      const known = shells.find((name) => name === shell);
      if (known === undefined || surplus.length > 0)
        throw new SettingError('say for which shell: bash, zsh or fish.');
      const commands = await Promise.all(
        Object.entries(table()).map(async ([name, { summary, load }]): Promise<Known> => ({
          name,
          summary,
          shape: shapeOf(name, (await load()).help()),
        })),
      );
      input.print(scripts[known](commands));
      return 0;
    },
  };
}

/** Every place at which words may follow: the words typed so far, and what may come. */
function places(commands: readonly Known[]): { before: string; words: string[]; flags: readonly string[] }[] {
  return commands.flatMap(({ name, shape }) => {
    const beginnings = new Set(
      shape.paths.flatMap((path) => path.map((_, index) => path.slice(0, index).join(' '))),
    );
    return [...beginnings, ...(beginnings.size === 0 ? [''] : [])].map((before) => ({
      before: [name, ...(before === '' ? [] : [before])].join(' '),
      words: wordsBehind(shape, before === '' ? [] : before.split(' ')),
      flags: shape.flags,
    }));
  });
}

const scripts: Record<Shell, (commands: readonly Known[]) => string> = {
  bash: (commands) =>
    [
      '# Completions of townhall for bash.',
      '_townhall() {',
      '  local current="${COMP_WORDS[COMP_CWORD]}" path="" word words="" flags=""',
      '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
      '    [[ $word == -* ]] || path="${path:+$path }$word"',
      '  done',
      '  case "${path%% *}" in',
      `    "") flags="--help --version" ;;`,
      ...commands.map(({ name, shape }) => `    ${name}) flags="${shape.flags.join(' ')}" ;;`),
      '  esac',
      '  case "$path" in',
      `    "") words="${commands.map(({ name }) => name).join(' ')}" ;;`,
      ...places(commands).map(({ before, words }) => `    "${before}") words="${words.join(' ')}" ;;`),
      '  esac',
      '  [[ $current == -* ]] && words="$flags"',
      '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
      '}',
      'complete -o default -F _townhall townhall',
    ].join('\n'),
  zsh: (commands) =>
    [
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
      ...commands.map(({ name, shape }) => `      ${name}) compadd -- ${shape.flags.join(' ')} ;;`),
      '    esac',
      '    return',
      '  fi',
      '  case "$path_so_far" in',
      '    "")',
      '      local -a commands=(',
      ...commands.map(({ name, summary }) => `        ${quoted(`${name}:${summary}`)}`),
      '      )',
      "      _describe 'command' commands ;;",
      ...places(commands).flatMap(({ before, words }) =>
        words.length === 0 ? [] : [`    "${before}") compadd -- ${words.join(' ')} ;;`],
      ),
      '    *) _files ;;',
      '  esac',
      '}',
      // Found in the path of functions it is called as one; read with `source` it makes itself known.
      'if [[ $funcstack[1] == _townhall ]]; then _townhall "$@"; else compdef _townhall townhall; fi',
    ].join('\n'),
  fish: (commands) =>
    [
      '# Completions of townhall for fish.',
      'function __townhall_path',
      "    string match --invert -- '-*' (commandline --cut-at-cursor --tokenize --current-process)[2..] | string join ' '",
      'end',
      // What prints nothing is no argument at all, so it goes through a variable.
      'function __townhall_at',
      '    set --local said (__townhall_path)',
      '    test "$said" = "$argv"',
      'end',
      'function __townhall_in',
      '    set --local said (__townhall_path)',
      '    test (string split --max 1 \' \' -- "$said ")[1] = "$argv"',
      'end',
      // Files are for where no word of ours can stand.
      `complete -c townhall -n '__townhall_at ""' -f`,
      ...places(commands).flatMap(({ before, words }) =>
        words.length === 0 ? [] : [`complete -c townhall -n '__townhall_at ${before}' -f`],
      ),
      ...['help', 'version'].map((flag) => `complete -c townhall -n '__townhall_at ""' -l ${flag}`),
      ...commands.map(
        ({ name, summary }) => `complete -c townhall -n '__townhall_at ""' -a ${name} -d ${quoted(summary)}`,
      ),
      ...places(commands).flatMap(({ before, words }) =>
        words.map((word) => `complete -c townhall -n '__townhall_at ${before}' -a ${word}`),
      ),
      ...commands.flatMap(({ name, shape }) =>
        shape.flags.map((flag) => `complete -c townhall -n '__townhall_in ${name}' -l ${flag.slice(2)}`),
      ),
    ].join('\n'),
};

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
