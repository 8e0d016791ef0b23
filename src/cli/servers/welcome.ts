// The screen of `townhall start`: what runs where, a link to the console, and one call to paste.
import { styleText } from 'node:util';
import { wrapText } from '../command-line/wrap-text.ts';

/** The content of the screen. All lines are shorter than 80 columns with short paths. */
export interface Welcome {
  version: string;
  gatewayUrl: string;
  agentUrl: string;
  /** A link that opens the console signed in; it works once. */
  consoleUrl: string;
  /** Whether the Enter key shows another link. */
  isInteractive: boolean;
  /** The files with the user token and the agent's token, as paths for the shell. */
  userTokenFile: string;
  agentTokenFile: string;
  /** The administrator's credentials; only the start that created them has them. */
  administrator: { adminId: string; password: string } | undefined;
  /** How the agent runs commands; `off` when there is no sandbox. */
  shell: 'sandboxed' | 'unsafe' | 'off';
  /** How to run `townhall` here. */
  program: string;
  /** A warning, such as that other machines can reach a login without credentials. */
  notice: string | undefined;
}

const noticeWidth = 77;

/** The lines of the screen. Colours appear only if standard output is a terminal that supports them. */
export function welcome(screen: Welcome): string[] {
  const { gatewayUrl, agentUrl, consoleUrl, userTokenFile, notice } = screen;
  const keys = screen.isInteractive ? 'Enter shows a new console link, Ctrl-C ends it.' : 'Ctrl-C ends it.';
  const notices = notice === undefined ? [] : ['', ...wrapText(notice, noticeWidth)];
  return [
    `${styleText('bold', `Townhall ${screen.version} is running.`)} ${keys}`,
    '',
    consoleRow(consoleUrl),
    row('gateway', gatewayUrl),
    row('agent', `${agentUrl}${describeShell(screen)}`),
    row('docs', `${gatewayUrl}/docs`),
    row('tokens', `${userTokenFile}, ${screen.agentTokenFile}`),
    row('admin', describeAdministrator(screen)),
    '',
    `  curl ${gatewayUrl}/v1/ai/text -H 'Content-Type: application/json' \\`,
    `    -H "Authorization: Bearer $(cat ${userTokenFile})" \\`,
    `    -d '{"model": "local/guide", "prompt": "How do I add a model provider?"}'`,
    ...notices.map((line) => (line === '' ? line : `  ${styleText('yellow', line)}`)),
  ];
}

/** The line with the console link. Pressing Enter prints it again with a new link. */
export function consoleRow(url: string): string {
  return row('console', `${styleText(['bold', 'cyan'], url)} (signed in)`);
}

function row(label: string, text: string): string {
  return `  ${styleText('dim', label.padEnd(7))}  ${text}`;
}

function describeShell({ shell, program }: Welcome): string {
  if (shell === 'sandboxed') return '';
  const hint = shell === 'off' ? `shell off: ${program} doctor` : 'runs commands without a sandbox';
  return ` (${styleText('yellow', hint)})`;
}

function describeAdministrator({ administrator, program }: Welcome): string {
  if (administrator === undefined) return `new password: ${program} admin reset`;
  const { adminId, password } = administrator;
  return `${adminId}, password ${styleText('bold', password)} (shown only now)`;
}
