// Keeps one MCP server connected: connects, lists its tools, and reconnects with exponential back-off.
import { createSerializer, pause } from '../../../../kernel/async.ts';
import type { Clock } from '../../../../kernel/clock.ts';
import type { Log } from '../../../../kernel/log.ts';
import type { McpServer } from '../../definition/mcp-server.ts';
import type { McpConnection, McpTool } from './connection.ts';
import type { ProgramRunner } from '../workspace/program-runner.ts';

export interface ConnectedServer {
  readonly name: string;
  /** The tools of the last connection; they are kept while the server is disconnected. */
  tools(): readonly McpTool[];
  connection(): McpConnection | null;
  /** Why the server is unavailable; null while it is connected. */
  reason(): string | null;
  /**
   * Keeps connecting until `signal` is aborted; calls `onTools` after each listing. Never rejects.
   */
  run(onTools: () => void): Promise<void>;
  /** Closes the current connection. */
  close(): Promise<void>;
}

type State = { phase: 'disconnected'; reason: string } | { phase: 'connected'; connection: McpConnection };

const connectTimeoutMs = 30_000;
const firstBackOffMs = 1_000;
const maxBackOffMs = 60_000;

export interface ServerOptions {
  workspace: string;
  programs: ProgramRunner;
  signal: AbortSignal;
  fetch: typeof fetch;
  clock: Clock;
  log: Log;
}

interface Server {
  readonly name: string;
  readonly config: McpServer;
  readonly options: ServerOptions;
  tools: readonly McpTool[];
  state: State;
  backOffMs: number;
}

export function createServer(name: string, config: McpServer, options: ServerOptions): ConnectedServer {
  const server: Server = {
    name,
    config,
    options,
    tools: [],
    state: { phase: 'disconnected', reason: `The server "${name}" is not connected yet.` },
    backOffMs: firstBackOffMs,
  };
  return {
    name,
    tools: () => server.tools,
    connection: () => (server.state.phase === 'connected' ? server.state.connection : null),
    reason: () => (server.state.phase === 'connected' ? null : server.state.reason),
    run: (onTools) => keepConnected(server, onTools),
    async close() {
      if (server.state.phase === 'connected') await server.state.connection.close();
    },
  };
}

async function keepConnected(server: Server, onTools: () => void): Promise<void> {
  const { name, options } = server;
  const { signal, clock, log } = options;
  while (!signal.aborted) {
    try {
      await runConnection(server, onTools);
    } catch (error) {
      if (signal.aborted) return;
      server.state = { phase: 'disconnected', reason: `The server "${name}" cannot be reached.` };
      log.warn({ err: error, server: name }, 'an MCP server cannot be reached');
    }
    await pause(server.backOffMs, { clock, signal });
    server.backOffMs = Math.min(server.backOffMs * 2, maxBackOffMs);
  }
}

/**
 * Resolves when the connection has ended; rejects when the server is unreachable or its tools
 * cannot be listed.
 */
async function runConnection(server: Server, onTools: () => void): Promise<void> {
  const connection = await connect(server);
  try {
    const serialize = createSerializer();
    const listTools = () =>
      serialize(async () => {
        server.tools = await connection.tools();
        server.state = { phase: 'connected', connection };
        onTools();
      });
    // Listen first: the tools may change while they are listed.
    connection.onToolsChanged(listTools);
    await listTools();
    server.backOffMs = firstBackOffMs;
    await connection.closed;
  } finally {
    const reason = `The connection to the server "${server.name}" has ended; reconnecting.`;
    server.state = { phase: 'disconnected', reason };
    await connection.close();
  }
}

async function connect({ config, options }: Server): Promise<McpConnection> {
  const { workspace, programs, signal, fetch, clock } = options;
  // The SDK takes a while to load, and most agents have no MCP server.
  const { connectMcp } = await import('./connection.ts');
  const timeoutMs = connectTimeoutMs;
  return connectMcp(config, { folder: workspace, programs, timeoutMs, signal, fetch, clock });
}
