// A gateway that says what a test wrote: it speaks the transport of `/v1/ai/stream` and nothing else. For the cases
// that a real model cannot be brought to; the real gateway has its own end-to-end test.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';

/** One answer: its stream parts, or an HTTP error, or whatever the function does with the response. */
export type ScriptedAnswer =
  | { parts: object[] }
  | { status: number; error: Record<string, unknown>; headers?: Record<string, string> }
  | { respond(response: ServerResponse): Promise<void> };

export interface StreamRequest {
  model: string;
  prompt: { role: string; content: unknown }[];
  tools?: { name: string; description?: string; inputSchema: object }[];
  authorization: string;
}

export interface ScriptedGateway {
  url: string;
  requests: StreamRequest[];
  /** What the n-th request (from 0) is answered with. */
  answer(script: (request: StreamRequest, index: number) => ScriptedAnswer): void;
  /** What its catalog says; without it there is none. */
  catalog(models: { id: string; context_window: number }[]): void;
  close(): Promise<void>;
}

const usage = (input: number, output: number) => ({
  inputTokens: { total: input },
  outputTokens: { total: output },
});

/** Says a text and ends. */
export function says(text: string, finishReason = 'stop'): ScriptedAnswer {
  return { parts: [...speech(text), finish(finishReason)] };
}

/** Asks for tools, side by side. */
export function calls(...tools: { name: string; input: unknown; id?: string }[]): ScriptedAnswer {
  const toolCalls = tools.map(({ name, input, id }, index) => ({
    type: 'tool-call',
    toolCallId: id ?? `call_${index}`,
    toolName: name,
    input: typeof input === 'string' ? input : JSON.stringify(input),
  }));
  return { parts: [...toolCalls, finish('tool-calls')] };
}

/** What the tools gave back, as the model is shown it, in the order of the conversation. */
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

export function finish(unified: string): object {
  return { type: 'finish', finishReason: { unified }, usage: usage(10, 3) };
}

/** Sends the answer, also from within `respond`, after whatever the test waited for. */
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

export async function scriptedGateway(): Promise<ScriptedGateway> {
  const requests: StreamRequest[] = [];
  let script: (request: StreamRequest, index: number) => ScriptedAnswer = () => says('Nothing was scripted.');

  let models: object[] | undefined;

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (request.method === 'GET' && models !== undefined && request.url?.split('?')[0] === '/v1/ai/models') {
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ items: models, next_cursor: null }));
      return;
    }
    if (request.method !== 'POST' || request.url !== '/v1/ai/stream') {
      response
        .writeHead(404, { 'content-type': 'application/json' })
        .end(
          '{"error":{"type":"invalid_request_error","code":"route_not_found","message":"There is nothing at this path.","param":null,"request_id":"req_0"}}',
        );
      return;
    }
    const body = {
      ...JSON.parse(Buffer.concat(chunks).toString('utf8')),
      authorization: request.headers.authorization ?? '',
      traceparent: request.headers.traceparent,
    } as StreamRequest;
    const answer = script(body, requests.push(body) - 1);
    if ('respond' in answer) return answer.respond(response);
    if ('status' in answer) {
      const error = {
        type: 'invalid_request_error',
        code: 'invalid_request',
        message: 'No.',
        param: null,
        request_id: 'req_0',
        ...answer.error,
      };
      response
        .writeHead(answer.status, { 'content-type': 'application/json', ...answer.headers })
        .end(JSON.stringify({ error }));
      return;
    }
    stream(response, answer);
  }

  const server = createServer((request, response) => {
    serve(request, response).catch(() => response.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    answer: (next) => {
      script = next;
    },
    catalog: (next) => {
      models = next;
    },
    async close() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
