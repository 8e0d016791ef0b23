// One connection to an MCP server, in the only file that uses the MCP SDK. Servers belong to third
// parties: sizes are bounded, and of content other than text only its type and URI are passed on.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { pause } from '../../../../kernel/async.ts';
import type { Clock } from '../../../../kernel/clock.ts';
import { prepareCommand } from '../../../processes/index.ts';
import type { ProgramRunner } from '../workspace/program-runner.ts';
import type { McpServer } from '../../definition/mcp-server.ts';
import { boundedFetch } from './bounded-fetch.ts';

export interface McpTool {
  name: string;
  title?: string;
  description?: string;
  inputSchema: Readonly<Record<string, unknown>>;
  /** Whether the server declares the tool read-only. */
  readOnly: boolean;
}

export interface McpAnswer {
  isError: boolean;
  /** All text content, joined by newlines. */
  text: string;
  content: object[];
  structured?: object;
}

export interface McpConnection {
  tools(): Promise<McpTool[]>;
  call(
    tool: string,
    input: Readonly<Record<string, unknown>>,
    options: { signal: AbortSignal; timeoutMs: number },
  ): Promise<McpAnswer>;
  /** Sets the one listener; its errors are dropped, since the next change calls it again. */
  onToolsChanged(listener: () => Promise<void>): void;
  /** Resolves when the connection has ended, from either side. */
  closed: Promise<void>;
  /** Closes the connection; a server that is a child process exits with its descendants. */
  close(): Promise<void>;
}

export interface McpConnectOptions {
  folder: string;
  programs: ProgramRunner;
  timeoutMs: number;
  signal: AbortSignal;
  fetch: typeof fetch;
  clock: Clock;
}

const maxPages = 20;
const maxTools = 256;
const version = '1';
// Pause between two listings of changed tools.
const listPauseMs = 1_000;
// Replaces the SDK's validator of results (Ajv), which would run patterns and references of a
// third party's schema in this process. Besides, one invalid schema would fail the whole list of tools.
const noValidation = {
  getValidator: () => (input: unknown) => ({
    valid: true as const,
    data: input as never,
    errorMessage: undefined,
  }),
};

/**
 * Rejects with the error of the SDK or of starting the program, after all resources of the connection
 * are released.
 */
export async function connectMcp(server: McpServer, options: McpConnectOptions): Promise<McpConnection> {
  const { signal, timeoutMs, clock } = options;
  const program = await prepareProgram(server, options);
  const client = new Client({ name: 'townhall', version }, { jsonSchemaValidator: noValidation });
  const closure = Promise.withResolvers<void>();
  client.onclose = () => closure.resolve();
  // An unparsable message is ignored; its call times out or fails.
  client.onerror = () => {};
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= (async () => {
      await client.close().catch(() => {});
      await program?.end(clock);
      closure.resolve();
    })();
    return closing;
  };
  try {
    const transport = createTransport(server, program, options);
    await withRequestSignal(signal, (requestSignal) =>
      client.connect(transport, { timeout: timeoutMs, signal: requestSignal }),
    );
  } catch (error) {
    await close();
    throw error;
  }
  return {
    closed: closure.promise,
    close,
    tools: () => listTools(client, options),
    call: (tool, input, callOptions) => callTool(client, { tool, input }, callOptions),
    onToolsChanged(listener) {
      const scheduleListing = coalesce(listener, { pauseMs: listPauseMs, signal, clock });
      client.setNotificationHandler(ToolListChangedNotificationSchema, scheduleListing);
    },
  };
}

async function listTools(
  client: Client,
  { signal, timeoutMs }: Pick<McpConnectOptions, 'signal' | 'timeoutMs'>,
): Promise<McpTool[]> {
  const tools: McpTool[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < maxPages && tools.length < maxTools; page += 1) {
    const answer = await withRequestSignal(signal, (requestSignal) =>
      client.listTools(cursor === undefined ? {} : { cursor }, { timeout: timeoutMs, signal: requestSignal }),
    );
    for (const { name, title, description, inputSchema, annotations } of answer.tools) {
      tools.push({
        name,
        ...(title === undefined ? {} : { title }),
        ...(description === undefined ? {} : { description }),
        inputSchema,
        readOnly: annotations?.readOnlyHint === true,
      });
    }
    cursor = answer.nextCursor;
    if (cursor === undefined) break;
  }
  return tools.slice(0, maxTools);
}

async function callTool(
  client: Client,
  { tool, input }: { tool: string; input: Readonly<Record<string, unknown>> },
  { signal, timeoutMs }: { signal: AbortSignal; timeoutMs: number },
): Promise<McpAnswer> {
  const answer = await withRequestSignal(signal, (requestSignal) =>
    client.callTool({ name: tool, arguments: input }, undefined, {
      signal: requestSignal,
      timeout: timeoutMs,
    }),
  );
  const content = (Array.isArray(answer.content) ? answer.content : []).map(toContent);
  const text = content.flatMap((part) => ('text' in part ? [part.text] : [])).join('\n');
  const { structuredContent } = answer;
  return {
    isError: answer.isError === true,
    text,
    content,
    ...(typeof structuredContent === 'object' && structuredContent !== null
      ? { structured: structuredContent }
      : {}),
  };
}

/** Runs the work one call at a time; calls while it runs share one more run, after a pause. */
function coalesce(
  work: () => Promise<void>,
  { pauseMs, signal, clock }: { pauseMs: number; signal: AbortSignal; clock: Clock },
): () => void {
  let isRunning = false;
  let isDue = false;
  const run = async (): Promise<void> => {
    isRunning = true;
    while (isDue && !signal.aborted) {
      isDue = false;
      await work().catch(() => {});
      await pause(pauseMs, { clock, signal });
    }
    isRunning = false;
  };
  return () => {
    isDue = true;
    if (!isRunning) void run();
  };
}

// The SDK sends `notifications/cancelled` when the signal of a request is aborted, even
// after its answer. This signal follows the caller's signal only until the work has ended.
async function withRequestSignal<T>(
  callerSignal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  callerSignal.throwIfAborted();
  const request = new AbortController();
  const completion = new AbortController();
  callerSignal.addEventListener('abort', () => request.abort(callerSignal.reason), {
    once: true,
    signal: completion.signal,
  });
  try {
    return await work(request.signal);
  } finally {
    completion.abort();
  }
}

type PreparedCommand = ReturnType<typeof prepareCommand> & { folder: string };

async function prepareProgram(
  server: McpServer,
  { folder, programs }: McpConnectOptions,
): Promise<PreparedCommand | null> {
  if (!('command' in server)) return null;
  const program = await programs.prepare({
    command: [server.command, ...(server.args ?? [])],
    folder: server.cwd ?? folder,
    ownEnv: server.env,
    settings: server.sandbox,
  });
  return { ...prepareCommand(program.command, program), folder: program.folder };
}

function createTransport(
  server: McpServer,
  program: PreparedCommand | null,
  options: McpConnectOptions,
): Transport {
  if ('url' in server)
    return new StreamableHTTPClientTransport(new URL(server.url), {
      fetch: boundedFetch(options.fetch),
      ...(server.headers ? { requestInit: { headers: server.headers } } : {}),
    }) as Transport;
  // A server that is a command has been prepared as a program; the defaults only satisfy the types.
  const [command = server.command, ...args] = program?.command ?? [];
  return new StdioClientTransport({
    command,
    args,
    cwd: program?.folder ?? options.folder,
    env: program?.env ?? {},
    stderr: 'ignore',
  });
}

type SdkContent = {
  type: string;
  text?: unknown;
  mimeType?: unknown;
  uri?: unknown;
  name?: unknown;
  resource?: { uri?: unknown; text?: unknown };
};

function toContent(
  part: SdkContent,
): { type: 'text'; text: string } | { type: string; mimeType?: string; uri?: string } {
  if (part.type === 'text') return { type: 'text', text: String(part.text) };
  if (part.type === 'resource' && typeof part.resource?.text === 'string')
    return { type: 'text', text: part.resource.text };
  const uri = part.uri ?? part.resource?.uri;
  return {
    type: String(part.type),
    ...(typeof part.mimeType === 'string' ? { mimeType: part.mimeType } : {}),
    ...(typeof uri === 'string' ? { uri } : {}),
  };
}
