// WebSockets on paths of the contract. Each message of a client is a call of the path's POST
// operation: it goes through the contract like a request, and the events of its reply are sent back as
// messages. This file accepts the sockets; socket-session.ts serves one socket. No other file uses ws.
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import { asProblem, Problem, type Surface } from '../problem.ts';
import { drainingProblem } from './drain.ts';
import { endWithProblem } from './raw-response.ts';
import { SocketRequest } from './socket-request.ts';
import {
  closeMs,
  type SocketCallOptions,
  type SocketLimits,
  type SocketRoute,
  SocketSession,
} from './socket-session.ts';

export type { SocketConversation, SocketLimits, SocketRoute } from './socket-session.ts';

const defaultLimits: SocketLimits = {
  perCaller: 32,
  queueLength: 8,
  queueBytes: 16 * 2 ** 20,
  idleMs: 10 * 60_000,
  ageMs: 60 * 60_000,
  heartbeatMs: 30_000,
  stallMs: 60_000,
};

export interface WebSocketOptions extends SocketCallOptions {
  routes: readonly SocketRoute[];
  surface: Surface;
  limits?: Partial<SocketLimits>;
  /** Origins whose pages may open a socket; the server's own always may. */
  origins: ReadonlySet<string>;
  /** Rejects a request before its credential is read. */
  admit(message: IncomingMessage): void;
}

export interface WebSockets {
  /** Whether Node should leave the request to `upgrade` instead of answering it. */
  handles(message: IncomingMessage): boolean;
  upgrade(message: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** The running calls. */
  requests: ReadonlySet<SocketRequest>;
  /** Closes idle sockets at once and busy sockets after their call. Aborts calls that run after `drainMs`. */
  close(drainMs: number): void;
}

export function createWebSockets(options: WebSocketOptions): WebSockets {
  const limits = { ...defaultLimits, ...options.limits };
  const server = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload: Math.max(0, ...options.routes.map(({ maxMessageBytes }) => maxMessageBytes)),
  });
  const requests = new Set<SocketRequest>();
  const sessions = new Set<SocketSession>();
  const acquire = createSocketCounts(limits.perCaller);
  let isClosing = false;

  const routeOf = (path: string) => options.routes.find(({ paths }) => paths.includes(path));

  async function accept(message: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    options.admit(message);
    if (isClosing) throw drainingProblem();
    refuseOrigin(message, options.origins);
    const path = pathOf(message);
    const route = routeOf(path);
    if (route === undefined) throw new Error('A request without a route was upgraded.');
    const handshake = new SocketRequest({ ...options, message, path });
    await options.contract.authenticate(handshake);
    // The client may have disconnected. The socket then emits no further `close`, which releases the count.
    if (socket.destroyed) return;
    const { identity } = handshake;
    const release = acquire((identity && options.callerOf(identity)) ?? handshake.remoteAddress);
    socket.once('close', release);
    server.handleUpgrade(message, socket, head, (client) => {
      const session = new SocketSession({ ...options, limits, client, message, path, route, requests });
      sessions.add(session);
      client.once('close', () => sessions.delete(session));
      if (isClosing) session.end();
    });
  }

  return {
    handles(message) {
      const isWebSocket = message.headers.upgrade?.toLowerCase() === 'websocket' && message.method === 'GET';
      return isWebSocket && routeOf(pathOf(message)) !== undefined;
    },
    upgrade(message, duplex, head) {
      const socket = duplex as Socket;
      // Remove the HTTP server's timeout, which is meant for requests.
      socket.setTimeout(0);
      socket.on('error', () => socket.destroy());
      accept(message, socket, head).catch((error: unknown) => refuseSocket(socket, error, options));
    },
    requests,
    close(drainMs) {
      isClosing = true;
      endSessions(sessions, requests, drainMs);
    },
  };
}

/** Answers the handshake with the error. */
function refuseSocket(
  socket: Socket,
  error: unknown,
  { log, surface }: Pick<WebSocketOptions, 'log' | 'surface'>,
): void {
  const problem = asProblem(error);
  if (problem.kind === 'internal') log.error({ err: problem.cause }, 'a socket could not be opened');
  if (!socket.destroyed) endWithProblem(socket, problem, surface);
}

function endSessions(
  sessions: ReadonlySet<SocketSession>,
  requests: ReadonlySet<SocketRequest>,
  drainMs: number,
): void {
  for (const session of sessions) session.end();
  const drainTimer = setTimeout(() => {
    for (const request of requests) request.abort(drainingProblem());
    setTimeout(() => {
      for (const session of sessions) session.destroy();
    }, closeMs).unref();
  }, drainMs);
  drainTimer.unref();
}

/** Counts the sockets of each caller. Throws a 429 beyond the limit; the result releases the socket. */
function createSocketCounts(limit: number): (caller: string) => () => void {
  const counts = new Map<string, number>();
  return (caller) => {
    const count = counts.get(caller) ?? 0;
    if (count >= limit) throw tooManySockets(limit);
    counts.set(caller, count + 1);
    return () => {
      const remainingCount = (counts.get(caller) ?? 1) - 1;
      if (remainingCount > 0) counts.set(caller, remainingCount);
      else counts.delete(caller);
    };
  };
}

function pathOf({ url = '' }: IncomingMessage): string {
  const queryStart = url.indexOf('?');
  return queryStart < 0 ? url : url.slice(0, queryStart);
}

function refuseOrigin({ headers }: IncomingMessage, origins: ReadonlySet<string>): void {
  const { origin, host } = headers;
  if (origin === undefined || origins.has(origin)) return;
  if (origin === `http://${host}` || origin === `https://${host}`) return;
  throw new Problem('forbidden', 'forbidden_origin', 'Pages of this origin may not open a socket here.');
}

function tooManySockets(limit: number): Problem {
  return new Problem('rate_limited', 'rate_limited', `You have ${limit} sockets open; close one.`, {
    headers: { 'retry-after': '1' },
  });
}
