// One request from its arrival to its last byte: the ids it bears, the signal that says its client is gone,
// and what is known about it for the log. The server makes one for each request.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type BodyLimits, receiveBody } from './body.ts';
import type { Exchange, OperationFacts, ReceivedBody } from '../contract/exchange.ts';
import type { Log } from '../log.ts';
import type { CallNote } from '../contract/operation.ts';

export interface HttpRequestOptions {
  requestId: string;
  log: Log;
  nowMs: number;
  /** The client's address, behind whatever proxies are trusted. */
  remoteAddress: string;
  limits: BodyLimits;
}

/** The trace that a request belongs to. */
export interface RequestTrace {
  traceId: string;
  spanId: string;
}

const traceparentShape = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}/;

/** A class, unlike the house's closures: every request makes one, and its methods must not be made with it. */
export class HttpRequest implements Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly headers: IncomingMessage['headers'];
  readonly requestId: string;
  readonly startedMs: number;
  readonly remoteAddress: string;
  operation: OperationFacts | undefined = undefined;
  identity: { kind: string } | undefined = undefined;
  handled = false;
  answerHeaders: Record<string, string> | undefined = undefined;
  /** The client went away before it had the whole answer. */
  clientGone = false;
  /** The client holds its body back until it is told to go on. */
  awaitsContinue: boolean;
  /** The answer is a stream. */
  isStream = false;
  /** The span that was opened for it here; without one, what its lines name is the caller's. */
  trace: RequestTrace | undefined = undefined;
  /** What the handler said of it. */
  noted: CallNote | undefined = undefined;
  /** Of the body, as it was received. */
  bytesIn = 0;
  /** What others spent on it, by the names of `Server-Timing`. */
  timings: Map<string, number> | undefined = undefined;
  readonly #bytesBefore: number;
  readonly #needs: HttpRequestOptions;
  // Made on first use: most requests end without anybody having asked for the signal or a line of log.
  #controller: AbortController | undefined = undefined;
  #log: Log | undefined = undefined;
  #aborted = false;
  #abortReason: unknown = undefined;

  constructor(request: IncomingMessage, response: ServerResponse, needs: HttpRequestOptions) {
    const target = request.url ?? '/';
    const path = target.startsWith('/') ? target : target.replace(/^https?:\/\/[^/?]*/i, '');
    const cut = path.indexOf('?');
    this.request = request;
    this.response = response;
    this.method = request.method ?? 'GET';
    this.path = cut < 0 ? path : path.slice(0, cut);
    this.query = cut < 0 ? '' : path.slice(cut + 1);
    this.headers = request.headers;
    this.requestId = needs.requestId;
    this.startedMs = needs.nowMs;
    this.remoteAddress = needs.remoteAddress;
    this.awaitsContinue = this.headers.expect !== undefined;
    this.#needs = needs;
    this.#bytesBefore = request.socket.bytesWritten;
  }

  get log(): Log {
    this.#log ??= this.#needs.log.child({
      requestId: this.requestId,
      ...traceFields(this.trace, this.headers.traceparent),
    });
    return this.#log;
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#aborted) this.#controller.abort(this.#abortReason);
    }
    return this.#controller.signal;
  }

  /** Ends the visit's work; the reason is what a producer that is stopped by it will throw. */
  abort(reason?: unknown): void {
    if (this.#aborted) return;
    this.#aborted = true;
    this.#abortReason = reason;
    this.#controller?.abort(reason);
  }

  /** Why the visit was stopped before its end, when a reason was given. */
  get stopReason(): unknown {
    return this.#abortReason;
  }

  timing(name: string, durationMs: number): void {
    this.timings ??= new Map();
    this.timings.set(name.replace(/[^\w-]/g, '-'), durationMs);
  }

  note(fields: CallNote): void {
    this.noted = this.noted === undefined ? { ...fields } : Object.assign(this.noted, fields);
    if (fields.upstreamMs !== undefined) this.timing('upstream', fields.upstreamMs);
  }

  /**
   * The value of `Server-Timing`: what others spent, and as `app` the rest of the time until now, which is ours.
   */
  serverTiming(nowMs: number): string {
    const upstreamMs = this.timings?.get('upstream') ?? 0;
    const own = `app;dur=${Math.max(nowMs - this.startedMs - upstreamMs, 0).toFixed(1)}`;
    if (this.timings === undefined) return own;
    return [...[...this.timings].map(([name, ms]) => `${name};dur=${ms.toFixed(1)}`), own].join(', ');
  }

  /** Of its answer, with the head, as far as it was handed to the socket. */
  get bytesOut(): number {
    return this.request.socket.bytesWritten - this.#bytesBefore;
  }

  readBody(operation: OperationFacts): ReceivedBody | Promise<ReceivedBody> {
    // A client that asked first is told to go on only now, when somebody wants its body.
    if (this.awaitsContinue) this.response.writeContinue();
    this.awaitsContinue = false;
    const received = receiveBody(this.request, operation, this.#needs.limits);
    return received instanceof Promise ? received.then((body) => this.#weigh(body)) : this.#weigh(received);
  }

  #weigh(body: ReceivedBody): ReceivedBody {
    this.bytesIn = body.raw.byteLength;
    return body;
  }
}

/** Fields that tie a line to our span of the request, or to the caller's when it sent a well-formed `traceparent`. */
function traceFields(trace: RequestTrace | undefined, traceparent: string | string[] | undefined): object {
  if (trace !== undefined) return { traceId: trace.traceId, spanId: trace.spanId };
  const match = typeof traceparent === 'string' ? traceparentShape.exec(traceparent) : null;
  return match ? { traceId: match[1], parentSpanId: match[2] } : {};
}
