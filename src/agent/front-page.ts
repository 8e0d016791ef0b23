// The content of the agent's page `/`: links, and how to get a token.
import type { FrontPage } from '../kernel/http/pages/front-page.ts';

/** Facts that only the local edition has: its console, its portal and the file with the first token. */
export interface LocalAgentLinks {
  /** Undefined until the console listens. */
  consoleUrl: string | undefined;
  docsUrl: string;
  tokenFile: string;
}

export function frontPage({
  name,
  version,
  url,
  local,
}: {
  /** The name of this agent. */
  name: string;
  version: string;
  url: string;
  local: LocalAgentLinks | undefined;
}): FrontPage {
  return {
    name: 'Townhall agent',
    summary: `"${name}" executes instructions with tools and calls models through its gateway.`,
    version,
    links: [
      ...(local === undefined ? [] : localLinks(local)),
      { rel: 'openapi', title: 'OpenAPI', href: '/openapi.json', note: 'The contract, for tools' },
      { rel: 'health', title: 'Health', href: '/health', note: 'Whether this agent answers' },
    ],
    token:
      local === undefined
        ? {
            text:
              'The first token is in the file agent.token of the data folder (AGENT_DATA_DIR), ' +
              'or in the file that AGENT_TOKEN_FILE names.',
          }
        : localToken(local, url),
  };
}

function localLinks({ consoleUrl, docsUrl }: LocalAgentLinks): FrontPage['links'] {
  const docs = { title: 'Documentation', href: docsUrl, note: 'Guides, operations and error codes' };
  return [
    ...(consoleUrl === undefined
      ? []
      : [{ rel: 'console', title: 'Console', href: consoleUrl, note: 'Talk to this agent in the browser' }]),
    { rel: 'docs', ...docs },
  ];
}

function localToken({ tokenFile }: LocalAgentLinks, url: string): FrontPage['token'] {
  return {
    text: `The first token is in ${tokenFile}, in the folder where you started Townhall. Give the agent work with it:`,
    command: [
      `curl ${url}/api/execute \\`,
      `  -H "Authorization: Bearer $(cat ${tokenFile})" \\`,
      "  -H 'Content-Type: application/json' \\",
      `  -d '{"instructions": "How do I stream an answer?"}'`,
    ].join('\n'),
  };
}
