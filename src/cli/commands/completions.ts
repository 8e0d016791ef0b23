// `townhall completions bash|zsh|fish`: prints a completion script made from the list of commands. The
// script calls `townhall completions words` for words that only a server knows.
import { action, dynamicActions, type Command, type CommandEntry } from '../command-line/command.ts';
import { completionScript, shells, type Shell } from '../command-line/completion-scripts.ts';

/** Its argument is the list of commands, which contains this command too. */
export function completionsCommand(commands: readonly CommandEntry[]): Command {
  return {
    description: [
      'Prints a script that completes commands, options, operations and ids. Write it to the path where your shell looks for it:',
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
          // `choices` admits only the names of the shells.
          print(completionScript(shell as Shell, loadedCommands));
          return 0;
        },
      }),
      action({
        path: 'words',
        isInternal: true,
        arguments: {
          command: { placeholder: 'COMMAND' },
          path: { placeholder: 'WORD', isRest: true },
        },
        async run({ arguments: { command: name, path }, env, print }) {
          const entry = commands.find((candidate) => candidate.name === name);
          const { command } = (await entry?.load()) ?? {};
          const dynamicAction =
            command && dynamicActions(command).find((candidate) => candidate.path === path.join(' '));
          // Pressing Tab must not print an error when the server does not answer.
          const words = await dynamicAction?.argument.readWords?.(env).catch(() => []);
          for (const { word, description } of words ?? []) print(`${word}\t${description}`);
          return 0;
        },
      }),
    ],
  };
}
