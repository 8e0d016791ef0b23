// One connection to an MCP server, and the only file that knows the MCP SDK. What a server sends is material: sizes are
// bounded, and of what is no text only its kind is passed on.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import type { Clock } from '../../../kernel/clock.ts';
import { markedProgram } from '../../programs/index.ts';
import type { McpServer } from '../load.ts';

export interface McpTool {
  name: string;
  title?: string;
  description?: string;
  inputSchema: Readonly<Record<string, unknown>>;
  /** As the server declares it. */
  readOnly: boolean;
}

export interface McpAnswer {
  isError: boolean;
  /** All texts of the answer. */
  text: string;
  content: object[];
  structured?: object;
}

export interface McpConnection {
  tools(): Promise<McpTool[]>;
  call(tool: string, input: Readonly<Record<string, unknown>>, options: { signal: AbortSignal; timeoutMs: number }): Promise<McpAnswer>;
  /** At most one listener; what it throws is dropped, the next change brings it again. */
  onToolsChanged(listener: () => Promise<void>): void;
  /** Resolves when the server has gone. */
  closed: Promise<void>;
  /** Ends the server, where it is a program of ours, with all that it has started. */
  close(): Promise<void>;
}

export interface McpConnectNeeds {
  folder: string;
  env: Readonly<Record<string, string>>;
  timeoutMs: number;
  signal: AbortSignal;
  clock: Clock;
}

const mostPages = 20;
const mostTools = 256;
const version = '1';

/** Throws whatever kept it from the server; nothing of it is left then. */
export async function connectMcp(server: McpServer, needs: McpConnectNeeds): Promise<McpConnection> {
  const program = 'command' in server ? markedProgram([server.command, ...(server.args ?? [])], { folder: server.cwd ?? needs.folder, env: { ...needs.env, ...server.env } }) : null;
  const client = new Client({ name: 'townhall', version });
  const closed = Promise.withResolvers<void>();
  client.onclose = () => closed.resolve();
  // A message that cannot be read is the server's fault; the call it belonged to is late or fails.
  client.onerror = () => {};
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= (async () => {
      await client.close().catch(() => {});
      await program?.end(needs.clock);
      closed.resolve();
    })();
    return closing;
  };
  try {
    await whilePending(needs.signal, (signal) => client.connect(transportOf(server, needs, program), { timeout: needs.timeoutMs, signal }));
  } catch (error) {
    await close();
    throw error;
  }
  return {
    closed: closed.promise,
    close,
    async tools() {
      const tools: McpTool[] = [];
      let cursor: string | undefined;
      for (let page = 0; page < mostPages && tools.length < mostTools; page += 1) {
        const answer = await whilePending(needs.signal, (signal) => client.listTools(cursor === undefined ? {} : { cursor }, { timeout: needs.timeoutMs, signal }));
        for (const { name, title, description, inputSchema, annotations } of answer.tools) {
          tools.push({ name, ...(title === undefined ? {} : { title }), ...(description === undefined ? {} : { description }), inputSchema, readOnly: annotations?.readOnlyHint === true });
        }
        cursor = answer.nextCursor;
        if (cursor === undefined) break;
      }
      return tools.slice(0, mostTools);
    },
    async call(tool, input, { signal: outer, timeoutMs }) {
      const answer = await whilePending(outer, (signal) => client.callTool({ name: tool, arguments: input }, undefined, { signal, timeout: timeoutMs, maxTotalTimeout: timeoutMs, resetTimeoutOnProgress: true }));
      const content = (Array.isArray(answer.content) ? answer.content : []).map(shown);
      const text = content.flatMap((part) => ('text' in part ? [part.text] : [])).join('\n');
      const structured = answer.structuredContent;
      return { isError: answer.isError === true, text, content, ...(typeof structured === 'object' && structured !== null ? { structured } : {}) };
    },
    onToolsChanged(listener) {
      client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
        listener().catch(() => {});
      });
    },
  };
}

// The SDK sends `notifications/cancelled` whenever the signal of a request is aborted, also after its answer. This signal
// follows the outer one only until the work has ended.
async function whilePending<T>(outer: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  outer.throwIfAborted();
  const request = new AbortController();
  const ended = new AbortController();
  outer.addEventListener('abort', () => request.abort(outer.reason), { once: true, signal: ended.signal });
  try {
    return await work(request.signal);
  } finally {
    ended.abort();
  }
}

function transportOf(server: McpServer, needs: McpConnectNeeds, program: { command: readonly string[]; env: Record<string, string> } | null): Transport {
  if ('url' in server) return new StreamableHTTPClientTransport(new URL(server.url), server.headers ? { requestInit: { headers: server.headers } } : {}) as Transport;
  const [command = server.command, ...args] = program?.command ?? [];
  return new StdioClientTransport({ command, args, cwd: server.cwd ?? needs.folder, env: program?.env ?? {}, stderr: 'ignore' });
}

type Part = { type: string; text?: unknown; mimeType?: unknown; uri?: unknown; name?: unknown; resource?: { uri?: unknown; text?: unknown } };

function shown(part: Part): { type: 'text'; text: string } | { type: string; mimeType?: string; uri?: string } {
  if (part.type === 'text') return { type: 'text', text: String(part.text) };
  if (part.type === 'resource' && typeof part.resource?.text === 'string') return { type: 'text', text: part.resource.text };
  const uri = part.uri ?? part.resource?.uri;
  return { type: String(part.type), ...(typeof part.mimeType === 'string' ? { mimeType: part.mimeType } : {}), ...(typeof uri === 'string' ? { uri } : {}) };
}
