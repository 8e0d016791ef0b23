// The plugin `mcp`: the tools of configured MCP servers as actions. A server is looked after one by one: one that is
// away, slow or broken is a reason in the plugin's availability and costs nothing but its own tools.
import { createHash } from 'node:crypto';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { JsonSchema } from '../../../kernel/contract/schema.ts';
import type { Redactor } from '../../../kernel/secrets/secret.ts';
import type { McpApproval, McpServer } from '../plugin-file.ts';
import { definePlugin, type Action, type Plugin } from '../plugin.ts';
import { isSoundSchema, plainCheck } from './foreign-schema.ts';
import type { McpConnection, McpTool } from './mcp-connection.ts';

export interface McpNeeds {
  servers: ReadonlyMap<string, McpServer>;
  workspace: string;
  /** What servers that are programs get beside their own `env`. */
  env: Readonly<Record<string, string>>;
  /** Learns the secrets of the servers' configuration. */
  redactor: Pick<Redactor, 'hold'>;
  fetch: typeof fetch;
  clock: Clock;
  log: Log;
}

interface ServerState {
  name: string;
  connection: McpConnection | null;
  tools: readonly McpTool[];
  reason: string | null;
}

const connectMs = 30_000;
// The agent's own start does not wait for a slow server longer than this; its tools come later.
const startWaitMs = 5_000;
const callMs = 120_000;
const firstBackOffMs = 1_000;
const longestBackOffMs = 60_000;
const longestDescription = 4_096;
// `mcp_` and this are the longest name that a tool may have.
const longestAction = 60;
// Schemas go to the model with every step; beyond the gateway's limit for a request every run would fail.
const mostSchemaBytes = 64 * 1024;
const mostSchemaBytesOfServer = 1024 * 1024;

export function mcp(needs: McpNeeds): Plugin {
  const { clock, fetch, log } = needs;
  const enabled = [...needs.servers].filter(([, server]) => server.disabled !== true);
  const states: ServerState[] = enabled.map(([name]) => ({
    name,
    connection: null,
    tools: [],
    reason: `The server "${name}" is not connected yet.`,
  }));
  const stopping = new AbortController();
  const keepers: Promise<void>[] = [];
  /** Why tools of connected servers are left out. */
  let omissions: readonly string[] = [];
  for (const [, server] of enabled) for (const secret of secretsOf(server)) needs.redactor.hold(secret);

  function actionsOfAll(): Record<string, Action> {
    const actions: Record<string, Action> = {};
    const omitted: string[] = [];
    for (const state of states) {
      const approval = needs.servers.get(state.name)?.approval ?? 'writes';
      let schemaBytes = 0;
      for (const tool of state.tools) {
        const what = `The tool ${JSON.stringify(tool.name.slice(0, 100))} of the server "${state.name}" is left out`;
        const bytes = Buffer.byteLength(JSON.stringify(tool.inputSchema));
        if (bytes > mostSchemaBytes || schemaBytes + bytes > mostSchemaBytesOfServer) {
          omitted.push(
            `${what}: its input schema has more than ${mostSchemaBytes / 1024} KiB, or those of the server have more than ${mostSchemaBytesOfServer / 1024} KiB.`,
          );
          continue;
        }
        schemaBytes += bytes;
        const input = inputSchema(tool);
        if (input === null) {
          log.warn(
            { server: state.name, tool: tool.name },
            'a tool of an MCP server has an input schema that is none; it is left out',
          );
          continue;
        }
        const name = actionName(state.name, tool.name);
        const owner = ownerOf(name, needs.servers.keys());
        if (owner !== state.name)
          omitted.push(`${what}: its name "${name}" belongs to the server "${owner}".`);
        else if (Object.hasOwn(actions, name))
          omitted.push(`${what}: another tool of the server has the name "${name}" already.`);
        else actions[name] = toAction(state, tool, input, approval);
      }
    }
    for (const reason of omitted.filter((each) => !omissions.includes(each)))
      log.warn({ reason }, 'a tool of an MCP server is left out');
    omissions = omitted;
    return actions;
  }

  // Keeps one server connected until the plugin stops.
  async function keep(state: ServerState, server: McpServer, changed: () => void): Promise<void> {
    for (
      let waitMs = firstBackOffMs;
      !stopping.signal.aborted;
      waitMs = Math.min(waitMs * 2, longestBackOffMs)
    ) {
      try {
        // The SDK takes a while to load, and most agents have no server.
        const { connectMcp } = await import('./mcp-connection.ts');
        const connection = await connectMcp(server, {
          folder: needs.workspace,
          env: needs.env,
          timeoutMs: connectMs,
          signal: stopping.signal,
          fetch,
          clock,
        });
        state.connection = connection;
        try {
          state.tools = await connection.tools();
          state.reason = null;
          waitMs = firstBackOffMs;
          changed();
          connection.onToolsChanged(async () => {
            state.tools = await connection.tools();
            changed();
          });
          await connection.closed;
          state.reason = `The server "${state.name}" has ended; it is connected again.`;
        } finally {
          state.connection = null;
          await connection.close();
        }
      } catch (error) {
        if (stopping.signal.aborted) return;
        state.reason = `The server "${state.name}" cannot be reached.`;
        log.warn({ err: error, server: state.name }, 'an MCP server cannot be reached');
      }
      await clock.sleep(waitMs, stopping.signal).catch(() => {});
    }
  }

  return definePlugin({
    name: 'mcp',
    title: 'MCP servers',
    description: 'Offers the tools of the configured MCP servers.',
    availability() {
      const reasons = states.flatMap(({ reason }) => (reason === null ? [] : [reason]));
      if (states.length === 0) return { available: false, reasons: ['No MCP server is configured.'] };
      return { available: reasons.length < states.length, reasons: [...reasons, ...omissions] };
    },
    actions: {},
    async start({ offer }) {
      const firsts = states.map((state) => {
        const first = Promise.withResolvers<void>();
        const server = needs.servers.get(state.name) as McpServer;
        const changed = (): void => {
          offer(actionsOfAll());
          first.resolve();
        };
        keepers.push(keep(state, server, changed).finally(() => first.resolve()));
        return first.promise;
      });
      const over = new AbortController();
      await Promise.race([Promise.all(firsts), clock.sleep(startWaitMs, over.signal).catch(() => {})]);
      over.abort();
    },
    async stop() {
      stopping.abort();
      await Promise.all(states.map(async ({ connection }) => connection?.close()));
      await Promise.all(keepers);
    },
  });
}

function toAction(state: ServerState, tool: McpTool, input: JsonSchema, approval: McpApproval): Action {
  return {
    description: `${tool.description ?? tool.title ?? tool.name} (of the MCP server ${state.name})`.slice(
      0,
      longestDescription,
    ),
    api: true,
    command: true,
    input,
    check: plainCheck(input),
    // What a server says of its own tool is a hint; whoever trusts none of them sets the approval to `always`.
    needsApproval: approval === 'always' || (approval === 'writes' && !tool.readOnly),
    timeoutMs: callMs,
    async run(given: never, { signal, refuse }) {
      const { connection } = state;
      if (connection === null)
        throw new Problem(
          'conflict',
          'plugin_unavailable',
          state.reason ?? `The server "${state.name}" is not connected.`,
        );
      const { isError, text, content, structured } = await connection.call(tool.name, given, {
        signal,
        timeoutMs: callMs,
      });
      if (isError) refuse(text === '' ? 'The tool failed without a word.' : text);
      return structured ?? (content.length === 1 && text !== '' ? { text } : { content });
    },
  };
}

// Servers write older drafts than ours; what they use of them means the same here.
function inputSchema({ inputSchema: given }: McpTool): JsonSchema | null {
  const { $schema: _draft, ...schema }: Record<string, unknown> = { ...given, type: 'object' };
  return isSoundSchema(schema) ? schema : null;
}

/** Values of the configuration that open something: headers, variables named like a secret, and what the address carries. */
function secretsOf(server: McpServer): string[] {
  if ('command' in server)
    return Object.entries(server.env ?? {}).flatMap(([name, value]) =>
      /key|token|secret|pass|auth|credential/i.test(name) ? [value] : [],
    );
  const { password, searchParams } = new URL(server.url);
  return [...Object.values(server.headers ?? {}), ...searchParams.values(), decodeURIComponent(password)];
}

// The name of a tool must not depend on which servers are connected, or a call could reach another server than the one
// that was meant. A name that loses characters gets a digest of the whole one.
function actionName(server: string, tool: string): string {
  const plain =
    tool
      .toLowerCase()
      .replaceAll(/[^a-z0-9]+/g, '-')
      .replaceAll(/^-+|-+$/g, '') || 'tool';
  const name = `${server}-${plain}`;
  const isLossy = /[^\x20-\x7e]/.test(tool) || plain === 'tool' || name.length > longestAction;
  if (!isLossy || tool.toLowerCase() === 'tool') return name;
  const digest = createHash('sha256').update(tool).digest('hex').slice(0, 8);
  return `${name.slice(0, longestAction - digest.length - 1)}-${digest}`;
}

// The server `a` with the tool `b-c` and the server `a-b` with the tool `c` make one name: the longer server name has it.
function ownerOf(action: string, servers: Iterable<string>): string | undefined {
  return [...servers]
    .filter((server) => action.startsWith(`${server}-`))
    .sort((one, other) => other.length - one.length)[0];
}
