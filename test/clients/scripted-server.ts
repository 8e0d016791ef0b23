// A server that answers as a test scripts it, over real sockets, and records its requests. It stands in
// for a gateway or an agent when a test needs bytes that a working server never sends.

import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import { GatewayError } from '../../clients/gateway/src/index.ts';
import { listen } from '../support/local-server.ts';

export interface RecordedRequest {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  text: string;
  json: unknown;
  /**
   * Resolves with `performance.now()` when the client closes the connection before the end of the
   * answer.
   */
  disconnection: Promise<number>;
}

export type Script = (request: RecordedRequest, response: ServerResponse) => void | Promise<void>;

export interface ScriptedServer {
  baseUrl: string;
  requests: RecordedRequest[];
  connections: () => number;
  script: (script: Script) => void;
  close: () => Promise<void>;
}

export async function startScriptedServer(): Promise<ScriptedServer> {
  const requests: RecordedRequest[] = [];
  let connections = 0;
  let currentScript: Script = (_request, response) => void response.writeHead(500).end();

  async function answer(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const disconnection = new Promise<number>((resolve) => {
      response.on('close', () => {
        if (!response.writableFinished) resolve(performance.now());
      });
    });
    const chunks: Buffer[] = [];
    for await (const chunk of message) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const request = {
      method: message.method ?? '',
      url: message.url ?? '',
      headers: message.headers,
      text,
      json: text === '' ? undefined : JSON.parse(text),
      disconnection,
    };
    requests.push(request);
    await currentScript(request, response);
  }

  const server = createServer((message, response) => {
    answer(message, response).catch((error: unknown) => response.destroy(error as Error));
  });
  server.on('connection', () => connections++);
  const { url: baseUrl } = await listen(server);
  return {
    baseUrl,
    requests,
    connections: () => connections,
    script: (script) => {
      currentScript = script;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response
    .writeHead(status, { 'content-type': 'application/json; charset=utf-8', ...headers })
    .end(JSON.stringify(body));
}

export function startEvents(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'x-request-id': 'req_stream' });
  response.flushHeaders();
}

/** Writes each value as an event; the string `[DONE]` is written as is. */
export function writeEvents(response: ServerResponse, events: readonly unknown[]): void {
  for (const event of events)
    response.write(`data: ${event === '[DONE]' ? event : JSON.stringify(event)}\n\n`);
}

/** A script that answers each call with the events. With `isOpen`, the connection stays open. */
export function eventStream(events: readonly unknown[], { isOpen = false } = {}): Script {
  return (_request, response) => {
    startEvents(response);
    writeEvents(response, events);
    if (!isOpen) response.end();
  };
}

export function problem(type: string, code: string, extraMembers: Record<string, unknown> = {}): unknown {
  return {
    error: { type, code, message: `It is ${code}.`, param: null, request_id: 'req_body', ...extraMembers },
  };
}

/** All events of a stream. */
export async function readAll<Event>(events: AsyncIterable<Event>): Promise<Event[]> {
  const items: Event[] = [];
  for await (const event of events) items.push(event);
  return items;
}

/** The error that the call rejects with. Throws when the call resolves or rejects with another error. */
export async function failureOf(work: Promise<unknown>): Promise<GatewayError> {
  const error = await work.then(
    () => undefined,
    (cause: unknown) => cause,
  );
  if (!GatewayError.isInstance(error)) throw new Error(`expected a GatewayError, got ${String(error)}`);
  return error;
}

const usage = { inputTokens: { total: 3, noCache: 3 }, outputTokens: { total: 2, text: 2 } };

/** The parts of a short answer in the contract's order. */
export function textParts(text: string, unified = 'stop'): Record<string, unknown>[] {
  return [
    { type: 'stream-start', warnings: [] },
    { type: 'response-metadata', id: 'msg_1', modelId: 'local/echo', timestamp: '2026-11-20T09:00:00.000Z' },
    { type: 'text-start', id: '0' },
    ...text.split(/(?<= )/).map((delta) => ({ type: 'text-delta', id: '0', delta })),
    { type: 'text-end', id: '0' },
    finishPart(unified),
  ];
}

export function finishPart(unified = 'stop'): Record<string, unknown> {
  return { type: 'finish', finishReason: { unified }, usage };
}
