// Keeps one MCP server connected: connects, lists its tools, and reconnects with a growing
// back-off.
import { pause } from '../../../../kernel/async.ts';
import type { Clock } from '../../../../kernel/clock.ts';
import type { Log } from '../../../../kernel/log.ts';
import type { McpServer } from '../../definition/mcp-server.ts';
import type { McpConnection, McpTool } from './connection.ts';
import type { ProgramRunner } from '../workspace/program-runner.ts';

export interface ConnectedServer {
  readonly name: string;
  /** The tools of the last connection; they are kept while the server is away. */
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

type State = { phase: 'away'; reason: string } | { phase: 'connected'; connection: McpConnection };

const connectTimeoutMs = 30_000;
const firstBackOffMs = 1_000;
const maxBackOffMs = 60_000;

interface ServerOptions {
  workspace: string;
  programs: ProgramRunner;
  signal: AbortSignal;
  fetch: typeof fetch;
  clock: Clock;
  log: Log;
}

export function createServer(name: string, config: McpServer, options: ServerOptions): ConnectedServer {
  const { signal, fetch, clock, log, programs, workspace } = options;
  let tools: readonly McpTool[] = [];
  let state: State = { phase: 'away', reason: `The server "${name}" is not connected yet.` };
  let backOffMs = firstBackOffMs;

  async function connect(): Promise<McpConnection> {
    // The SDK takes a while to load, and most agents have no MCP server.
    const { connectMcp } = await import('./connection.ts');
    return connectMcp(config, {
      folder: workspace,
      programs,
      timeoutMs: connectTimeoutMs,
      signal,
      fetch,
      clock,
    });
  }

  /**
   * Resolves when the connection has ended; rejects when the server is unreachable or its tools
   * cannot be listed.
   */
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
      state = { phase: 'away', reason: `The connection to the server "${name}" has ended; reconnecting.` };
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
