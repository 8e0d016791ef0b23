// The HTTP server of both surfaces, and the only file that knows express: admission, the way of a request
// through pages and contract, and the one edge where errors are rendered. Its end is drain.ts.
import { createServer as createHttpServer, IncomingMessage, ServerResponse, STATUS_CODES } from 'node:http';
import { type AddressInfo, createServer as createDoor, type Server as Door, type Socket } from 'node:net';
import express, { type ErrorRequestHandler, type RequestHandler } from 'express';
import { isSingleExecutable } from '../assets.ts';
import type { Clock } from '../clock.ts';
import type { Contract } from '../contract/contract.ts';
import { type CloseOptions, createDrain } from './drain.ts';
import type { Arrival, Guard } from './guard.ts';
import { id } from '../ids.ts';
import { createAddressLimit } from './rate-limits.ts';
import type { Log } from '../log.ts';
import type { CallNote } from '../contract/operation.ts';
import { isPermanent, Problem, renderProblem } from '../problem.ts';
import type { Proxies } from './proxies.ts';
import { serveAssets } from './asset-pages.ts';
import { createResponder, type CorsRules } from './respond.ts';
import { HttpRequest } from './request.ts';

/** Follows each request from its admission to its end, for metrics and traces. */
export interface RequestObserver {
  /** Runs what is done for the request, so that whatever is observed within belongs to it. */
  within<T>(visit: HttpRequest, work: () => T): T;
  /** The whole answer is out, or its client is gone. */
  ended(visit: HttpRequest, durationMs: number): void;
}

export interface ServerTimeouts {
  /** For the head of a request. */
  headersMs: number;
  /** For a whole request, its body included, unless the operation names a deadline of its own. */
  requestMs: number;
  keepAliveMs: number;
  /** How often the two deadlines above are looked at. */
  checkEveryMs: number;
  heartbeatMs: number;
  /** A reader of a stream that takes nothing for so long is dropped. */
  stalledMs: number;
  /** Between the abort of what still runs at the end of a drain and the destruction of its connection. */
  lastWordsMs: number;
}

export interface ServerLimits {
  /** For operations without an `x-max-body-bytes` of their own. */
  maxBodyBytes: number;
  maxHeaderBytes: number;
  maxHeaders: number;
  maxUrlBytes: number;
  maxConnections: number;
  /** Connections of one client address; behind a trusted proxy requests at a time. Callers on this machine have no such limit. */
  maxPerAddress: number;
}

// No operation gives a body longer than this (`x-body-deadline-ms`).
const longestBodyMs = 120_000;

const defaultTimeouts: ServerTimeouts = {
  headersMs: 10_000,
  requestMs: 30_000,
  // Longer than the 60 s after which common proxies let go, so that it is they who close.
  keepAliveMs: 65_000,
  checkEveryMs: 1_000,
  heartbeatMs: 15_000,
  stalledMs: 60_000,
  lastWordsMs: 3_000,
};

const defaultLimits: ServerLimits = {
  maxBodyBytes: 1024 * 1024,
  maxHeaderBytes: 16 * 1024,
  maxHeaders: 100,
  maxUrlBytes: 8 * 1024,
  maxConnections: 2_000,
  maxPerAddress: 100,
};

export interface ServerOptions {
  contract: Contract;
  /** Folders served as they are, outside the contract. */
  pages?: readonly { prefix: string; directory: string }[];
  /** Sees every arrival before anything else does. */
  before?: Guard;
  log: Log;
  clock: Pick<Clock, 'monotonicMs'>;
  limits?: Partial<ServerLimits>;
  timeouts?: Partial<ServerTimeouts>;
  /** Without it no answer carries a CORS header. */
  cors?: { origins: readonly string[]; scoped?: CorsRules['scoped'] };
  /** Whose word about a client's address is believed; without it the socket's peer is the client. */
  proxies?: Proxies;
  /** The agent's errors carry `success: false` too. */
  surface: 'gateway' | 'agent';
  observer?: RequestObserver | undefined;
  /** The ids by which a line of the log names who asked; never a credential. */
  nameIdentity?: (identity: { kind: string }) => Record<string, string>;
}

/** A request that came with a credential and has not got its whole answer yet. */
export interface RunningRequest {
  /** The header as sent. */
  readonly authorization: string;
  /** Stops the work with this for a reason; a stream ends with it as its error. What goes on regardless loses its connection. */
  end(reason: Problem): void;
}

/**
 * Where a server listens: an address, a socket in the file system, or a listening socket that this process was
 * started with. The last two are told the url under which callers know them.
 */
export type ListenAddress =
  | { host: string; port: number }
  | { path: string; url: string }
  | { fd: number; url: string };

export interface Server {
  /**
   * Rejects when the address cannot be had. The url has no trailing slash and can be called from this machine. May be
   * called again for a further place.
   */
  listen(place: ListenAddress): Promise<{ url: string; port: number }>;
  /**
   * Takes no more connections, then no more work, lets what runs go on for `drainMs`, then aborts it. Resolves when
   * the last connection is closed; a second call waits for the same end.
   */
  close(options?: CloseOptions): Promise<void>;
  /** Requests that have not got their whole answer yet. */
  inFlight(): number;
  /** Those of them that came with a credential. */
  runningRequests(): RunningRequest[];
}

// The visit rides on its request: a WeakMap entry for each would cost more than all the rest of admission.
const visitKey = Symbol('visit');
type Visited = IncomingMessage & { [visitKey]?: HttpRequest };

export function createServer(options: ServerOptions): Server {
  const { contract, log, clock, surface, observer, nameIdentity } = options;
  const limits = { ...defaultLimits, ...options.limits };
  const timeouts = { ...defaultTimeouts, ...options.timeouts };
  const pages = options.pages ?? [];
  const { proxies } = options;
  const connected = createAddressLimit(limits.maxPerAddress);
  const forwarded = createAddressLimit(limits.maxPerAddress);
  const visits = new Set<HttpRequest>();
  // Connections that never sent a request.
  const fresh = new Set<Socket>();
  const doors: Door[] = [];

  const responder = createResponder({
    contract,
    clock,
    surface,
    streams: { heartbeatMs: timeouts.heartbeatMs, stallMs: timeouts.stalledMs },
    cors: { origins: new Set(options.cors?.origins), scoped: options.cors?.scoped },
    draining: () => drain.leaving(),
  });

  function admit(request: Visited, response: ServerResponse): HttpRequest {
    fresh.delete(request.socket);
    const visit = new HttpRequest(request, response, {
      requestId: id('req'),
      log,
      nowMs: clock.monotonicMs(),
      remoteAddress:
        proxies === undefined
          ? peerOf(request.socket)
          : proxies.clientOf(peerOf(request.socket), request.headers['x-forwarded-for']),
      limits: { maxBytes: limits.maxBodyBytes, deadlineMs: timeouts.requestMs },
    });
    request[visitKey] = visit;
    visits.add(visit);
    response.once('close', () => leave(visit));
    holdPlace(visit);
    const arrival = arrivalOf(request);
    options.before?.(arrival);
    refuseMalformed(arrival, request, limits);
    drain.refuseLate();
    return visit;
  }

  // Many clients share the connections of a proxy, so that there each request counts as one.
  function holdPlace(visit: HttpRequest): void {
    if (proxies === undefined || !proxies.isTrusted(peerOf(visit.request.socket))) return;
    const giveBack = forwarded.acquire(visit.remoteAddress);
    if (!giveBack) throw tooManyAtOnce();
    visit.response.once('close', giveBack);
  }

  function leave(visit: HttpRequest): void {
    visits.delete(visit);
    if (!visit.response.writableFinished) {
      visit.clientGone = true;
      visit.abort();
    }
    const durationMs = clock.monotonicMs() - visit.startedMs;
    observer?.ended(visit, durationMs);
    log.info(accessFields(visit, durationMs, nameIdentity), 'request');
    drain.answerEnded();
  }

  const serve: RequestHandler = (request, response, next) => {
    const visit = admit(request, response);
    const page =
      pages.length > 0 &&
      pages.find(({ prefix }) => visit.path === prefix || visit.path.startsWith(`${prefix}/`));
    if (page && (visit.method === 'GET' || visit.method === 'HEAD')) {
      for (const [name, value] of Object.entries({ ...responder.commonHeaders(visit), ...pageHeaders }))
        response.setHeader(name, value);
      next();
      return undefined;
    }
    return answer(visit);
  };

  function answer(visit: HttpRequest): Promise<void> {
    const work = () => contract.dispatch(visit).then((reply) => responder.reply(visit, reply));
    return observer === undefined ? work() : observer.within(visit, work);
  }

  // What no page answered is for the contract to refuse.
  const serveAfterPages: RequestHandler = (request) => {
    return answer((request as Visited)[visitKey] as HttpRequest);
  };

  // Express knows an error handler by its four parameters.
  const errorEdge: ErrorRequestHandler = (thrown: unknown, request, response, _next) => {
    const visit = (request as Visited)[visitKey];
    if (!visit) {
      log.error({ err: thrown }, 'a request failed before it was admitted');
      response.destroy();
      return;
    }
    try {
      responder.problem(visit, pageProblem(thrown) ?? thrown);
    } catch (error) {
      visit.log.error({ err: error }, 'an error could not be rendered');
      response.destroy();
    }
  };

  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', false);
  // Express gives every request and response its own prototype, which makes each later use of them slow: a
  // quarter of what the kernel costs. Nothing here uses what it adds, so they keep the one they have.
  app.request = IncomingMessage.prototype as express.Request;
  app.response = ServerResponse.prototype as express.Response;
  app.use(serve);
  for (const { prefix, directory } of pages) {
    app.use(
      prefix,
      isSingleExecutable
        ? serveAssets(directory)
        : express.static(directory, { cacheControl: false, dotfiles: 'ignore' }),
    );
  }
  if (pages.length > 0) app.use(serveAfterPages);
  app.use(errorEdge);

  const http = createHttpServer(
    {
      headersTimeout: timeouts.headersMs,
      // For all operations alike, so it lets the longest of their own deadlines pass; the others are body.ts's to keep.
      requestTimeout: Math.max(timeouts.requestMs, longestBodyMs),
      keepAliveTimeout: timeouts.keepAliveMs,
      connectionsCheckingInterval: timeouts.checkEveryMs,
      maxHeaderSize: limits.maxHeaderBytes,
      // Node's own refusal has no body; ours follows in refuseMalformed.
      requireHostHeader: false,
    },
    app,
  );
  // One more than allowed, so that an excess is seen rather than cut off in silence.
  http.maxHeadersCount = limits.maxHeaders + 1;
  http.on('clientError', (error: NodeJS.ErrnoException, socket) =>
    refuseBytes(socket as Socket, error, surface),
  );
  // CONNECT comes with a raw socket, and there is nothing here to tunnel to.
  http.on('connect', (_request, socket) => {
    endWith(
      socket as Socket,
      new Problem('method_not_allowed', 'method_not_allowed', 'This server does not tunnel.', {
        headers: { allow: 'GET, HEAD, POST, OPTIONS' },
      }),
      surface,
    );
  });
  // With a listener Node leaves the 100 to us; visit.ts sends it once the body is wanted.
  http.on('checkContinue', app);
  http.on('checkExpectation', app);
  http.on('connection', (socket) => {
    if (!proxies?.isTrusted(peerOf(socket))) {
      const giveBack = connected.acquire(peerOf(socket));
      if (!giveBack) return endWith(socket, tooManyAtOnce(), surface);
      socket.once('close', giveBack);
    }
    fresh.add(socket);
    socket.once('close', () => fresh.delete(socket));
  });

  const drain = createDrain({ http, doors, visits, fresh, lastWordsMs: timeouts.lastWordsMs });

  return {
    inFlight: () => visits.size,
    runningRequests: () =>
      [...visits].flatMap((visit) => {
        const { authorization } = visit.headers;
        return authorization === undefined || visit.identity === undefined
          ? []
          : [{ authorization, end: (reason) => endEarly(visit, reason) }];
      }),
    async listen(place) {
      // The first place is the server's own, which is how Node begins to watch deadlines; others only bring connections.
      const door = doors.length === 0 ? http : createDoor((socket) => void http.emit('connection', socket));
      door.maxConnections = limits.maxConnections;
      const address = await openDoor(door, place);
      doors.push(door);
      door.on('error', (error) => log.error({ err: error }, 'the listening socket failed'));
      void contract.warm(log);
      return address;
    },
    close: drain.close,
  };
}

function openDoor(door: Door, place: ListenAddress): Promise<{ url: string; port: number }> {
  return new Promise((resolve, reject) => {
    door.once('error', reject);
    const { url, ...where } = 'url' in place ? place : { ...place, url: undefined };
    door.listen(where, () => {
      door.off('error', reject);
      const bound = door.address() as AddressInfo | string | null;
      const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
      resolve({ url: url ?? `http://${callableHost('host' in place ? place.host : '')}:${port}`, port });
    });
  });
}

// Long enough for a last event, and short enough for whoever was promised an end within five seconds.
const lastEventMs = 2_000;

function endEarly(visit: HttpRequest, reason: Problem): void {
  visit.abort(reason);
  const timer = setTimeout(() => visit.response.destroy(), lastEventMs);
  timer.unref();
  visit.response.once('close', () => clearTimeout(timer));
}

function peerOf(socket: { remoteAddress?: string | undefined }): string {
  return socket.remoteAddress ?? '';
}

function tooManyAtOnce(): Problem {
  return new Problem(
    'rate_limited',
    'rate_limited',
    'Too many connections from this address; try again later.',
    { headers: { 'retry-after': '1' } },
  );
}

function callableHost(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}

function arrivalOf(request: IncomingMessage): Arrival {
  const { rawHeaders } = request;
  const hosts: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts.push(rawHeaders[at + 1] as string);
  }
  return {
    hosts,
    target: request.url ?? '',
    headers: request.headers,
    localPort: request.socket.localPort ?? 0,
  };
}

/** The line of one request. An object of one shape a kind of line: it is made for every request. */
function accessFields(
  visit: HttpRequest,
  durationMs: number,
  nameIdentity: ServerOptions['nameIdentity'],
): Record<string, unknown> {
  const { operation, identity, noted, trace } = visit;
  const fields: Record<string, unknown> = {
    requestId: visit.requestId,
    method: visit.method,
    operationId: operation?.operationId,
    path: operation ? undefined : visit.path.slice(0, 256),
    status: visit.response.statusCode,
    ms: tenths(durationMs),
    identity: identity?.kind,
    bytesIn: visit.bytesIn,
    bytesOut: visit.bytesOut,
  };
  if (identity && nameIdentity) Object.assign(fields, nameIdentity(identity));
  if (noted) Object.assign(fields, noteFields(noted));
  if (trace) fields.traceId = trace.traceId;
  if (visit.clientGone) fields.clientGone = true;
  return fields;
}

function noteFields({
  model,
  provider,
  tokens,
  credits,
  upstreamMs,
  ttftMs,
  code,
  attempts,
  providerStatus,
  providerWords,
}: CallNote): Record<string, unknown> {
  // Beside the others and not under a name of their own: a flat line needs no copy.
  return {
    model,
    provider,
    inputTokens: tokens?.input,
    cachedInputTokens: tokens?.cachedInput,
    cacheWriteTokens: tokens?.cacheWrite,
    outputTokens: tokens?.output,
    reasoningTokens: tokens?.reasoning,
    credits: credits === undefined ? undefined : Number(credits),
    upstreamMs: upstreamMs === undefined ? undefined : tenths(upstreamMs),
    ttftMs: ttftMs === undefined ? undefined : tenths(ttftMs),
    code,
    attempts,
    providerStatus,
    providerWords,
  };
}

function tenths(ms: number): number {
  return Math.round(ms * 10) / 10;
}

const hostShape = /^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/;
// Of these Node silently keeps the first; somebody in between may have looked at the last.
const singleHeaders = ['authorization', 'content-type', 'content-length', 'origin'];

/** Refuses what Node lets pass and intermediaries read differently. */
function refuseMalformed({ hosts, target }: Arrival, request: IncomingMessage, limits: ServerLimits): void {
  const refuse = (message: string): never => {
    // Whoever reads the same bytes differently must not get a second try on this connection.
    throw new Problem('bad_request', 'invalid_request', message, { headers: { connection: 'close' } });
  };
  if (request.httpVersionMajor !== 1) refuse('The request must be HTTP/1.1.');
  const [host] = hosts;
  if (hosts.length !== 1 || host === undefined || !hostShape.test(host))
    refuse('The request must have exactly one Host.');
  if (target.length > limits.maxUrlBytes)
    refuse(`The address of the request may have ${limits.maxUrlBytes} bytes at most.`);
  if (request.rawHeaders.length > 2 * limits.maxHeaders)
    refuse(`The request may have ${limits.maxHeaders} headers at most.`);
  if (!target.startsWith('/') && target !== '*') {
    const authority = /^https?:\/\/([^/?]*)(?:[/?]|$)/i.exec(target)?.[1];
    if (authority?.toLowerCase() !== host?.toLowerCase())
      refuse('The address of the request names another host.');
  }
  if (request.headers.expect !== undefined && !/^100-continue$/i.test(request.headers.expect))
    refuse('The expectation cannot be met.');
  if (request.rawHeaders.length > 2 * Object.keys(request.headers).length)
    refuseRepeated(request.rawHeaders, refuse);
}

function refuseRepeated(rawHeaders: readonly string[], refuse: (message: string) => never): void {
  const seen = new Set<string>();
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = (rawHeaders[at] as string).toLowerCase();
    if (singleHeaders.includes(name) && seen.has(name))
      refuse(`The header \`${name}\` appears more than once.`);
    seen.add(name);
  }
}

// For all pages from a folder; a page's own policy in its `<meta>` narrows it. `frame-ancestors` works only in a header.
const pageHeaders: Readonly<Record<string, string>> = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self' 'unsafe-inline'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "font-src 'self' data:",
    'worker-src blob:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
};

/** What the file server throws for a path it cannot read is the caller's fault, not ours. */
function pageProblem(thrown: unknown): Problem | undefined {
  const status =
    thrown instanceof Error && !(thrown instanceof Problem)
      ? (thrown as { status?: unknown }).status
      : undefined;
  if (status === 400)
    return new Problem(
      'bad_request',
      'invalid_path',
      'The path holds a percent encoding that cannot be decoded.',
      { cause: thrown },
    );
  if (status === 403 || status === 404)
    return new Problem('not_found', 'route_not_found', 'There is nothing at this path.', { cause: thrown });
  return undefined;
}

/** Answers bytes that never became a request, so that they too get the one error shape. */
function refuseBytes(socket: Socket, error: NodeJS.ErrnoException, surface: 'gateway' | 'agent'): void {
  const begun =
    (socket as { _httpMessage?: { headersSent: boolean } | null })._httpMessage?.headersSent === true;
  if (!socket.writable || begun || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const messages: Record<string, string> = {
    HPE_HEADER_OVERFLOW: 'The headers of the request are too large.',
    ERR_HTTP_REQUEST_TIMEOUT: 'The request took too long to arrive.',
  };
  endWith(
    socket,
    new Problem(
      'bad_request',
      'invalid_request',
      messages[error.code ?? ''] ?? 'The request is not well-formed HTTP.',
    ),
    surface,
  );
}

function endWith(socket: Socket, problem: Problem, surface: 'gateway' | 'agent'): void {
  const requestId = id('req');
  const rendered = renderProblem(problem, requestId);
  const body = JSON.stringify(surface === 'agent' ? { success: false, ...rendered } : rendered);
  const lines = [
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
    'x-content-type-options: nosniff',
    ...(isPermanent(problem) ? ['x-should-retry: false'] : []),
    ...Object.entries(problem.headers).map(([name, value]) => `${name}: ${value}`),
    'connection: close',
  ];
  socket.on('error', () => socket.destroy());
  socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`);
  const timer = setTimeout(() => socket.destroy(), 1_000);
  timer.unref();
  socket.once('close', () => clearTimeout(timer));
}
