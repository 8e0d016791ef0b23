// Writes responses: JSON, events, bytes and errors. A request gets exactly one status, even if its
// stream fails after the first byte.
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../clock.ts';
import type { Contract } from '../contract/contract.ts';
import { failureNote } from '../contract/failure-note.ts';
import type { AnyReply } from '../contract/reply.ts';
import { toErrorDialect } from '../error-dialects.ts';
import { asProblem, forSurface, isPermanent, Problem, renderProblem, type Surface } from '../problem.ts';
import type { HttpRequest } from './request.ts';
import { commonHeaders, type CorsRules, leavesBodyUnread } from './response-headers.ts';
import { discard, type StreamLimits, type StreamOutcome, writeContent, writeEvents } from './sse.ts';

export type { CorsRules };

export interface ResponderOptions {
  contract: Contract;
  clock: Pick<Clock, 'monotonicMs'>;
  surface: Surface;
  streams: StreamLimits;
  cors: CorsRules;
  /** Whether the server is closing; then every response closes its connection. */
  isClosing: () => boolean;
}

export interface Responder {
  /** Resolves when a stream has ended; other replies are written at once. */
  reply(request: HttpRequest, reply: AnyReply): void | Promise<void>;
  problem(request: HttpRequest, error: unknown): void;
  /** The headers of every response, including file pages. */
  commonHeaders(request: HttpRequest): Record<string, string>;
}

type ReplyHead = Pick<AnyReply, 'status' | 'headers'>;

const jsonType = 'application/json; charset=utf-8';
const eventsType = 'text/event-stream; charset=utf-8';

export function createResponder(options: ResponderOptions): Responder {
  const { contract } = options;
  const head = createHeadWriter(options);
  const writeStream = createStreamWriter(head, options);

  return {
    commonHeaders: head.commonHeaders,
    reply(request, reply) {
      const content = reply.content instanceof Uint8Array ? undefined : reply.content;
      const stream = reply.events ?? content;
      if (request.response.destroyed || request.isClientGone) {
        if (stream) discard(stream);
        return undefined;
      }
      const mismatch = contract.headerMismatch(request, reply.status, () => head.headersOf(request, reply));
      if (mismatch !== null) {
        if (stream) discard(stream);
        throw new Error(`A reply does not match the contract: ${mismatch}`);
      }
      request.isStream = stream !== undefined;
      if (stream && request.method === 'HEAD') {
        discard(stream);
        head.write(request, reply, { 'content-type': reply.events ? eventsType : (reply.mediaType ?? '') });
        request.response.end();
        return undefined;
      }
      if (reply.events) return writeStream.events(request, reply, reply.events);
      if (content) return writeStream.bytes(request, reply, content);
      return writeWhole(head, request, reply);
    },
    problem(request, error) {
      if (request.response.destroyed || request.isClientGone) return;
      const problem = problemOf(request, error);
      logFailure(request, problem, 'request failed');
      if (request.response.headersSent) {
        request.response.destroy();
        return;
      }
      const answer = problemAnswer(request, problem, options.surface);
      const mismatch =
        contract.problemMismatch(request, problem, answer.body) ??
        contract.headerMismatch(request, answer.status, () => head.headersOf(request, answer));
      if (mismatch === null) {
        writeJson(head, request, answer, answer.body);
        return;
      }
      const operationId = request.operation?.handlerId;
      request.log.error({ operationId, mismatch }, 'an error does not match the contract');
      const failure = problemAnswer(request, asProblem(new Error(mismatch)), options.surface);
      writeJson(head, request, failure, failure.body);
    },
  };
}

interface HeadWriter {
  commonHeaders(request: HttpRequest): Record<string, string>;
  /** All headers of a response except those of its content. */
  headersOf(request: HttpRequest, reply: ReplyHead): Record<string, string>;
  /** Writes the status and the headers of a response. */
  write(request: HttpRequest, reply: ReplyHead, contentHeaders: Record<string, string>): void;
}

function createHeadWriter({ clock, cors, isClosing }: ResponderOptions): HeadWriter {
  const commonHeadersOf = (request: HttpRequest) => commonHeaders(request, { cors, isClosing: isClosing() });
  function headersOf(request: HttpRequest, reply: ReplyHead, contentHeaders?: Record<string, string>) {
    const headers = commonHeadersOf(request);
    // Responses depend on the credential, so no cache may store them unless the operation allows it.
    headers['cache-control'] = 'no-store';
    headers['server-timing'] = request.serverTiming(clock.monotonicMs());
    Object.assign(headers, request.responseHeaders, contentHeaders);
    const vary = headers['vary'];
    if (reply.headers)
      for (const [name, value] of Object.entries(reply.headers)) headers[name.toLowerCase()] = value;
    // A response can vary by its operation and by the page's origin.
    if (vary !== undefined && headers['vary'] !== vary) headers['vary'] = `${vary}, ${headers['vary']}`;
    return headers;
  }
  return {
    commonHeaders: commonHeadersOf,
    headersOf,
    write(request, reply, contentHeaders) {
      const headers = headersOf(request, reply, contentHeaders);
      if (headers['connection'] === 'close' && leavesBodyUnread(request)) lingerAfterResponse(request);
      request.response.writeHead(reply.status, headers);
    },
  };
}

function createStreamWriter(head: HeadWriter, { streams, surface, contract }: ResponderOptions) {
  return {
    async events(
      request: HttpRequest,
      reply: AnyReply,
      events: NonNullable<AnyReply['events']>,
    ): Promise<void> {
      head.write(request, reply, { 'content-type': eventsType, 'x-accel-buffering': 'no' });
      const outcome = await writeEvents(request.response, events, {
        end: reply.end,
        limits: streams,
        onError: (error) => {
          const problem = streamProblem(request, problemOf(request, error), contract);
          logFailure(request, problem, 'stream failed');
          return `data: ${JSON.stringify(errorBody(request, problem, surface))}\n\n`;
        },
      });
      noteOutcome(request, outcome);
    },

    async bytes(request: HttpRequest, reply: AnyReply, content: AsyncIterable<Uint8Array>): Promise<void> {
      const mediaType = reply.mediaType ?? 'application/octet-stream';
      // The head of an event stream is sent at once. Other bytes wait for the first
      // chunk, so that a producer that fails before it can still get an error status.
      const source = mediaType.startsWith('text/event-stream') ? content : await readFirstChunk(content);
      head.write(request, reply, { 'content-type': mediaType });
      const outcome = await writeContent(request.response, source, {
        limits: streams,
        onError: (error) => logFailure(request, asProblem(error), 'stream failed'),
      });
      noteOutcome(request, outcome);
    },
  };
}

// In tests a code that the operation does not list becomes an internal error that names it.
function streamProblem(request: HttpRequest, problem: Problem, contract: Contract): Problem {
  const mismatch = contract.streamProblemMismatch(request, problem);
  if (mismatch === null) return problem;
  request.log.error({ mismatch }, 'an error in a stream does not match the contract');
  return asProblem(new Error(mismatch));
}

function writeWhole(head: HeadWriter, request: HttpRequest, reply: AnyReply): void {
  if (reply.content instanceof Uint8Array) {
    const { mediaType = 'application/octet-stream', content } = reply;
    head.write(request, reply, {
      'content-type': mediaType,
      'content-length': String(content.byteLength),
    });
    endWithBytes(request.response, content);
  } else if ('body' in reply) {
    writeJson(head, request, reply, reply.body);
  } else {
    const isBodyless = reply.status === 204 || reply.status === 304;
    head.write(request, reply, isBodyless ? {} : { 'content-length': '0' });
    request.response.end();
  }
}

// Node writes a string of up to 16 KiB, head included, from a buffer on its stack.
const oneWriteBytes = 12 * 1024;

/**
 * Ends a response. A short body is sent as a latin1 string, which preserves each
 * byte: Node joins it with the head in one write.
 */
function endWithBytes(response: ServerResponse, bytes: Uint8Array): void {
  if (bytes.byteLength > oneWriteBytes) response.end(bytes);
  else
    response.end(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1'), 'latin1');
}

function writeJson(head: HeadWriter, request: HttpRequest, reply: ReplyHead, body: unknown): void {
  const json = JSON.stringify(body);
  if (json === undefined) throw new Error('A reply has a body that is not JSON.');
  // Without the newline a terminal would show its prompt on the last line of the answer
  // (docs/decisions/2026-11-23-front-page.md).
  const text = `${json}\n`;
  head.write(request, reply, {
    'content-type': jsonType,
    'content-length': String(Buffer.byteLength(text)),
  });
  request.response.end(text);
}

function errorBody(request: HttpRequest, problem: Problem, surface: Surface): object {
  const renderedProblem = renderProblem(problem, request.requestId);
  const body = toErrorDialect(renderedProblem, problem, request.errorDialect);
  return forSurface(body, surface);
}

/**
 * A producer that was stopped by a drain or a revocation may throw any error; the client
 * receives the reason why it was stopped.
 */
function problemOf({ abortReason }: HttpRequest, error: unknown): Problem {
  return asProblem(abortReason instanceof Problem ? abortReason : error);
}

// The cause is only logged.
function logFailure(request: HttpRequest, problem: Problem, message: string): void {
  const { log, operation } = request;
  request.note(failureNote(problem));
  if (problem.kind === 'internal')
    log.error({ operationId: operation?.handlerId, err: problem.cause ?? problem }, message);
  else if (problem.cause !== undefined) log.debug({ code: problem.code, err: problem.cause }, message);
}

function problemAnswer(request: HttpRequest, problem: Problem, surface: Surface) {
  const headers = { ...problem.headers };
  if (problem.kind === 'unavailable' || problem.kind === 'rate_limited') headers['retry-after'] ??= '1';
  if (isPermanent(problem)) headers['x-should-retry'] = 'false';
  return { status: problem.status, headers, body: errorBody(request, problem, surface) };
}

function noteOutcome(request: HttpRequest, outcome: StreamOutcome): void {
  if (outcome === 'client_gone' || outcome === 'stalled') request.isClientGone = true;
  if (outcome === 'stalled') request.log.warn({}, 'a client that accepted no bytes was disconnected');
}

/** Waits for the first chunk, and returns a source with all chunks. */
async function readFirstChunk(source: AsyncIterable<Uint8Array>): Promise<AsyncIterable<Uint8Array>> {
  const iterator = source[Symbol.asyncIterator]();
  let firstResult: IteratorResult<Uint8Array> | undefined = await iterator.next();
  return {
    [Symbol.asyncIterator]: () => ({
      next: () => {
        if (firstResult === undefined) return iterator.next();
        const result = Promise.resolve(firstResult);
        firstResult = undefined;
        return result;
      },
      return: () => iterator.return?.() ?? Promise.resolve({ done: true, value: undefined }),
    }),
  };
}

const lingerMs = 1_000;

/**
 * Closes the sending half, reads nothing more, and destroys the connection a second later. If the connection
 * were closed while the client still sends, the operating system would answer with a reset, which can
 * overtake the response.
 */
function lingerAfterResponse({ message, response }: HttpRequest): void {
  // Begin to read, then pause: Node drains the rest of a body only if nothing has begun to read it.
  message.read(0);
  message.pause();
  const socket = response.socket as (Socket & { destroySoon: () => void }) | null;
  if (!socket) return;
  socket.destroySoon = () => {
    socket.end();
    const timer = setTimeout(() => socket.destroy(), lingerMs);
    timer.unref();
    socket.once('close', () => clearTimeout(timer));
  };
}
