// The plugin `mcp`: the tools of configured MCP servers as actions. Each server is connected on its
// own; a server that is unreachable, slow or broken adds a reason to the plugin's availability and
// affects only its own tools.
import type { Clock } from '../../../../kernel/clock.ts';
import type { Log } from '../../../../kernel/log.ts';
import { decodePercent } from '../../../../kernel/percent-encoding.ts';
import type { Redactor } from '../../../../kernel/secrets/secret.ts';
import { settlesWithin } from '../../../../kernel/async.ts';
import type { McpServer } from '../../definition/mcp-server.ts';
import { definePlugin, type Action, type Plugin } from '../../definition/plugin.ts';
import { createServer, type ConnectedServer } from './server.ts';
import type { ProgramRunner } from '../workspace/program-runner.ts';
import { collectActions } from './tools.ts';

// The agent's start waits no longer than this for the servers; the tools of a slow server are added
// later.
const startWaitMs = 5_000;

export interface McpOptions {
  servers: ReadonlyMap<string, McpServer>;
  workspace: string;
  /** Starts servers that are programs. */
  programs: ProgramRunner;
  /** Redacts the secrets of the servers' configuration from the log. */
  redactor: Pick<Redactor, 'hold'>;
  fetch: typeof fetch;
  clock: Clock;
  log: Log;
}

export function mcp(options: McpOptions): Plugin {
  const { clock, log, redactor } = options;
  const stop = new AbortController();
  const enabledServers = [...options.servers].filter(([, config]) => config.disabled !== true);
  for (const [, config] of enabledServers) for (const secret of secretsOf(config)) redactor.hold(secret);
  const servers = enabledServers.map(([name, config]) =>
    createServer(name, config, { ...options, signal: stop.signal }),
  );
  let connectionRuns: readonly Promise<void>[] = [];
  /** Why tools of connected servers are not offered. */
  let dropReasons: readonly string[] = [];

  function actionsOfAll(): Record<string, Action> {
    const { actions, dropped } = collectActions(servers, options.servers);
    for (const { server, tool, reason } of dropped) {
      if (!dropReasons.includes(reason))
        log.warn({ server, tool, reason }, 'a tool of an MCP server is left out');
    }
    dropReasons = dropped.map(({ reason }) => reason);
    return actions;
  }

  return definePlugin({
    name: 'mcp',
    title: 'MCP servers',
    description: 'Offers the tools of the configured MCP servers.',
    availability() {
      const reasons = servers.flatMap((server) => server.reason() ?? []);
      if (servers.length === 0) return { available: false, reasons: ['No MCP server is configured.'] };
      return { available: reasons.length < servers.length, reasons: [...reasons, ...dropReasons] };
    },
    actions: {},
    async start({ offer }) {
      const starts = servers.map((server) => startServer(server, () => offer(actionsOfAll())));
      connectionRuns = starts.map(({ ended }) => ended);
      const allOffered = Promise.all(starts.map(({ firstOffer }) => firstOffer));
      await settlesWithin(allOffered, { ms: startWaitMs, clock });
    },
    async stop() {
      stop.abort();
      await Promise.all(servers.map((server) => server.close()));
      await Promise.all(connectionRuns);
    },
  });
}

/** `firstOffer` resolves after the first listing of the tools, or when the server ends without a listing. */
function startServer(
  server: ConnectedServer,
  offerTools: () => void,
): { ended: Promise<void>; firstOffer: Promise<void> } {
  const firstOffer = Promise.withResolvers<void>();
  const serverEnd = server.run(() => {
    offerTools();
    firstOffer.resolve();
  });
  return { ended: serverEnd.finally(() => firstOffer.resolve()), firstOffer: firstOffer.promise };
}

/** The values of headers, of variables named like a secret, and of the URL's query and password. */
function secretsOf(server: McpServer): string[] {
  if ('command' in server)
    return Object.entries(server.env ?? {}).flatMap(([name, value]) =>
      /key|token|secret|pass|auth|credential/i.test(name) ? [value] : [],
    );
  const { password, searchParams } = new URL(server.url);
  return [...Object.values(server.headers ?? {}), ...searchParams.values(), decodePercent(password)];
}
