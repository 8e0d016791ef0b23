// The HTTP server of both surfaces, and the only file that uses express: it admits requests,
// passes them to pages and the contract, and renders every error in one place. drain.ts closes it.
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server as HttpServer,
  type ServerResponse,
} from 'node:http';
import { createServer as createNetServer, type Server as NetServer, type Socket } from 'node:net';
import express, { type ErrorRequestHandler, type Request, type RequestHandler, type Response } from 'express';
import { ActiveSet, type Place } from '../active-set.ts';
import { accessFields, type NameIdentity } from './access-log.ts';
import { serveAssets } from './pages/asset-pages.ts';
import { type BodyBudget, type BodyBudgetLimits, createBodyBudget } from './body/budget.ts';
import type { Clock } from '../clock.ts';
import type { Contract } from '../contract/contract.ts';
import {
  clientAddress,
  createConnectionLimits,
  tooManyConnections,
  type ConnectionLimits,
} from './connection-limits.ts';
import { type CloseOptions, createDrain, defaultDrainMs, type Drain } from './drain.ts';
import type { FixedPage } from './pages/fixed-pages.ts';
import { type FrontPage, renderFrontPage } from './pages/front-page.ts';
import type { Guard } from './guard.ts';
import { id } from '../ids.ts';
import { listenAt, type ListenAddress } from './listen.ts';
import type { Log } from '../log.ts';
import type { RequestObserver } from './observer.ts';
import { Problem } from '../problem.ts';
import type { Proxies } from './proxies.ts';
import { createPageBuild, type PageFolder } from './page-build.ts';
import { endWithProblem, refuseUnparsed, type Surface } from './raw-response.ts';
import { HttpRequest } from './request.ts';
import { refuseAmbiguous } from './request-checks.ts';
import { createResponder, type CorsRules, type Responder } from './respond.ts';
import type { SocketRequest } from './socket-request.ts';
import { createWebSockets, type SocketRoute, type WebSockets } from './websocket.ts';

export type { ListenAddress };

export interface ServerTimeouts {
  /** Deadline of the head of a request. */
  headersMs: number;
  /** Deadline of a whole request, its body included, unless the operation has its own. */
  requestMs: number;
  keepAliveMs: number;
  /** Interval of the check for the two deadlines above. */
  checkEveryMs: number;
  heartbeatMs: number;
  /** A reader of a stream that accepts no bytes for this long is disconnected. */
  stalledMs: number;
  /**
   * Time between the abort of running requests at the end of a drain and the
   * destruction of their connections.
   */
  abortGraceMs: number;
}

export interface ServerLimits {
  /** The limit of operations without an `x-max-body-bytes` of their own. */
  maxBodyBytes: number;
  maxHeaderBytes: number;
  maxHeaders: number;
  maxUrlBytes: number;
  maxConnections: number;
  /** Total bytes of large bodies (above 256 KiB) without a complete response, for one caller and for all. */
  largeBodyBytes: BodyBudgetLimits;
  /**
   * Connections of one client address; behind a trusted proxy concurrent requests.
   * Loopback addresses have no such limit.
   */
  maxPerAddress: number;
}

// Upper bound of the body deadlines of all operations (`x-body-deadline-ms`).
const longestBodyMs = 120_000;

// The validators of all operations are compiled ahead of their first requests, but not before the first
// answer of /ready: each takes up to 24 ms of the event loop.
const warmAfterMs = 1_000;

const defaultTimeouts: ServerTimeouts = {
  headersMs: 10_000,
  requestMs: 30_000,
  // The time exceeds the 60 s of common proxies, so that the proxy closes an idle connection first.
  keepAliveMs: 65_000,
  checkEveryMs: 1_000,
  heartbeatMs: 15_000,
  stalledMs: 60_000,
  abortGraceMs: 3_000,
};

const defaultLimits: ServerLimits = {
  maxBodyBytes: 256 * 1024,
  maxHeaderBytes: 16 * 1024,
  maxHeaders: 100,
  maxUrlBytes: 8 * 1024,
  largeBodyBytes: { perCaller: 128 * 2 ** 20, total: 512 * 2 ** 20 },
  maxConnections: 2_000,
  maxPerAddress: 100,
};

/** A folder of static files. */
export interface FilePages extends PageFolder {
  prefix: string;
}

export interface ServerOptions {
  contract: Contract;
  /** Folders served as static files, outside the contract. */
  pages?: readonly FilePages[];
  /**
   * The content of `/`; called at each request, once the server listens. Without it the contract
   * answers.
   */
  frontPage?: () => FrontPage;
  /** Pages of one document by their path, outside the contract. */
  fixedPages?: ReadonlyMap<string, FixedPage>;
  /** Checks every request before anything else. */
  guard?: Guard;
  log: Log;
  clock: Pick<Clock, 'monotonicMs'>;
  limits?: Partial<ServerLimits>;
  timeouts?: Partial<ServerTimeouts>;
  /** Without it responses have no CORS headers. */
  cors?: { origins: readonly string[]; scoped?: CorsRules['scoped'] };
  /** Proxies whose `X-Forwarded-For` is trusted; without them the socket's peer is the client. */
  proxies?: Proxies;
  /** The agent's errors also have `success: false`. */
  surface: Surface;
  observer?: RequestObserver | undefined;
  nameIdentity?: NameIdentity;
  /** The name under which the large bodies of an identity are counted together; by address without it. */
  callerOf?: (identity: { kind: string }) => string | null;
  /** Paths that also take WebSockets. */
  sockets?: readonly SocketRoute[];
}

/** A request with a bearer token whose response is not complete. */
export interface RunningRequest {
  readonly token: string;
  /**
   * Stops the work with a reason, which becomes the last error of a stream. Destroys
   * the connection if the work continues.
   */
  end(reason: Problem): void;
}

export interface Server {
  /**
   * Rejects when the address is unavailable. The url has no trailing slash and can
   * be called from this machine. May be called again for a further address.
   */
  listen(address: ListenAddress): Promise<{ url: string; port: number }>;
  /**
   * Accepts no more connections, then no more requests, waits `drainMs` for the running ones, then
   * aborts them. Resolves when the last connection is closed; a second call waits for the same end.
   */
  close(options?: CloseOptions): Promise<void>;
  /** Requests whose response is not complete. */
  inFlight(): number;
  /** The running requests with a bearer token. */
  runningRequests(): RunningRequest[];
}

export function createServer(options: ServerOptions): Server {
  const { contract, log, clock, surface, observer, proxies } = options;
  const limits = { ...defaultLimits, ...options.limits };
  const timeouts = { ...defaultTimeouts, ...options.timeouts };
  const requests = new ActiveSet<HttpRequest>();
  const connections = createConnectionLimits(limits.maxPerAddress, proxies);
  const listeners: NetServer[] = [];

  const responder = createResponder({
    contract,
    clock,
    surface,
    streams: { heartbeatMs: timeouts.heartbeatMs, stallMs: timeouts.stalledMs },
    cors: { origins: new Set(options.cors?.origins), scoped: options.cors?.scoped },
    isClosing: () => drain.isClosing(),
  });

  const budget = createBodyBudget(limits.largeBodyBytes);
  const admit = createAdmission({
    server: options,
    limits,
    budget,
    requestMs: timeouts.requestMs,
    requests,
    connections,
    drain: () => drain,
  });

  function dispatch(request: HttpRequest): Promise<void> {
    const work = () => contract.dispatch(request).then((reply) => responder.reply(request, reply));
    return observer === undefined ? work() : observer.runWithin(request, work);
  }

  const { pages = [], frontPage, fixedPages = new Map<string, FixedPage>() } = options;
  const handle = createRouter({ pages, frontPage, fixedPages, admit, dispatch, responder, log });
  const sockets = openSockets(options, { limits, budget, connections, drain: () => drain });
  const http = createHttp(handle, { limits, timeouts, connections, surface, sockets });
  const drain = createDrain({
    http,
    listeners,
    requests,
    unusedSockets: connections.unused,
    abortGraceMs: timeouts.abortGraceMs,
  });

  let warmUpTimer: NodeJS.Timeout | undefined;

  return {
    inFlight: () => requests.size + sockets.requests.size,
    runningRequests: () => [
      ...requests.members().flatMap(bearerRequest),
      ...[...sockets.requests].flatMap(socketCall),
    ],
    async listen(address) {
      // Node checks deadlines on the http server's own listener; further listeners only accept connections.
      const listener =
        listeners.length === 0 ? http : createNetServer((socket) => void http.emit('connection', socket));
      listener.maxConnections = limits.maxConnections;
      const bound = await listenAt(listener, address);
      listeners.push(listener);
      listener.on('error', (error) => log.error({ err: error }, 'the listening socket failed'));
      warmUpTimer ??= setTimeout(() => void contract.warm(log), warmAfterMs).unref();
      return bound;
    },
    close(closing) {
      clearTimeout(warmUpTimer);
      sockets.close(closing?.drainMs ?? defaultDrainMs);
      return drain.close(closing);
    },
  };
}

interface AdmissionOptions {
  server: ServerOptions;
  limits: ServerLimits;
  budget: BodyBudget;
  /** The default deadline of operations. */
  requestMs: number;
  requests: ActiveSet<HttpRequest>;
  connections: ConnectionLimits;
  drain: () => Drain;
}

/** The start and the end of each request: registers and checks it, and logs it when its response is over. */
function createAdmission(options: AdmissionOptions) {
  const { limits, budget, requestMs, requests, connections, drain } = options;
  const { log, clock, proxies, guard, observer, nameIdentity, callerOf } = options.server;

  function finish(place: Place<HttpRequest>): void {
    requests.delete(place);
    const request = place.member;
    if (!request.response.writableFinished) {
      request.isClientGone = true;
      request.abort();
    }
    const durationMs = clock.monotonicMs() - request.startedMs;
    observer?.recordEnd(request, durationMs);
    log.info(accessFields(request, durationMs, nameIdentity), 'request');
    drain().responseEnded();
  }

  /** Registers the request first, so that a rejection below is rendered, logged and counted too. */
  return (message: AdmittedMessage, response: ServerResponse): HttpRequest => {
    connections.usedBy(message.socket);
    const request = new HttpRequest(message, response, {
      requestId: id('req'),
      log,
      nowMs: clock.monotonicMs(),
      remoteAddress: clientAddress(message, proxies),
      limits: { maxBytes: limits.maxBodyBytes, deadlineMs: requestMs },
      budget,
      callerOf,
    });
    message[requestKey] = request;
    const place = requests.add(request);
    response.once('close', () => finish(place));
    connections.admit(request);
    guard?.(message);
    refuseAmbiguous(message, limits);
    drain().refuseLate();
    return request;
  };
}

interface HttpOptions {
  limits: ServerLimits;
  timeouts: ServerTimeouts;
  connections: ConnectionLimits;
  surface: Surface;
  sockets: WebSockets;
}

/**
 * Node's server with our limits, and a Problem as the response to each connection
 * and request that Node itself rejects.
 */
function createHttp(
  handle: (message: IncomingMessage, response: ServerResponse) => void,
  { limits, timeouts, connections, surface, sockets }: HttpOptions,
): HttpServer {
  const http = createHttpServer(
    {
      headersTimeout: timeouts.headersMs,
      // One limit for all operations, so it is their longest deadline; body.ts enforces the shorter ones.
      requestTimeout: Math.max(timeouts.requestMs, longestBodyMs),
      keepAliveTimeout: timeouts.keepAliveMs,
      connectionsCheckingInterval: timeouts.checkEveryMs,
      maxHeaderSize: limits.maxHeaderBytes,
      // Node's own rejection has no body; request-checks.ts rejects with one.
      requireHostHeader: false,
      // All other requests with `Upgrade` are answered as requests without it.
      shouldUpgradeCallback: (message) => sockets.handles(message),
    },
    handle,
  );
  // One more than allowed, so that a surplus header is rejected and not silently cut off.
  http.maxHeadersCount = limits.maxHeaders + 1;
  // With these listeners Node leaves the `100 Continue` to us; it is sent when the body is read (request.ts).
  http.on('checkContinue', handle);
  http.on('checkExpectation', handle);
  http.on('clientError', (error: NodeJS.ErrnoException, socket) =>
    refuseUnparsed(socket as Socket, error, surface),
  );
  http.on('upgrade', (message, socket, head) => sockets.upgrade(message, socket, head));
  http.on('connect', (_message, socket) => endWithProblem(socket as Socket, noTunnel(), surface));
  http.on('connection', (socket) => {
    if (!connections.accept(socket)) endWithProblem(socket, tooManyConnections(), surface);
  });
  return http;
}

interface SocketDependencies {
  limits: ServerLimits;
  budget: BodyBudget;
  connections: ConnectionLimits;
  drain: () => Drain;
}

function openSockets(
  { contract, sockets, surface, log, clock, cors, guard, proxies, callerOf, observer }: ServerOptions,
  { limits, budget, connections, drain }: SocketDependencies,
): WebSockets {
  return createWebSockets({
    contract,
    routes: sockets ?? [],
    surface,
    log,
    clock,
    budget,
    origins: new Set(cors?.origins),
    addressOf: (message) => clientAddress(message, proxies),
    callerOf: (identity) => callerOf?.(identity) ?? null,
    observer,
    admit(message) {
      connections.usedBy(message.socket);
      guard?.(message);
      refuseAmbiguous(message, limits);
      drain().refuseLate();
    },
  });
}

function socketCall(request: SocketRequest): RunningRequest[] {
  if (request.credential.kind !== 'bearer') return [];
  return [{ token: request.credential.token, end: (reason) => request.abort(reason) }];
}

function bearerRequest(request: HttpRequest): RunningRequest[] {
  if (request.credential.kind !== 'bearer' || request.identity === undefined) return [];
  return [{ token: request.credential.token, end: (reason) => endEarly(request, reason) }];
}

// A WeakMap entry for each request would cost more than the rest of its admission.
const requestKey = Symbol('request');
type AdmittedMessage = IncomingMessage & { [requestKey]?: HttpRequest };

interface RouterOptions {
  pages: readonly FilePages[];
  frontPage: (() => FrontPage) | undefined;
  fixedPages: ReadonlyMap<string, FixedPage>;
  admit(message: IncomingMessage, response: ServerResponse): HttpRequest;
  dispatch(request: HttpRequest): Promise<void>;
  responder: Responder;
  log: Log;
}

/**
 * The chain of each request: admission, then its page or the contract, and errors. Only pages pass an Express
 * router, and without an application: an application gives every request and response a new prototype, which
 * slows down all later use of them (a quarter of the kernel's processor time), and adds unused methods.
 */
function createRouter({ pages, frontPage, fixedPages, admit, dispatch, responder, log }: RouterOptions) {
  const router = express.Router();
  const getRequest = (message: IncomingMessage) => (message as AdmittedMessage)[requestKey];
  const folders = pages.map((page) => ({ ...page, prepare: createPageBuild(page, log) }));
  const findFolder = (path: string) =>
    folders.find(({ prefix }) => path === prefix || path.startsWith(`${prefix}/`));

  function renderError(error: unknown, message: IncomingMessage, response: ServerResponse): void {
    const request = getRequest(message);
    if (!request) {
      log.error({ err: error }, 'a request failed before it was admitted');
      response.destroy();
      return;
    }
    try {
      responder.problem(request, pageProblem(error) ?? error);
    } catch (renderingError) {
      request.log.error({ err: renderingError }, 'an error could not be rendered');
      response.destroy();
    }
  }

  for (const { prefix, directory } of pages) router.use(prefix, serveAssets(directory));
  // Paths below the pages without a file: the contract rejects them.
  router.use(((message) => dispatch(getRequest(message) as HttpRequest)) satisfies RequestHandler);
  // Express recognises an error handler by its four parameters.
  router.use(((error: unknown, message, response, _next) =>
    renderError(error, message, response)) satisfies ErrorRequestHandler);

  function servePage(request: HttpRequest, message: IncomingMessage, response: ServerResponse): void {
    for (const [name, value] of Object.entries({ ...responder.commonHeaders(request), ...pageHeaders }))
      response.setHeader(name, value);
    // Every request ends within the chain; the types of Express describe requests of an application.
    router(message as Request, response as Response, () => response.destroy());
  }

  function serveFixedPage(request: HttpRequest, { body, headers }: FixedPage): void {
    const sharedHeaders = responder.commonHeaders(request);
    const vary = [sharedHeaders['vary'], headers['vary']].filter((value) => value !== undefined).join(', ');
    request.response.writeHead(200, {
      ...sharedHeaders,
      ...headers,
      ...(vary === '' ? {} : { vary }),
      'content-length': String(Buffer.byteLength(body)),
    });
    request.response.end(body);
  }

  async function serve(message: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const request = admit(message, response);
      const isRead = request.method === 'GET' || request.method === 'HEAD';
      const folder = isRead ? findFolder(request.path) : undefined;
      const fixedPage = fixedPages.get(request.path);
      if (folder !== undefined) {
        if (folder.prepare(request, responder.commonHeaders(request))) servePage(request, message, response);
      } else if (isRead && request.path === '/' && frontPage)
        serveFixedPage(request, renderFrontPage(frontPage(), request.headers.accept));
      else if (isRead && fixedPage !== undefined) serveFixedPage(request, fixedPage);
      else await dispatch(request);
    } catch (error) {
      renderError(error, message, response);
    }
  }
  return (message: IncomingMessage, response: ServerResponse): void => void serve(message, response);
}

// Time to write the error of a stream; a revocation promises the end within five seconds.
const lastEventMs = 2_000;

function endEarly(request: HttpRequest, reason: Problem): void {
  request.abort(reason);
  const timer = setTimeout(() => request.response.destroy(), lastEventMs);
  timer.unref();
  request.response.once('close', () => clearTimeout(timer));
}

// CONNECT brings a raw socket and requests a tunnel.
function noTunnel(): Problem {
  return new Problem('method_not_allowed', 'method_not_allowed', 'This server supports no tunnels.', {
    headers: { allow: 'GET, HEAD, POST, OPTIONS' },
  });
}

// The headers of all file pages. A page's own policy in its `<meta>` narrows it. `frame-ancestors`
// works only in a header.
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

/** The Problem for an error of the file server: an invalid path, or a missing or hidden file. */
function pageProblem(error: unknown): Problem | undefined {
  if (!(error instanceof Error) || error instanceof Problem) return undefined;
  const { status } = error as { status?: unknown };
  if (status === 400) {
    const message = 'The path holds a percent encoding that cannot be decoded.';
    return new Problem('bad_request', 'invalid_path', message, { cause: error });
  }
  if (status === 403 || status === 404)
    return new Problem('not_found', 'route_not_found', 'There is nothing at this path.', { cause: error });
  return undefined;
}
