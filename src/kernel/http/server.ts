// The HTTP server of both surfaces: its listeners, limits and deadlines. request-handler.ts handles
// its requests, websocket.ts its upgrades, and drain.ts closes it.
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server as HttpServer,
  type ServerResponse,
} from 'node:http';
import { createServer as createNetServer, type Server as NetServer, type Socket } from 'node:net';
import { ActiveSet } from '../active-set.ts';
import { type AdmissionOptions, createAdmission } from './admission.ts';
import { type BodyBudget, type BodyBudgetLimits, createBodyBudget } from './body/budget.ts';
import type { Contract } from '../contract/contract.ts';
import {
  clientAddress,
  createConnectionLimits,
  tooManyConnections,
  type ConnectionLimits,
} from './connection-limits.ts';
import { type CloseOptions, createDrain, type Drain } from './drain.ts';
import type { FixedPage } from './pages/fixed-pages.ts';
import type { FrontPage } from './pages/front-page.ts';
import { listenAt, type ListenAddress } from './listen.ts';
import type { Log } from '../log.ts';
import { Problem, type Surface } from '../problem.ts';
import { endWithProblem, refuseUnparsed } from './raw-response.ts';
import type { HttpRequest } from './request.ts';
import { refuseAmbiguous, type RequestLimits } from './request-checks.ts';
import { createRequestHandler, type FilePages } from './request-handler.ts';
import { createResponder, type CorsRules } from './respond.ts';
import type { SocketRequest } from './socket-request.ts';
import { createWebSockets, type SocketRoute, type WebSockets } from './websocket.ts';

export type { FilePages, ListenAddress };

export interface ServerTimeouts {
  /** Deadline of the head of a request. */
  headersMs: number;
  /** Deadline of a whole request, its body included, unless the operation has its own. */
  requestMs: number;
  keepAliveMs: number;
  /** Interval at which Node checks the two deadlines above. */
  checkEveryMs: number;
  heartbeatMs: number;
  /** A client that accepts no bytes of a response for this long is disconnected. */
  stalledMs: number;
  /**
   * Time between the abort of running requests at the end of a drain and the
   * destruction of their connections.
   */
  abortGraceMs: number;
  /** Time from the first listener to the compilation of all validators. */
  warmUpMs: number;
}

export interface ServerLimits extends RequestLimits {
  /** The limit of operations without an `x-max-body-bytes` of their own. */
  maxBodyBytes: number;
  maxHeaderBytes: number;
  maxConnections: number;
  /** Total bytes of large bodies (above 256 KiB) without a complete response, for one caller and for all. */
  largeBodyBytes: BodyBudgetLimits;
  /**
   * Connections of one client address. For clients behind a trusted proxy it limits their
   * concurrent requests. Loopback addresses have no such limit.
   */
  maxPerAddress: number;
}

// Upper bound of the body deadlines of all operations (`x-body-deadline-ms`).
const longestBodyMs = 120_000;

const defaultTimeouts: ServerTimeouts = {
  headersMs: 10_000,
  requestMs: 30_000,
  // The time exceeds the 60 s of common proxies, so that the proxy closes an idle connection first.
  keepAliveMs: 65_000,
  checkEveryMs: 1_000,
  heartbeatMs: 15_000,
  stalledMs: 60_000,
  abortGraceMs: 3_000,
  // The validators of all operations are compiled ahead of their first requests, but after the first
  // answer of /ready, because each compilation blocks the event loop for up to 24 ms.
  warmUpMs: 3_000,
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

export interface ServerOptions extends AdmissionOptions {
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
  limits?: Partial<ServerLimits>;
  timeouts?: Partial<ServerTimeouts>;
  /** Without it responses have no CORS headers. */
  cors?: { origins: readonly string[]; scoped?: CorsRules['scoped'] };
  /** The agent's errors also have `success: false`. */
  surface: Surface;
  /** Paths that also accept WebSockets. */
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
   * Accepts no more connections, then no more requests, waits `drainMs` for the running requests, then
   * aborts them. Resolves when the last connection is closed; a second call waits for the first.
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

  const responder = createResponder({
    contract,
    clock,
    surface,
    streams: { heartbeatMs: timeouts.heartbeatMs, stallMs: timeouts.stalledMs },
    cors: { origins: new Set(options.cors?.origins), scoped: options.cors?.scoped },
    isClosing: () => drain.isClosing(),
  });

  const budget = createBodyBudget(limits.largeBodyBytes);
  const admit = createAdmission(options, {
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
  const { stalledMs } = timeouts;
  const pageOptions = { pages, frontPage, fixedPages };
  const handle = createRequestHandler({ ...pageOptions, admit, dispatch, responder, stalledMs, log });
  const sockets = openSockets(options, { limits, budget, connections, drain: () => drain });
  const http = createHttp(handle, { limits, timeouts, connections, surface, sockets });
  const listeners = createListeners(http, { maxConnections: limits.maxConnections, log });
  const drain = createDrain({
    http,
    listeners: listeners.all,
    requests,
    unusedSockets: connections.unusedSockets,
    closeWebSockets: (drainMs) => sockets.close(drainMs),
    abortGraceMs: timeouts.abortGraceMs,
  });

  let warmUpTimer: NodeJS.Timeout | undefined;

  return {
    inFlight: () => requests.size + sockets.requests.size,
    runningRequests: () => [
      ...requests.members().flatMap(runningHttpRequest),
      ...[...sockets.requests].flatMap(runningSocketCall),
    ],
    async listen(address) {
      const bound = await listeners.open(address);
      warmUpTimer ??= setTimeout(() => void contract.warm(log), timeouts.warmUpMs).unref();
      return bound;
    },
    close(closeOptions) {
      clearTimeout(warmUpTimer);
      return drain.close(closeOptions);
    },
  };
}

interface Listeners {
  readonly all: readonly NetServer[];
  open(address: ListenAddress): ReturnType<typeof listenAt>;
}

/** The listening sockets of the server, one for each address. */
function createListeners(
  http: HttpServer,
  { maxConnections, log }: { maxConnections: number; log: Log },
): Listeners {
  const all: NetServer[] = [];
  return {
    all,
    async open(address) {
      // Node checks deadlines on the http server's own listener; further listeners only accept connections.
      const listener =
        all.length === 0 ? http : createNetServer((socket) => void http.emit('connection', socket));
      listener.maxConnections = maxConnections;
      const bound = await listenAt(listener, address);
      all.push(listener);
      listener.on('error', (error) => log.error({ err: error }, 'the listening socket failed'));
      return bound;
    },
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
  handleRequest: (message: IncomingMessage, response: ServerResponse) => void,
  { limits, timeouts, connections, surface, sockets }: HttpOptions,
): HttpServer {
  const handle = (message: IncomingMessage, response: ServerResponse): void => {
    if (!isRefused(message.socket)) handleRequest(message, response);
  };
  const http = createHttpServer(
    {
      headersTimeout: timeouts.headersMs,
      // One limit for all operations, so it is their longest deadline; body/body.ts enforces the
      // shorter ones.
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
  http.on('upgrade', (message, socket, head) => {
    if (!isRefused(message.socket)) sockets.upgrade(message, socket, head);
  });
  http.on('connect', (_message, socket) => endWithProblem(socket as Socket, noTunnel(), surface));
  http.on('connection', (socket) => {
    if (!connections.accept(socket)) endWithProblem(socket, tooManyConnections(), surface);
  });
  return http;
}

/**
 * Whether the connection has its last response already, as one above a limit has. Node still parses its
 * requests, which must have no effect: they cannot be answered, and their client repeats them after the 429.
 */
function isRefused(socket: Socket): boolean {
  return socket.writableEnded;
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
      connections.markUsed(message.socket);
      guard?.(message);
      refuseAmbiguous(message, limits);
      drain().refuseLate();
    },
  });
}

function runningSocketCall(request: SocketRequest): RunningRequest[] {
  if (request.credential.kind !== 'bearer') return [];
  return [{ token: request.credential.token, end: (reason) => request.abort(reason) }];
}

function runningHttpRequest(request: HttpRequest): RunningRequest[] {
  if (request.credential.kind !== 'bearer' || request.identity === undefined) return [];
  return [{ token: request.credential.token, end: (reason) => endEarly(request, reason) }];
}

// Time to write the last error of a stream. A revoked token must end its requests within five seconds.
const lastEventMs = 2_000;

function endEarly(request: HttpRequest, reason: Problem): void {
  request.abort(reason);
  const timer = setTimeout(() => request.response.destroy(), lastEventMs);
  timer.unref();
  request.response.once('close', () => clearTimeout(timer));
}

// Node hands over a raw socket for CONNECT, which the client wants to use as a tunnel.
function noTunnel(): Problem {
  return new Problem('method_not_allowed', 'method_not_allowed', 'This server supports no tunnels.', {
    headers: { allow: 'GET, HEAD, POST, OPTIONS' },
  });
}
