// One connection to an MCP server, and the only file that knows the MCP SDK. What a server sends is material: sizes are
// bounded, and of what is no text only its kind is passed on.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import type { Clock } from '../../../kernel/clock.ts';
import { prepareCommand } from '../../processes/index.ts';
import type { McpServer } from '../plugin-file.ts';

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
  call(
    tool: string,
    input: Readonly<Record<string, unknown>>,
    options: { signal: AbortSignal; timeoutMs: number },
  ): Promise<McpAnswer>;
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
  fetch: typeof fetch;
  clock: Clock;
}

const mostPages = 20;
const mostTools = 256;
const version = '1';
// Of a JSON answer, or of one event of a stream; the SDK has the same bound for messages over pipes.
const mostAnswerBytes = 10 * 1024 * 1024;
// The SDK puts the text of a refusal into its error, and errors are logged.
const mostRefusalBytes = 2 * 1024;
// Between two listings of changed tools.
const listPauseMs = 1_000;
// Replaces the SDK's validator of results (Ajv). It would run patterns and references of a foreign schema in this
// process, and one schema that does not compile would fail the whole list of tools.
const noValidation = {
  getValidator: () => (input: unknown) => ({
    valid: true as const,
    data: input as never,
    errorMessage: undefined,
  }),
};

/** Throws whatever kept it from the server; nothing of it is left then. */
export async function connectMcp(server: McpServer, needs: McpConnectNeeds): Promise<McpConnection> {
  const program =
    'command' in server
      ? prepareCommand([server.command, ...(server.args ?? [])], {
          folder: server.cwd ?? needs.folder,
          env: { ...needs.env, ...server.env },
        })
      : null;
  const client = new Client({ name: 'townhall', version }, { jsonSchemaValidator: noValidation });
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
    await whilePending(needs.signal, (signal) =>
      client.connect(transportOf(server, needs, program), { timeout: needs.timeoutMs, signal }),
    );
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
        const answer = await whilePending(needs.signal, (signal) =>
          client.listTools(cursor === undefined ? {} : { cursor }, { timeout: needs.timeoutMs, signal }),
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
      return tools.slice(0, mostTools);
    },
    async call(tool, input, { signal: outer, timeoutMs }) {
      const answer = await whilePending(outer, (signal) =>
        client.callTool({ name: tool, arguments: input }, undefined, {
          signal,
          timeout: timeoutMs,
          maxTotalTimeout: timeoutMs,
          resetTimeoutOnProgress: true,
        }),
      );
      const content = (Array.isArray(answer.content) ? answer.content : []).map(shown);
      const text = content.flatMap((part) => ('text' in part ? [part.text] : [])).join('\n');
      const structured = answer.structuredContent;
      return {
        isError: answer.isError === true,
        text,
        content,
        ...(typeof structured === 'object' && structured !== null ? { structured } : {}),
      };
    },
    onToolsChanged(listener) {
      const changed = oneAtATime(listener, {
        pauseMs: listPauseMs,
        signal: needs.signal,
        clock: needs.clock,
      });
      client.setNotificationHandler(ToolListChangedNotificationSchema, changed);
    },
  };
}

/** Runs the work for any number of calls meanwhile once more, after a pause. */
function oneAtATime(
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
      await clock.sleep(pauseMs, signal).catch(() => {});
    }
    isRunning = false;
  };
  return () => {
    isDue = true;
    if (!isRunning) void run();
  };
}

/** A `fetch` whose answers fail, and close their connection, beyond a bound. */
async function fetchBounded(
  fetch: McpConnectNeeds['fetch'],
  url: string | URL,
  init?: RequestInit,
): Promise<Response> {
  const response = await fetch(url, init);
  if (response.body === null) return response;
  const isStream = /^\s*text\/event-stream\s*(?:;|$)/i.test(response.headers.get('content-type') ?? '');
  const body = response.body.pipeThrough(
    boundBytes(response.ok ? mostAnswerBytes : mostRefusalBytes, isStream),
  );
  const { status, statusText, headers } = response;
  return new Response(body, { status, statusText, headers });
}

// With `perEvent` an empty line begins the count anew.
function boundBytes(most: number, perEvent: boolean): TransformStream<Uint8Array, Uint8Array> {
  const [lineFeed, carriageReturn] = [10, 13];
  let count = 0;
  let lineLength = 0;
  let previous = 0;
  const countEvents = (chunk: Uint8Array): void => {
    for (const byte of chunk) {
      count += 1;
      const endsLine = byte === carriageReturn || (byte === lineFeed && previous !== carriageReturn);
      if (endsLine && lineLength === 0) count = 0;
      if (endsLine) lineLength = 0;
      else if (byte !== lineFeed) lineLength += 1;
      previous = byte;
    }
  };
  return new TransformStream({
    transform(chunk, controller) {
      if (perEvent) countEvents(chunk);
      else count += chunk.length;
      if (count > most) throw new Error(`The answer of the server is larger than ${most / 1024} KiB.`);
      controller.enqueue(chunk);
    },
  });
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

function transportOf(
  server: McpServer,
  needs: McpConnectNeeds,
  program: { command: readonly string[]; env: Record<string, string> } | null,
): Transport {
  if ('url' in server)
    return new StreamableHTTPClientTransport(new URL(server.url), {
      fetch: (url, init) => fetchBounded(needs.fetch, url, init),
      ...(server.headers ? { requestInit: { headers: server.headers } } : {}),
    }) as Transport;
  const [command = server.command, ...args] = program?.command ?? [];
  return new StdioClientTransport({
    command,
    args,
    cwd: server.cwd ?? needs.folder,
    env: program?.env ?? {},
    stderr: 'ignore',
  });
}

type Part = {
  type: string;
  text?: unknown;
  mimeType?: unknown;
  uri?: unknown;
  name?: unknown;
  resource?: { uri?: unknown; text?: unknown };
};

function shown(
  part: Part,
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
