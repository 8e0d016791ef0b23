// Graceful shutdown of a server: stops accepting connections, then requests, waits for the running
// ones and then aborts them. An idle connection stays open for a moment, because its next request
// may be on the way.
import type { Server as HttpServer } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import type { ActiveSet } from '../active-set.ts';
import { nextTurn, pause, settlesWithin } from '../async.ts';
import { Problem } from '../problem.ts';
import type { HttpRequest } from './request.ts';

export interface CloseOptions {
  /** Time for running requests; 25 seconds when absent. */
  drainMs?: number;
  /**
   * Time during which connections are still accepted, so that a load balancer can
   * detect that this server is not ready. None by default.
   */
  noticeMs?: number;
  /**
   * Time after `noticeMs` during which requests on open connections are still answered, with
   * `Connection: close`, while another server at the same address accepts new connections. None by
   * default. At its end idle connections are closed, each at the earliest 0.4 seconds after its last
   * response. Requests that arrive on the other connections are answered until `drainMs`.
   */
  lingerMs?: number;
}

export interface Drain {
  /** True once `close` has been called: from then on every response closes its connection. */
  isClosing(): boolean;
  /**
   * Throws a 503 once new requests are refused: from the start of the drain or, with `lingerMs`, after
   * `drainMs`.
   */
  refuseLate(): void;
  /** Must be called when a response has ended or its client has disconnected. */
  responseEnded(): void;
  /** Resolves when the last connection is closed; a second call waits for the first. */
  close(options?: CloseOptions): Promise<void>;
}

export interface DrainOptions {
  http: HttpServer;
  /** The listening sockets. */
  listeners: readonly NetServer[];
  /** Requests whose response is not complete. */
  requests: Pick<ActiveSet<HttpRequest>, 'members'>;
  /** Connections that never sent a request. Node counts them as busy, so they would delay the shutdown. */
  unusedSockets: ReadonlySet<Socket>;
  /** Closes the WebSockets, whose connections belong to the listeners too, within `drainMs`. */
  closeWebSockets(drainMs: number): void;
  /** Time between the abort of running requests and the destruction of their connections. */
  abortGraceMs: number;
}

const defaultDrainMs = 25_000;

// The grace period exceeds a round trip: the response to the client and the client's next request.
const longestGraceMs = 400;

export function createDrain(options: DrainOptions): Drain {
  const { http, listeners, requests, unusedSockets, closeWebSockets, abortGraceMs } = options;
  const idleConnections = createIdleConnections(http);
  let isClosing = false;
  let refusesRequests = false;
  let firstClose: Promise<void> | undefined;

  function refuseRequests(): void {
    refusesRequests = true;
    idleConnections.endGrace();
  }

  async function close({
    drainMs = defaultDrainMs,
    noticeMs = 0,
    lingerMs = 0,
  }: CloseOptions): Promise<void> {
    isClosing = true;
    idleConnections.startGrace(Math.min(lingerMs, longestGraceMs));
    if (noticeMs > 0) await pause(noticeMs);
    const connectionsEnd = stopListening(listeners);
    closeWebSockets(drainMs);
    const abortTimer = setTimeout(() => {
      refuseRequests();
      for (const request of requests.members()) request.abort(drainingProblem());
    }, drainMs);
    const destroyTimer = setTimeout(() => http.closeAllConnections(), drainMs + abortGraceMs);
    if (lingerMs > 0) {
      await settlesWithin(connectionsEnd, { ms: Math.min(lingerMs, drainMs) });
      // If the process was suspended, its timers run before its sockets are read: first let the requests
      // in that have arrived meanwhile.
      await nextTurn();
    } else {
      refuseRequests();
    }
    for (const socket of unusedSockets) socket.destroy();
    idleConnections.close();
    await connectionsEnd;
    // All listeners are closed already; this stops Node's interval that checks deadlines.
    http.close();
    clearTimeout(abortTimer);
    clearTimeout(destroyTimer);
  }

  return {
    isClosing: () => isClosing,
    refuseLate() {
      if (refusesRequests) throw drainingProblem();
    },
    responseEnded() {
      if (isClosing) idleConnections.responseEnded();
    },
    close: (closeOptions = {}) => (firstClose ??= close(closeOptions)),
  };
}

/** Resolves when the last connection of every listener is closed. */
function stopListening(listeners: readonly NetServer[]): Promise<unknown> {
  // The http server's own `close` would also close idle connections whose next request may be on the way.
  const stop = (listener: NetServer) =>
    new Promise<void>((resolve) => NetServer.prototype.close.call(listener, () => resolve()));
  return Promise.all(listeners.map(stop));
}

/**
 * Closes kept-alive connections without a request, but none within the grace period after a response. Its
 * headers may have promised to keep the connection open, so the client may already be sending a request.
 */
function createIdleConnections(http: HttpServer) {
  let mayClose = false;
  /** Responses that ended within the grace period. */
  let graceCount = 0;
  let graceMs = 0;

  function closeUnlessGrace(): void {
    if (mayClose && graceCount === 0) http.closeIdleConnections();
  }

  return {
    startGrace: (ms: number) => void (graceMs = ms),
    /** Later responses get no grace period. */
    endGrace: () => void (graceMs = 0),
    responseEnded(): void {
      graceCount += 1;
      setTimeout(() => {
        void nextTurn().then(() => {
          graceCount -= 1;
          closeUnlessGrace();
        });
      }, graceMs);
    },
    /** Closes the idle connections, now and after each grace period. */
    close(): void {
      mayClose = true;
      closeUnlessGrace();
    },
  };
}

/** The reason with which calls are aborted at the end of a drain. */
export function drainingProblem(): Problem {
  return new Problem('unavailable', 'draining', 'The server is stopping; try again in a moment.', {
    headers: { 'retry-after': '1' },
  });
}
