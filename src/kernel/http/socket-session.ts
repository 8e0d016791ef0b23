// One WebSocket. It runs its messages as calls, one after the other, and closes when it is idle, too old
// or when the server stops.
import type { IncomingMessage } from 'node:http';
import { WebSocket } from 'ws';
import type { Contract } from '../contract/contract.ts';
import { failureNote } from '../contract/failure-note.ts';
import { id } from '../ids.ts';
import { isRecord, type JsonRecord } from '../json-value.ts';
import { asProblem, Problem, renderProblem } from '../problem.ts';
import { parseBody } from './body/parser.ts';
import { readEvents } from './reply-events.ts';
import { SocketRequest, type SocketRequestOptions } from './socket-request.ts';

/** How the messages of one socket become calls. It may keep state; one call runs at a time. */
export interface SocketConversation {
  /**
   * Returns the body of the call for a message, the events of the answer if no call is needed, or
   * undefined for a message that gets no answer. Throws a Problem for an invalid message.
   */
  read(message: JsonRecord): { body: JsonRecord } | { events: readonly JsonRecord[] } | undefined;
  /** Called with each event of a call, and with the error of a refused message, before the event is sent. */
  observe(event: JsonRecord): void;
  close(): void;
}

export interface SocketRoute {
  /** The paths of the socket; each has a POST operation that streams. */
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
  /** A socket that runs no call and receives no message for this long is closed. */
  idleMs: number;
  /** The age at which a socket is closed, once no call runs. */
  ageMs: number;
  /** Interval of pings; a client that answers none is disconnected. */
  heartbeatMs: number;
  /** A client that accepts no bytes for this long is disconnected. */
  stallMs: number;
}

/** The options that every call of a socket needs. */
export interface SocketCallOptions extends Omit<SocketRequestOptions, 'message' | 'path'> {
  contract: Contract;
}

interface SessionOptions extends SocketCallOptions {
  limits: SocketLimits;
  client: WebSocket;
  message: IncomingMessage;
  path: string;
  route: SocketRoute;
  requests: Set<SocketRequest>;
}

/** Time for the client's part of the closing handshake. */
export const closeMs = 1_000;

/** One socket. A class, as its members change with each message. */
export class SocketSession {
  readonly #options: SessionOptions;
  readonly #client: WebSocket;
  readonly #conversation: SocketConversation;
  readonly #queue: Buffer[] = [];
  #queueBytes = 0;
  #runningCall: SocketRequest | undefined;
  #isWorking = false;
  /** Set once the socket is to close after its last call; the problem tells the client why. */
  #closeReason: { problem: Problem | undefined } | undefined;
  /** Whether the client has answered the last ping. */
  #isAlive = true;
  #idleTimer: NodeJS.Timeout | undefined;
  readonly #heartbeatTimer: NodeJS.Timeout;
  readonly #ageTimer: NodeJS.Timeout;

  constructor(options: SessionOptions) {
    const { client, limits, log, route } = options;
    this.#options = options;
    this.#client = client;
    this.#conversation = route.open();
    this.#heartbeatTimer = setInterval(() => this.#ping(), limits.heartbeatMs);
    this.#ageTimer = setTimeout(() => this.end(tooOld(limits.ageMs)), limits.ageMs);
    client.on('pong', () => (this.#isAlive = true));
    client.on('message', (data, isBinary) => this.#receive(data as Buffer, isBinary));
    // For an error such as a message that is too long, ws closes the socket itself.
    client.on('error', (error) => log.debug({ err: error }, 'a socket failed'));
    client.once('close', () => this.#onClose());
    this.#waitForMessage();
  }

  /** Closes the socket once no call runs and no message waits. */
  end(problem?: Problem): void {
    this.#closeReason ??= { problem };
    if (!this.#isWorking) this.#closeWith(this.#closeReason.problem);
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

  #closeWith(problem: Problem | undefined): void {
    if (problem !== undefined) void this.#send(errorEvent(problem, id('req')));
    this.#close(1001, 'going away');
  }

  #onClose(): void {
    clearInterval(this.#heartbeatTimer);
    clearTimeout(this.#ageTimer);
    clearTimeout(this.#idleTimer);
    this.#queue.length = 0;
    this.#conversation.close();
    this.#runningCall?.abort();
  }

  #ping(): void {
    if (!this.#isAlive) return this.destroy();
    this.#isAlive = false;
    this.#client.ping();
  }

  #waitForMessage(): void {
    clearTimeout(this.#idleTimer);
    if (this.#closeReason !== undefined) return this.#closeWith(this.#closeReason.problem);
    if (!this.#isOpen) return;
    this.#idleTimer = setTimeout(() => this.#close(1000, 'idle'), this.#options.limits.idleMs);
    this.#idleTimer.unref();
  }

  #receive(bytes: Buffer, isBinary: boolean): void {
    const { queueLength, queueBytes } = this.#options.limits;
    if (isBinary) return this.#close(1003, 'messages are JSON text');
    if (this.#closeReason !== undefined) return;
    this.#queueBytes += bytes.length;
    if (this.#queue.length >= queueLength || this.#queueBytes > queueBytes)
      return this.#close(1008, 'too many messages are waiting');
    this.#queue.push(bytes);
    void this.#work();
  }

  async #work(): Promise<void> {
    if (this.#isWorking) return;
    this.#isWorking = true;
    clearTimeout(this.#idleTimer);
    for (let bytes = this.#queue.shift(); bytes !== undefined; bytes = this.#queue.shift()) {
      this.#queueBytes -= bytes.length;
      await this.#answer(bytes);
    }
    this.#isWorking = false;
    this.#waitForMessage();
  }

  async #answer(bytes: Buffer): Promise<void> {
    let streamId: unknown;
    const request = new SocketRequest(this.#options);
    try {
      const { value: message } = await parseBody(bytes);
      if (!isRecord(message)) throw invalidMessage();
      streamId = message['stream_id'];
      const callOrAnswer = this.#conversation.read(message);
      if (callOrAnswer === undefined) return;
      if ('events' in callOrAnswer)
        for (const event of callOrAnswer.events) await this.#send(withStreamId(event, streamId));
      else {
        request.useBody(callOrAnswer.body, this.#options.route.maxMessageBytes);
        await this.#call(request, streamId);
      }
    } catch (error) {
      if (!this.#isOpen) return;
      const problem = problemOf(request, error);
      if (problem.kind === 'internal')
        request.log.error({ err: problem.cause ?? problem }, 'a socket call failed');
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
    this.#runningCall = request;
    requests.add(request);
    try {
      await (observer === undefined ? forward() : observer.runWithin(request, forward));
    } catch (error) {
      // A client that has left receives no error, and its leaving is not one.
      if (this.#isOpen) noteFailure(request, problemOf(request, error));
      throw error;
    } finally {
      request.isClientGone = !this.#isOpen;
      request.end();
      requests.delete(request);
      this.#runningCall = undefined;
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

  /**
   * Waits while the client is slow. A large event is sent in fragments (RFC 6455, section 5.4), since the
   * stall timer starts again for each of them, and pings go between them.
   */
  async #send(event: JsonRecord): Promise<void> {
    const bytes = Buffer.from(JSON.stringify(event));
    for (let offset = 0; offset < bytes.length; offset += fragmentBytes) {
      if (!this.#isOpen) return;
      const end = offset + fragmentBytes;
      await this.#sendFragment(bytes.subarray(offset, end), end >= bytes.length);
    }
  }

  async #sendFragment(bytes: Buffer, isLast: boolean): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#client.send(bytes, { binary: false, fin: isLast }, () => resolve());
    if (this.#client.bufferedAmount < maxBufferedBytes) return;
    const timer = setTimeout(() => this.destroy(), this.#options.limits.stallMs);
    await promise;
    clearTimeout(timer);
  }
}

/** A call that was stopped by a drain or a revocation may throw any error; the client receives the reason. */
function problemOf({ abortReason }: SocketRequest, error: unknown): Problem {
  return asProblem(abortReason instanceof Problem ? abortReason : error);
}

function noteFailure(request: SocketRequest, problem: Problem): void {
  request.response.statusCode = problem.status;
  request.note(failureNote(problem));
}

const fragmentBytes = 64 * 1024;

// With this many bytes in the socket's buffer, the next fragment waits for the client.
const maxBufferedBytes = 256 * 1024;

function withStreamId(event: JsonRecord, streamId: unknown): JsonRecord {
  return typeof streamId === 'string' ? { ...event, stream_id: streamId.slice(0, 256) } : event;
}

/** Adds a status to an error event: Codex ignores an error without one and keeps waiting for the call. */
function withStatus(event: JsonRecord): JsonRecord {
  return event['type'] === 'error' ? { status: 502, ...event } : event;
}

/**
 * The error event that OpenAI's clients and Codex read, with the status that the call would have over HTTP.
 */
function errorEvent(problem: Problem, requestId: string): JsonRecord {
  const { error } = renderProblem(problem, requestId);
  return {
    type: 'error',
    status: problem.status,
    error,
    headers: { ...problem.headers, 'x-request-id': requestId },
  };
}

function invalidMessage(): Problem {
  return new Problem('bad_request', 'invalid_request', 'A message must be a JSON object with a `type`.', {
    param: 'type',
  });
}

function tooOld(ageMs: number): Problem {
  const message = `The socket has been open for ${Math.round(ageMs / 60_000)} minutes; open a new one.`;
  return new Problem('rate_limited', 'rate_limited', message, {
    externalCode: 'websocket_connection_limit_reached',
  });
}
