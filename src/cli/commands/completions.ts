// `townhall completions bash|zsh|fish`: prints a completion script made from the list of commands.
import { action, type Command, type CommandEntry } from '../command-line/command.ts';
import { completionScript, shells, type Shell } from '../command-line/completion-scripts.ts';

/** Its argument is the list of commands, which contains this command too. */
export function completionsCommand(commands: readonly CommandEntry[]): Command {
  return {
    description: [
      'Prints a script that completes commands and options. Write it to the path where your shell looks for it:',
      '',
      '  bash   townhall completions bash > ~/.local/share/bash-completion/completions/townhall',
      '  zsh    townhall completions zsh > "${fpath[1]}/_townhall"',
      '  fish   townhall completions fish > ~/.config/fish/completions/townhall.fish',
    ],
    actions: [
      action({
        arguments: { shell: { placeholder: 'SHELL', choices: shells } },
        async run({ arguments: { shell }, print }) {
          const loadedCommands = await Promise.all(
            commands.map(async ({ name, summary, load }) => {
              const { command } = await load();
              return { name, summary, command, words: (await command.readWords?.()) ?? new Map() };
            }),
          );
          // `choices` has refused any other word.
          print(completionScript(shell as Shell, loadedCommands));
          return 0;
        },
      }),
    ],
  };
}
