// The screen of `townhall start`: what runs where, a link to the console, and one call to paste.
import { styleText } from 'node:util';

/** The content of the screen. All lines but the console's link fit into 80 columns with short paths. */
export interface Welcome {
  version: string;
  gatewayUrl: string;
  agentUrl: string;
  /** Opens the console signed in, once. */
  consoleUrl: string;
  /** Whether the Enter key shows another link. */
  isInteractive: boolean;
  /** The files with the user token and the agent's token, as paths for the shell. */
  userTokenFile: string;
  agentTokenFile: string;
  /** The administrator's credentials; only the start that created them has them. */
  administrator: { adminId: string; password: string } | undefined;
  /** How to run `townhall` here. */
  program: string;
  /** Warnings, such as that of a login without credentials that other machines reach. */
  notices: readonly string[];
}

/** The lines of the screen. Colours appear only where standard output is a terminal that has them. */
export function welcome(screen: Welcome): string[] {
  const { gatewayUrl, agentUrl, consoleUrl, administrator, program, notices } = screen;
  const admin =
    administrator === undefined
      ? `a new password: ${program} admin reset`
      : `${administrator.adminId}, password ${administrator.password} (shown only now)`;
  const linkHint = screen.isInteractive ? '; Enter shows another link' : '';
  return [
    '',
    styleText('bold', `Townhall ${screen.version} is running. Ctrl-C ends it.`),
    '',
    `${styleText('bold', 'Open the console, signed in')}${linkHint}:`,
    `  ${styleText('cyan', consoleUrl)}`,
    `  gateway  ${gatewayUrl}`,
    `  agent    ${agentUrl}`,
    `  docs     ${gatewayUrl}/docs`,
    `  tokens   ${screen.userTokenFile}, ${screen.agentTokenFile}`,
    `  admin    ${admin}`,
    styleText('bold', 'Call a model:'),
    `  curl ${gatewayUrl}/v1/ai/text -H 'Content-Type: application/json' \\`,
    `    -H "Authorization: Bearer $(cat ${screen.userTokenFile})" \\`,
    `    -d '{"model": "local/guide", "prompt": "How do I add a model provider?"}'`,
    ...notices.flatMap((notice) => ['', styleText('yellow', notice)]),
  ];
}
