// `townhall console`: pages for the person at this machine, beside an agent that runs. What it prints lets one browser in.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { consoleSettings, createConsole, readConsoleConfig } from '../../console/index.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { describeSettings } from '../../kernel/settings.ts';
import { flagsOf, parseFlagsAlone } from '../command-line/command.ts';
import type { Command, CommandInput } from '../command-line/command.ts';
import { untilStopped } from '../servers/until-stopped.ts';

export const consoleCommand: Command = {
  help: () =>
    [
      'Usage: townhall console [--open] [--json] [OPTIONS]',
      '',
      'Serves pages for a running agent at 127.0.0.1: chat, sessions, plugins, services, approvals. It prints an address',
      'with a one-time code, which lets one browser in; press Enter for another one. Ctrl-C ends it.',
      '',
      '  --open                      Opens the address in your browser.',
      '  --json                      Prints {"url":"…"} and nothing else.',
      '',
      describeSettings(consoleSettings),
    ].join('\n'),
  async run(input) {
    const { open, json, ...settings } = parseFlagsAlone(input.arguments, {
      flags: flagsOf(consoleSettings),
      switches: ['open', 'json'],
    });
    const config = readConsoleConfig(settings, input.env);
    const log = createLog({
      level: 'warn',
      redactor: createRedactor(),
      write: (line) => void process.stderr.write(line),
    });
    const console = await createConsole(config, { log });
    const { url } = await console.listen();
    const address = console.invite();
    const announce = (): void => {
      if (json === 'true') input.print(JSON.stringify({ url: address }));
      else
        show(input, {
          url,
          agentUrl: config.agentUrl,
          address,
          minutes: Math.round(config.codeTtlMs / 60_000),
        });
      if (!existsSync(config.tokenFile))
        input.complain(
          `The agent's token is not at ${config.tokenFile} yet: start the agent, or say with --data-dir or --token-file where it is.`,
        );
      if (open === 'true') openInBrowser(address, input);
      if (json !== 'true' && process.stdin.isTTY)
        process.stdin.on('data', () => input.print(`  ${console.invite()}`));
    };
    return untilStopped(announce, async () => {
      process.stdin.pause();
      await console.close();
    });
  },
};

function show(
  input: CommandInput,
  { url, agentUrl, address, minutes }: { url: string; agentUrl: string; address: string; minutes: number },
): void {
  const lines = [
    `Townhall console at ${url}, for the agent at ${agentUrl}`,
    '',
    `Open this in your browser. It works once, within ${minutes} minutes:`,
    '',
    `  ${address}`,
    '',
  ];
  const again = process.stdin.isTTY ? ['Enter shows another one. Ctrl-C ends it.'] : ['Ctrl-C ends it.'];
  for (const line of [...lines, ...again]) input.print(line);
}

function openInBrowser(address: string, input: CommandInput): void {
  const [command, ...given] = { darwin: ['open'], win32: ['cmd', '/c', 'start', ''] }[
    process.platform as string
  ] ?? ['xdg-open'];
  const child = spawn(command as string, [...given, address], { stdio: 'ignore', detached: true });
  child.once('error', () => input.complain('No browser could be started; open the address yourself.'));
  child.unref();
}
