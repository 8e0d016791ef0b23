// The content of the gateway's page `/`: links to everything, and how to get a token.
import type { FrontPage, FrontPageHint } from '../kernel/http/pages/front-page.ts';

/** Facts that only the local edition has: its agent and console, and the file with the local user's token. */
export interface LocalEditionLinks {
  /** Undefined until the agent listens. */
  agentUrl?: string | undefined;
  /** Undefined until the console listens. */
  consoleUrl: string | undefined;
  tokenFile: string;
}

export function frontPage({
  version,
  url,
  hasPortal,
  local,
}: {
  version: string;
  /** The address of this server, for the command to paste. */
  url: string;
  hasPortal: boolean;
  local: LocalEditionLinks | undefined;
}): FrontPage {
  const consoleUrl = local?.consoleUrl;
  return {
    name: 'Townhall gateway',
    summary: "One API between your product's users and the models: accounts, credits and one catalog.",
    version,
    links: [
      ...(consoleUrl === undefined
        ? []
        : [{ rel: 'console', title: 'Console', href: consoleUrl, note: 'Talk to the agent in the browser' }]),
      ...(hasPortal
        ? [
            {
              rel: 'docs',
              title: 'Documentation',
              href: '/docs/',
              note: 'Guides, operations and error codes',
            },
          ]
        : []),
      { rel: 'openapi', title: 'OpenAPI', href: '/openapi.json', note: 'The contract, for tools' },
      { rel: 'ready', title: 'Readiness', href: '/ready', note: 'Whether this server accepts calls now' },
    ],
    token: { ...tokenHint(url, local), ...(hasPortal ? { page: tokenGuide } : {}) },
  };
}

const tokenGuide = { title: 'Login and tokens', href: '/docs/guides/login-and-tokens.html' };

function tokenHint(url: string, local: LocalEditionLinks | undefined): FrontPageHint {
  if (local === undefined)
    return {
      text: 'Log in through your product, or let its backend or an administrator issue a user token. Send it as "Authorization: Bearer …".',
    };
  return {
    text: `The local user's token is in ${local.tokenFile}, in the folder where you started Townhall. Call a model with it:`,
    command: [
      `curl ${url}/v1/ai/text \\`,
      `  -H "Authorization: Bearer $(cat ${local.tokenFile})" \\`,
      "  -H 'Content-Type: application/json' \\",
      `  -d '{"model": "local/guide", "prompt": "How do I add a model provider?"}'`,
    ].join('\n'),
  };
}
