// `townhall console`: serves pages for a running agent on this machine. The printed address logs
// one browser in.
import { existsSync } from 'node:fs';
import { consoleSettings, createConsole, readConsoleConfig } from '../../console/index.ts';
import { action, type CommandContext, type Command } from '../command-line/command.ts';
import { openInBrowser } from '../command-line/open-in-browser.ts';
import { stderrLog } from '../command-line/stderr-log.ts';
import { hasEnterKey, listenForEnter } from '../servers/enter-key.ts';
import { untilStopped } from '../servers/until-stopped.ts';

export const command: Command = {
  description: [
    'Serves pages for a running agent at 127.0.0.1: chat, sessions, plugins, services, approvals. It prints an address',
    'with a one-time code for one browser; press Enter for another address. Ctrl-C ends it.',
  ],
  actions: [
    action({
      options: {
        open: { kind: 'switch', summary: 'Open the address in your browser.' },
        json: { kind: 'switch', summary: 'Print only {"url":"…"}.' },
      },
      settings: { table: consoleSettings },
      async run({ options, settings, ...context }) {
        const config = readConsoleConfig(settings, context.env);
        const console = await createConsole(config, { log: stderrLog().log });
        const { url } = await console.listen();
        const address = console.loginUrl();
        const announce = (): void => {
          if (options.json) context.print(JSON.stringify({ url: address }));
          else {
            const minutes = Math.round(config.codeTtlMs / 60_000);
            printAddress(context, { url, agentUrl: config.agentUrl, address, minutes });
          }
          if (!existsSync(config.tokenFile))
            context.printError(
              `The agent's token is not at ${config.tokenFile} yet: start the agent, or set --data-dir or --token-file.`,
            );
          if (options.open) openInBrowser(address, context.printError);
          if (!options.json) listenForEnter(() => context.print(`  ${console.loginUrl()}`));
        };
        return untilStopped(announce, async () => {
          process.stdin.pause();
          await console.close();
        });
      },
    }),
  ],
};

function printAddress(
  { print }: CommandContext,
  { url, agentUrl, address, minutes }: { url: string; agentUrl: string; address: string; minutes: number },
): void {
  const lines = [
    `Townhall console at ${url}, for the agent at ${agentUrl}`,
    '',
    `Open this in your browser. It works once, within ${minutes} minutes:`,
    '',
    `  ${address}`,
    '',
    hasEnterKey() ? 'Press Enter for another address. Ctrl-C ends it.' : 'Ctrl-C ends it.',
  ];
  lines.forEach((line) => print(line));
}
