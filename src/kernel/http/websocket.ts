// WebSockets on paths of the contract, and the only file that uses ws. Each message of a client is a call of
// the path's POST operation: it passes the contract as a request does, and its events are the messages back.
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocket, WebSocketServer } from 'ws';
import type { Contract } from '../contract/contract.ts';
import { id } from '../ids.ts';
import { isRecord, type JsonRecord } from '../json-value.ts';
import { asProblem, Problem, renderProblem } from '../problem.ts';
import { parseBody } from './body/parser.ts';
import { drainingProblem } from './drain.ts';
import { endWithProblem, type Surface } from './raw-response.ts';
import { readEvents } from './reply-events.ts';
import { SocketRequest, type SocketRequestOptions } from './socket-request.ts';

/** How the messages of one socket become calls. It may keep state; one call runs at a time. */
export interface SocketConversation {
  /**
   * The body of the call for a message, the answer where no call is needed, or undefined for a message
   * without an answer. Throws a Problem.
   */
  read(message: JsonRecord): { body: JsonRecord } | { events: readonly JsonRecord[] } | undefined;
  /** Each event of a call, and the error of a message that was refused, before it is sent. */
  observe(event: JsonRecord): void;
  close(): void;
}

export interface SocketRoute {
  /** Each with a POST operation that streams. */
  paths: readonly string[];
  /** Maximum size of one message. */
  maxMessageBytes: number;
  open(): SocketConversation;
}

export interface SocketLimits {
  /** Sockets of one caller. */
  perCaller: number;
  /** Messages that wait while a call runs, and their bytes. */
  queueLength: number;
  queueBytes: number;
  /** A socket without a call and without a message is closed. */
  idleMs: number;
  /** The age at which a socket is closed, once no call runs. */
  ageMs: number;
  /** Interval of pings; a client that answers none is disconnected. */
  heartbeatMs: number;
  /** A client that accepts no bytes for this long is disconnected. */
  stallMs: number;
}

const defaultLimits: SocketLimits = {
  perCaller: 32,
  queueLength: 8,
  queueBytes: 16 * 2 ** 20,
  idleMs: 10 * 60_000,
  ageMs: 60 * 60_000,
  heartbeatMs: 30_000,
  stallMs: 60_000,
};

export interface WebSocketOptions extends Omit<SocketRequestOptions, 'message' | 'path' | 'body'> {
  contract: Contract;
  routes: readonly SocketRoute[];
  surface: Surface;
  limits?: Partial<SocketLimits>;
  /** Origins whose pages may open a socket; the server's own always may. */
  origins: ReadonlySet<string>;
  /** Rejects a request before its credential is read. */
  admit(message: IncomingMessage): void;
  callerOf(identity: { kind: string }): string | null;
}

export interface WebSockets {
  /** Whether Node should leave the request to `upgrade` instead of answering it. */
  handles(message: IncomingMessage): boolean;
  upgrade(message: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** The running calls. */
  requests: ReadonlySet<SocketRequest>;
  /** Closes idle sockets at once and the others after their call, or after `drainMs` with an abort. */
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
  const sessions = new Set<Session>();
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
    const handshake = new SocketRequest({ ...options, message, path, body: undefined });
    await options.contract.authenticate(handshake);
    // The client may have left meanwhile; its `close` event may come or have come.
    if (socket.destroyed) return;
    const { identity } = handshake;
    const release = acquire((identity && options.callerOf(identity)) ?? handshake.remoteAddress);
    socket.once('close', release);
    server.handleUpgrade(message, socket, head, (client) => {
      const session = new Session({ ...options, limits, client, message, path, route, requests });
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
      // The server's deadlines are for requests.
      socket.setTimeout(0);
      socket.on('error', () => socket.destroy());
      accept(message, socket, head).catch((error: unknown) => {
        const problem = asProblem(error);
        if (problem.kind === 'internal')
          options.log.error({ err: problem.cause }, 'a socket could not be opened');
        if (!socket.destroyed) endWithProblem(socket, problem, options.surface);
      });
    },
    requests,
    close(drainMs) {
      isClosing = true;
      for (const session of sessions) session.end();
      const timer = setTimeout(() => {
        for (const request of requests) request.abort(drainingProblem());
        setTimeout(() => {
          for (const session of sessions) session.destroy();
        }, closeMs).unref();
      }, drainMs);
      timer.unref();
    },
  };
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

interface SessionOptions extends WebSocketOptions {
  limits: SocketLimits;
  client: WebSocket;
  message: IncomingMessage;
  path: string;
  route: SocketRoute;
  requests: Set<SocketRequest>;
}

const closeMs = 1_000;

/** One socket. A class, as its members change with each message. */
class Session {
  readonly #options: SessionOptions;
  readonly #client: WebSocket;
  readonly #conversation: SocketConversation;
  readonly #queue: Buffer[] = [];
  #queueBytes = 0;
  #running: SocketRequest | undefined;
  #isWorking = false;
  /** The reason for the client, once the socket is to close after its last call. */
  #ending: { problem: Problem | undefined } | undefined;
  #isAlive = true;
  #idle: NodeJS.Timeout | undefined;
  readonly #heartbeat: NodeJS.Timeout;
  readonly #age: NodeJS.Timeout;

  constructor(options: SessionOptions) {
    const { client, limits, log, route } = options;
    this.#options = options;
    this.#client = client;
    this.#conversation = route.open();
    this.#heartbeat = setInterval(() => this.#ping(), limits.heartbeatMs);
    this.#age = setTimeout(() => this.end(tooOld(limits.ageMs)), limits.ageMs);
    client.on('pong', () => (this.#isAlive = true));
    client.on('message', (data, isBinary) => this.#receive(data as Buffer, isBinary));
    // For an error such as a message that is too long, ws closes the socket itself.
    client.on('error', (error) => log.debug({ err: error }, 'a socket failed'));
    client.once('close', () => this.#closed());
    this.#waitForMessage();
  }

  /** Closes the socket once no call runs and no message waits. */
  end(problem?: Problem): void {
    this.#ending ??= { problem };
    if (!this.#isWorking) this.#leave(this.#ending.problem);
  }

  destroy(): void {
    this.#client.terminate();
  }

  get #isOpen(): boolean {
    return this.#client.readyState === WebSocket.OPEN;
  }

  #close(code: number, reason: string): void {
    this.#client.close(code, reason);
    setTimeout(() => this.destroy(), closeMs).unref();
  }

  #leave(problem: Problem | undefined): void {
    if (problem !== undefined) void this.#send(errorEvent(problem, id('req')));
    this.#close(1001, 'going away');
  }

  #closed(): void {
    clearInterval(this.#heartbeat);
    clearTimeout(this.#age);
    clearTimeout(this.#idle);
    this.#queue.length = 0;
    this.#conversation.close();
    this.#running?.abort();
  }

  #ping(): void {
    if (!this.#isAlive) return this.destroy();
    this.#isAlive = false;
    this.#client.ping();
  }

  #waitForMessage(): void {
    clearTimeout(this.#idle);
    if (this.#ending !== undefined) return this.#leave(this.#ending.problem);
    if (!this.#isOpen) return;
    this.#idle = setTimeout(() => this.#close(1000, 'idle'), this.#options.limits.idleMs);
    this.#idle.unref();
  }

  #receive(bytes: Buffer, isBinary: boolean): void {
    const { queueLength, queueBytes } = this.#options.limits;
    if (isBinary) return this.#close(1003, 'messages are JSON text');
    if (this.#ending !== undefined) return;
    this.#queueBytes += bytes.length;
    if (this.#queue.length >= queueLength || this.#queueBytes > queueBytes)
      return this.#close(1008, 'too many messages are waiting');
    this.#queue.push(bytes);
    void this.#work();
  }

  async #work(): Promise<void> {
    if (this.#isWorking) return;
    this.#isWorking = true;
    clearTimeout(this.#idle);
    for (let bytes = this.#queue.shift(); bytes !== undefined; bytes = this.#queue.shift()) {
      this.#queueBytes -= bytes.length;
      await this.#answer(bytes);
    }
    this.#isWorking = false;
    this.#waitForMessage();
  }

  async #answer(bytes: Buffer): Promise<void> {
    let streamId: unknown;
    const request = new SocketRequest({ ...this.#options, body: undefined });
    try {
      const { value } = await parseBody(bytes);
      if (!isRecord(value)) throw notAMessage();
      streamId = value['stream_id'];
      const result = this.#conversation.read(value);
      if (result === undefined) return;
      if ('events' in result)
        for (const event of result.events) await this.#send(withStreamId(event, streamId));
      else {
        request.useBody(result.body, this.#options.route.maxMessageBytes);
        await this.#call(request, streamId);
      }
    } catch (error) {
      if (!this.#isOpen) return;
      const problem = asProblem(request.abortReason instanceof Problem ? request.abortReason : error);
      if (problem.kind === 'internal')
        request.log.error({ err: problem.cause ?? problem }, 'a call of a socket failed');
      const event = errorEvent(problem, request.requestId);
      this.#conversation.observe(event);
      await this.#send(withStreamId(event, streamId));
    }
  }

  async #call(request: SocketRequest, streamId: unknown): Promise<void> {
    // The client may have left while its message was parsed.
    if (!this.#isOpen) return;
    const { observer, requests } = this.#options;
    const forward = () => this.#forward(request, streamId);
    this.#running = request;
    requests.add(request);
    try {
      await (observer === undefined ? forward() : observer.runWithin(request, forward));
    } catch (error) {
      request.response.statusCode = asProblem(error).status;
      throw error;
    } finally {
      request.isClientGone = !this.#isOpen;
      request.end();
      requests.delete(request);
      this.#running = undefined;
    }
  }

  async #forward(request: SocketRequest, streamId: unknown): Promise<void> {
    const reply = await this.#options.contract.dispatch(request);
    for await (const event of readEvents(reply)) {
      if (!this.#isOpen) return;
      this.#conversation.observe(event);
      await this.#send(withStreamId(withStatus(event), streamId));
    }
  }

  /** Waits while the client is slow. */
  async #send(event: JsonRecord): Promise<void> {
    if (!this.#isOpen) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#client.send(JSON.stringify(event), () => resolve());
    if (this.#client.bufferedAmount < sendBytes) return;
    const timer = setTimeout(() => this.destroy(), this.#options.limits.stallMs);
    await promise;
    clearTimeout(timer);
  }
}

// The socket's buffer up to which events are not awaited.
const sendBytes = 256 * 1024;

function withStreamId(event: JsonRecord, streamId: unknown): JsonRecord {
  return typeof streamId === 'string' ? { ...event, stream_id: streamId.slice(0, 256) } : event;
}

/** Codex ignores an error without a status and waits for the end of the call. */
function withStatus(event: JsonRecord): JsonRecord {
  return event['type'] === 'error' ? { status: 502, ...event } : event;
}

/** The form that OpenAI's clients and Codex read: with the status that the same call has over HTTP. */
function errorEvent(problem: Problem, requestId: string): JsonRecord {
  const { error } = renderProblem(problem, requestId);
  return {
    type: 'error',
    status: problem.status,
    error,
    headers: { ...problem.headers, 'x-request-id': requestId },
  };
}

function notAMessage(): Problem {
  return new Problem('bad_request', 'invalid_request', 'A message must be a JSON object with a `type`.', {
    param: 'type',
  });
}

function tooManySockets(limit: number): Problem {
  return new Problem('rate_limited', 'rate_limited', `You have ${limit} sockets open; close one.`, {
    headers: { 'retry-after': '1' },
  });
}

function tooOld(ageMs: number): Problem {
  const message = `The socket has been open for ${Math.round(ageMs / 60_000)} minutes; open a new one.`;
  return new Problem('rate_limited', 'rate_limited', message, {
    foreignCode: 'websocket_connection_limit_reached',
  });
}
