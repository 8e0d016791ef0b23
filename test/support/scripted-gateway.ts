// A scripted gateway for cases that a real model cannot produce. It implements `/v1/ai/stream`, and
// `/v1/ai/models` once a test has set a catalog. The end-to-end test uses the real gateway.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { closeServer, listen, readBody } from './local-server.ts';

/** One answer: its stream parts, an HTTP error, or a function that writes the response. */
export type ScriptedAnswer =
  | { parts: object[] }
  | { status: number; error: Record<string, unknown>; headers?: Record<string, string> }
  | { respond(response: ServerResponse): Promise<void> };

export interface StreamRequest {
  model: string;
  prompt: { role: string; content: unknown }[];
  tools?: { name: string; description?: string; inputSchema: object }[];
  providerOptions?: Record<string, Record<string, unknown>>;
  authorization: string;
}

export interface ScriptedGateway {
  url: string;
  requests: StreamRequest[];
  /** The bodies of these requests, as sent. */
  bodies: string[];
  /** Sets the answer of the n-th request (from 0). */
  answer(script: (request: StreamRequest, index: number) => ScriptedAnswer): void;
  /** Sets the catalog of the gateway, which has none by default. */
  catalog(models: { id: string; context_window?: number; inputs?: string[]; owned_by?: string }[]): void;
  close(): Promise<void>;
}

const usage = (input: number, output: number) => ({
  inputTokens: { total: input },
  outputTokens: { total: output },
});

/** An answer of one text. */
export function says(text: string, finishReason = 'stop'): ScriptedAnswer {
  return { parts: [...speech(text), finish(finishReason)] };
}

/** An answer with parallel tool calls. */
export function calls(...tools: { name: string; input: unknown; id?: string }[]): ScriptedAnswer {
  const toolCalls = tools.map(({ name, input, id }, index) => ({
    type: 'tool-call',
    toolCallId: id ?? `call_${index}`,
    toolName: name,
    input: typeof input === 'string' ? input : JSON.stringify(input),
  }));
  return { parts: [...toolCalls, finish('tool-calls')] };
}

/** The tool results in a prompt, in the order of the conversation. */
export function toolResults(
  request: StreamRequest,
): { toolCallId: string; toolName: string; output: { type: string; value: unknown } }[] {
  return request.prompt.filter(({ role }) => role === 'tool').flatMap(({ content }) => content as never);
}

function speech(text: string): object[] {
  return [
    { type: 'text-start', id: 't' },
    ...(text.match(/[\s\S]{1,8}/g) ?? []).map((delta) => ({ type: 'text-delta', id: 't', delta })),
    { type: 'text-end', id: 't' },
  ];
}

export function finish(reason: string): object {
  return { type: 'finish', finishReason: { unified: reason }, usage: usage(10, 3) };
}

/** Sends the parts and then cuts the connection. */
export function breaksAfter(...parts: object[]): ScriptedAnswer {
  return {
    async respond(response) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const part of [{ type: 'stream-start', warnings: [] }, ...parts])
        await new Promise((resolve) => response.write(`data: ${JSON.stringify(part)}\n\n`, resolve));
      response.destroy();
    },
  };
}

/** The prompt of a request as it was sent, one string per message. */
export function promptBytes(body: string): string[] {
  const request = JSON.parse(body) as { prompt: object[] };
  if (JSON.stringify(request) !== body) throw new Error('The body is not plain JSON.');
  return request.prompt.map((message) => JSON.stringify(message));
}

/** Sends the answer; `respond` may call it after it has waited. */
export function stream(response: ServerResponse, answer: ScriptedAnswer): void {
  if (!('parts' in answer)) throw new Error('Only stream parts can be streamed.');
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const parts = [
    { type: 'stream-start', warnings: [] },
    { type: 'response-metadata', modelId: 'scripted' },
    ...answer.parts,
  ];
  for (const part of parts) response.write(`data: ${JSON.stringify(part)}\n\n`);
  response.end('data: [DONE]\n\n');
}

function sendError(
  response: ServerResponse,
  status: number,
  members: Record<string, unknown>,
  headers: Record<string, string> = {},
): void {
  const error = {
    type: 'invalid_request_error',
    code: 'invalid_request',
    message: 'No.',
    param: null,
    request_id: 'req_0',
    ...members,
  };
  response
    .writeHead(status, { 'content-type': 'application/json', ...headers })
    .end(JSON.stringify({ error }));
}

export async function scriptedGateway(): Promise<ScriptedGateway> {
  const requests: StreamRequest[] = [];
  const bodies: string[] = [];
  let script: (request: StreamRequest, index: number) => ScriptedAnswer = () => says('Nothing was scripted.');
  let models: object[] | undefined;

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const text = (await readBody(request)).toString('utf8');
    if (request.method === 'GET' && models !== undefined && request.url?.split('?')[0] === '/v1/ai/models') {
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ items: models, next_cursor: null }));
      return;
    }
    if (request.method !== 'POST' || request.url !== '/v1/ai/stream') {
      return sendError(response, 404, {
        code: 'route_not_found',
        message: 'There is nothing at this path.',
      });
    }
    bodies.push(text);
    const body = {
      ...JSON.parse(text),
      authorization: request.headers.authorization ?? '',
      traceparent: request.headers.traceparent,
    } as StreamRequest;
    const answer = script(body, requests.push(body) - 1);
    if ('respond' in answer) return answer.respond(response);
    if ('status' in answer) return sendError(response, answer.status, answer.error, answer.headers);
    stream(response, answer);
  }

  const server = createServer((request, response) => {
    serve(request, response).catch(() => response.destroy());
  });
  return {
    url: (await listen(server)).url,
    requests,
    bodies,
    answer: (next) => {
      script = next;
    },
    catalog: (next) => {
      models = next;
    },
    close: () => closeServer(server),
  };
}
