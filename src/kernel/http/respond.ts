// Writes answers: the headers that all of them bear, JSON, streams, bytes and errors. The rule it keeps:
// one status a request, and after the first byte of a stream never a second one.
import type { Socket } from 'node:net';
import { announcesBody } from './body.ts';
import type { Contract } from '../contract/contract.ts';
import type { AnyReply } from '../contract/exchange.ts';
import type { Clock } from '../clock.ts';
import { failureNote } from '../contract/failure-note.ts';
import { toErrorDialect } from '../error-dialects.ts';
import { asProblem, isPermanent, Problem, renderProblem } from '../problem.ts';
import { discard, type StreamLimits, type StreamOutcome, writeContent, writeEvents } from './sse.ts';
import type { HttpRequest } from './request.ts';

export interface ResponderOptions {
  contract: Contract;
  clock: Pick<Clock, 'monotonicMs'>;
  surface: 'gateway' | 'agent';
  streams: StreamLimits;
  cors: CorsRules;
  draining: () => boolean;
}

/** Which pages may read answers. */
export interface CorsRules {
  /** Exact origins, for every path. */
  origins: ReadonlySet<string>;
  /** Further origins for some paths alone. */
  scoped?: { paths: ReadonlySet<string>; allows(origin: string): boolean } | undefined;
}

export interface Responder {
  reply(visit: HttpRequest, reply: AnyReply): void | Promise<void>;
  problem(visit: HttpRequest, thrown: unknown): void;
  /** The headers that also an answer from a folder of pages has. */
  commonHeaders(visit: HttpRequest): Record<string, string>;
}

const jsonType = 'application/json; charset=utf-8';
// What may be left unread of a body without giving its connection up; reading it off is cheaper than a new one.
const tolerableRestBytes = 64 * 1024;
const lingerMs = 1_000;

export function createResponder(options: ResponderOptions): Responder {
  const { contract, clock, surface, streams, cors } = options;

  function commonHeaders(visit: HttpRequest): Record<string, string> {
    const headers: Record<string, string> = {
      'x-request-id': visit.requestId,
      'x-content-type-options': 'nosniff',
    };
    const theirs = visit.headers['x-request-id'];
    if (typeof theirs === 'string' && /^[\x20-\x7e]{1,128}$/.test(theirs))
      headers['x-client-request-id'] = theirs;
    const scoped = cors.scoped?.paths.has(visit.path) ? cors.scoped : undefined;
    if (cors.origins.size > 0 || scoped) {
      Object.assign(
        headers,
        corsHeaders(visit, (origin) => cors.origins.has(origin) || (scoped?.allows(origin) ?? false)),
      );
    }
    if (options.draining() || leavesBodyUnread(visit)) headers.connection = 'close';
    return headers;
  }

  function head(
    visit: HttpRequest,
    reply: { status: number; headers?: Record<string, string> },
    own: Record<string, string>,
  ): void {
    const headers = commonHeaders(visit);
    // Answers depend on the credential, so nothing keeps them unless the operation says otherwise.
    headers['cache-control'] = 'no-store';
    headers['server-timing'] = visit.serverTiming(clock.monotonicMs());
    Object.assign(headers, visit.answerHeaders, own);
    const vary = headers.vary;
    if (reply.headers)
      for (const [name, value] of Object.entries(reply.headers)) headers[name.toLowerCase()] = value;
    // An answer can vary by its operation and by the origin of a page.
    if (vary !== undefined && headers.vary !== vary) headers.vary = `${vary}, ${headers.vary}`;
    if (headers.connection === 'close' && leavesBodyUnread(visit)) lingerAfterAnswer(visit);
    visit.response.writeHead(reply.status, headers);
  }

  function json(
    visit: HttpRequest,
    reply: { status: number; headers?: Record<string, string> },
    body: unknown,
  ): void {
    const text = JSON.stringify(body);
    if (text === undefined) throw new Error('A reply has a body that is not JSON.');
    head(visit, reply, { 'content-type': jsonType, 'content-length': String(Buffer.byteLength(text)) });
    visit.response.end(text);
  }

  function errorBody(visit: HttpRequest, problem: Problem): object {
    const body = toErrorDialect(
      renderProblem(problem, visit.requestId),
      problem,
      visit.operation?.errorDialect,
    );
    return surface === 'agent' ? { success: false, ...body } : body;
  }

  // The client hears nothing of the cause; the log has it once.
  function logFailure(visit: HttpRequest, problem: Problem, message: string): void {
    visit.note(failureNote(problem));
    if (problem.kind === 'internal')
      visit.log.error({ operationId: visit.operation?.operationId, err: problem.cause ?? problem }, message);
    else if (problem.cause !== undefined)
      visit.log.debug({ code: problem.code, err: problem.cause }, message);
  }

  async function events(visit: HttpRequest, reply: AnyReply): Promise<void> {
    const source = reply.events as NonNullable<AnyReply['events']>;
    head(visit, reply, { 'content-type': 'text/event-stream; charset=utf-8', 'x-accel-buffering': 'no' });
    const outcome = await writeEvents(visit.response, source, {
      end: reply.end,
      limits: streams,
      onError: (error) => {
        const problem = asProblem(stopReason(visit) ?? error);
        logFailure(visit, problem, 'stream failed');
        return `data: ${JSON.stringify(errorBody(visit, problem))}\n\n`;
      },
    });
    noteOutcome(visit, outcome);
  }

  async function content(visit: HttpRequest, reply: AnyReply): Promise<void> {
    const mediaType = reply.mediaType ?? 'application/octet-stream';
    if (reply.content instanceof Uint8Array) {
      head(visit, reply, { 'content-type': mediaType, 'content-length': String(reply.content.byteLength) });
      visit.response.end(reply.content);
      return;
    }
    const source = reply.content as AsyncIterable<Uint8Array>;
    // A stream of events says at once that it was accepted; other bytes wait for the first of them, so that
    // a producer which fails right away can still answer with a status of its own.
    const started = mediaType.startsWith('text/event-stream') ? source : await startedContent(source);
    head(visit, reply, { 'content-type': mediaType });
    const outcome = await writeContent(visit.response, started, {
      limits: streams,
      onError: (error) => logFailure(visit, asProblem(error), 'stream failed'),
    });
    noteOutcome(visit, outcome);
  }

  return {
    commonHeaders,
    reply(visit, reply) {
      const produced = reply.events ?? (reply.content instanceof Uint8Array ? undefined : reply.content);
      if (visit.response.destroyed || visit.clientGone) {
        if (produced) discard(produced);
        return;
      }
      visit.isStream = produced !== undefined;
      if (visit.method === 'HEAD' && produced) {
        discard(produced);
        head(visit, reply, {
          'content-type': reply.events ? 'text/event-stream; charset=utf-8' : (reply.mediaType ?? ''),
        });
        visit.response.end();
      } else if (reply.events !== undefined) {
        return events(visit, reply);
      } else if (reply.content !== undefined) {
        return content(visit, reply);
      } else if ('body' in reply) {
        json(visit, reply, reply.body);
      } else {
        head(visit, reply, reply.status === 204 || reply.status === 304 ? {} : { 'content-length': '0' });
        visit.response.end();
      }
    },
    problem(visit, thrown) {
      if (visit.response.destroyed || visit.clientGone) return;
      let problem = asProblem(stopReason(visit) ?? thrown);
      logFailure(visit, problem, 'request failed');
      if (visit.response.headersSent) {
        visit.response.destroy();
        return;
      }
      let body = errorBody(visit, problem);
      const mismatch = contract.problemMismatch(visit, problem.status, body);
      if (mismatch !== null) {
        visit.log.error(
          { operationId: visit.operation?.operationId, mismatch },
          'an error does not match the contract',
        );
        problem = asProblem(new Error(mismatch));
        body = errorBody(visit, problem);
      }
      const headers = { ...problem.headers };
      if (
        (problem.kind === 'unavailable' || problem.kind === 'rate_limited') &&
        headers['retry-after'] === undefined
      )
        headers['retry-after'] = '1';
      if (isPermanent(problem)) headers['x-should-retry'] = 'false';
      json(visit, { status: problem.status, headers }, body);
    },
  };
}

// A producer that was stopped because the server is going down throws whatever it likes; what the client
// should hear is why it was stopped.
function stopReason(visit: HttpRequest): Problem | undefined {
  return visit.stopReason instanceof Problem ? visit.stopReason : undefined;
}

function noteOutcome(visit: HttpRequest, outcome: StreamOutcome): void {
  if (outcome === 'client_gone' || outcome === 'stalled') visit.clientGone = true;
  if (outcome === 'stalled') visit.log.warn({}, 'a client that takes nothing was dropped');
}

async function startedContent(source: AsyncIterable<Uint8Array>): Promise<AsyncIterable<Uint8Array>> {
  const iterator = source[Symbol.asyncIterator]();
  const first = await iterator.next();
  let given = false;
  return {
    [Symbol.asyncIterator]: () => ({
      next: () => {
        if (given) return iterator.next();
        given = true;
        return Promise.resolve(first);
      },
      return: () => iterator.return?.() ?? Promise.resolve({ done: true, value: undefined }),
    }),
  };
}

function leavesBodyUnread({ request, awaitsContinue }: HttpRequest): boolean {
  if (request.complete || !announcesBody(request)) return false;
  // A client that waits to be told may or may not send its body now.
  if (awaitsContinue) return true;
  const length = request.headers['content-length'];
  return length === undefined || Number(length) > tolerableRestBytes || request.readableFlowing === false;
}

// Closing while the client still sends makes the kernel answer with a reset, which can overtake our answer.
// So the sending half is closed, nothing more is read, and the rest follows a moment later.
function lingerAfterAnswer({ request, response }: HttpRequest): void {
  // Once its reading has begun, Node no longer drains the body by itself.
  request.read(0);
  request.pause();
  const socket = response.socket as (Socket & { destroySoon: () => void }) | null;
  if (!socket) return;
  socket.destroySoon = () => {
    socket.end();
    const timer = setTimeout(() => socket.destroy(), lingerMs);
    timer.unref();
    socket.once('close', () => clearTimeout(timer));
  };
}

// Never `*` and never with credentials: only the exact origin, and a page sends its bearer credential itself.
function corsHeaders(visit: HttpRequest, allows: (origin: string) => boolean): Record<string, string> {
  const { origin } = visit.headers;
  if (typeof origin !== 'string' || !allows(origin)) return { vary: 'Origin' };
  const headers: Record<string, string> = {
    vary: 'Origin',
    'access-control-allow-origin': origin,
    'access-control-expose-headers':
      'x-request-id, retry-after, ratelimit, ratelimit-policy, server-timing, idempotent-replayed, x-townhall-model, x-townhall-attempts, x-townhall-credits, x-townhall-warnings',
  };
  const method = visit.headers['access-control-request-method'];
  if (visit.method !== 'OPTIONS' || typeof method !== 'string') return headers;
  const asked = visit.headers['access-control-request-headers'];
  headers['access-control-allow-methods'] = 'GET, HEAD, POST, PUT, PATCH, DELETE';
  if (typeof asked === 'string' && /^[\w-]+(?:\s*,\s*[\w-]+)*$/.test(asked))
    headers['access-control-allow-headers'] = asked;
  headers['access-control-max-age'] = '600';
  return headers;
}
