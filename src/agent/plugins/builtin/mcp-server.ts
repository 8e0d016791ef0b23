// Keeps one MCP server connected: connects, lists its tools, and connects again with a growing back-off after it has gone.
import { pause } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { McpServer } from '../definition/mcp-server.ts';
import type { McpConnection, McpTool } from './mcp-connection.ts';

export interface ConnectedServer {
  readonly name: string;
  /** The tools of the last connection; they stay while the server is away. */
  tools(): readonly McpTool[];
  connection(): McpConnection | null;
  /** Why the server cannot be used now; null while it is connected. */
  reason(): string | null;
  /** Connects until `signal` is aborted; `onTools` is called whenever the tools were listed. Never rejects. */
  run(onTools: () => void): Promise<void>;
  /** Closes the present connection. */
  close(): Promise<void>;
}

type State = { phase: 'away'; reason: string } | { phase: 'connected'; connection: McpConnection };

const connectTimeoutMs = 30_000;
const firstBackOffMs = 1_000;
const maxBackOffMs = 60_000;

interface ServerOptions {
  workspace: string;
  env: Readonly<Record<string, string>>;
  signal: AbortSignal;
  fetch: typeof fetch;
  clock: Clock;
  log: Log;
}

export function createServer(name: string, config: McpServer, options: ServerOptions): ConnectedServer {
  const { signal, fetch, clock, log, env, workspace } = options;
  let tools: readonly McpTool[] = [];
  let state: State = { phase: 'away', reason: `The server "${name}" is not connected yet.` };
  let backOffMs = firstBackOffMs;

  async function connect(): Promise<McpConnection> {
    // The SDK takes a while to load, and most agents have no MCP server.
    const { connectMcp } = await import('./mcp-connection.ts');
    return connectMcp(config, { folder: workspace, env, timeoutMs: connectTimeoutMs, signal, fetch, clock });
  }

  /** Resolves when the server has gone; rejects when it cannot be reached or its tools cannot be listed. */
  async function runConnection(onTools: () => void): Promise<void> {
    const connection = await connect();
    try {
      const listTools = async (): Promise<void> => {
        tools = await connection.tools();
        state = { phase: 'connected', connection };
        onTools();
      };
      await listTools();
      backOffMs = firstBackOffMs;
      connection.onToolsChanged(listTools);
      await connection.closed;
    } finally {
      state = { phase: 'away', reason: `The server "${name}" has ended; it is connected again.` };
      await connection.close();
    }
  }

  return {
    name,
    tools: () => tools,
    connection: () => (state.phase === 'connected' ? state.connection : null),
    reason: () => (state.phase === 'connected' ? null : state.reason),
    async run(onTools) {
      while (!signal.aborted) {
        try {
          await runConnection(onTools);
        } catch (error) {
          if (signal.aborted) return;
          state = { phase: 'away', reason: `The server "${name}" cannot be reached.` };
          log.warn({ err: error, server: name }, 'an MCP server cannot be reached');
        }
        await pause(backOffMs, { clock, signal });
        backOffMs = Math.min(backOffMs * 2, maxBackOffMs);
      }
    },
    async close() {
      if (state.phase === 'connected') await state.connection.close();
    },
  };
}
