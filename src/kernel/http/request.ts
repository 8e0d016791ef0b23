// One HTTP request from its arrival to the last byte of its response: ids,
// credential, abort signal, and its data for the log, metrics and traces. The server
// creates one for each request and passes it through the contract.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { BodyBudget } from './body/budget.ts';
import { type BodyLimits, receiveBody } from './body/body.ts';
import {
  type ContractRequest,
  type Credential,
  parseCredential,
  type RequestBody,
} from '../contract/request.ts';
import type { CallNote } from '../contract/operation.ts';
import type { ContractOperation } from '../contract/operations.ts';
import type { ErrorDialect } from '../error-dialects.ts';
import type { Log } from '../log.ts';

export interface HttpRequestOptions {
  requestId: string;
  log: Log;
  nowMs: number;
  /** The client's address, even if the request came through a trusted proxy. */
  remoteAddress: string;
  limits: BodyLimits;
  budget: BodyBudget;
  /** The key under which the large bodies of an identity are counted; null counts them by address. */
  callerOf?: ((identity: { kind: string }) => string | null) | undefined;
}

/** The trace that a request belongs to. */
export interface RequestTrace {
  traceId: string;
  spanId: string;
}

const traceparentShape = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}/;

/** A class, so that methods are not created anew for every request. */
export class HttpRequest implements ContractRequest {
  readonly message: IncomingMessage;
  readonly response: ServerResponse;
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly headers: IncomingMessage['headers'];
  credential: Credential;
  readonly requestId: string;
  readonly startedMs: number;
  readonly remoteAddress: string;
  operation: ContractOperation | undefined = undefined;
  errorDialect: ErrorDialect | undefined = undefined;
  identity: { kind: string } | undefined = undefined;
  isHandled = false;
  responseHeaders: Record<string, string> | undefined = undefined;
  /** The client closed the connection before the response was complete. */
  isClientGone = false;
  /** The client waits for `100 Continue` before it sends its body. */
  awaitsContinue: boolean;
  isStream = false;
  /** Our span of the request; without it the log lines carry the caller's trace. */
  trace: RequestTrace | undefined = undefined;
  /** The note of the handler. */
  notes: CallNote | undefined = undefined;
  /** Length of the body as received. */
  bytesIn = 0;
  /** Time spent in other services, by the names of `Server-Timing`. */
  timings: Map<string, number> | undefined = undefined;
  readonly #bytesBefore: number;
  readonly #options: HttpRequestOptions;
  // The abort controller and the log are created when they are first used: most requests need neither.
  #controller: AbortController | undefined = undefined;
  #log: Log | undefined = undefined;
  #isAborted = false;
  /** Bytes that the budget of large bodies has counted for this request. */
  #largeBytes = 0;
  #abortReason: unknown = undefined;

  constructor(message: IncomingMessage, response: ServerResponse, options: HttpRequestOptions) {
    const target = message.url ?? '/';
    const path = target.startsWith('/') ? target : target.replace(/^https?:\/\/[^/?]*/i, '');
    const queryStart = path.indexOf('?');
    this.message = message;
    this.response = response;
    this.method = message.method ?? 'GET';
    this.path = queryStart < 0 ? path : path.slice(0, queryStart);
    this.query = queryStart < 0 ? '' : path.slice(queryStart + 1);
    this.headers = message.headers;
    this.credential = parseCredential(message.headers.authorization);
    this.requestId = options.requestId;
    this.startedMs = options.nowMs;
    this.remoteAddress = options.remoteAddress;
    this.awaitsContinue = this.headers.expect !== undefined;
    this.#options = options;
    this.#bytesBefore = message.socket.bytesWritten;
  }

  get log(): Log {
    this.#log ??= this.#options.log.child({
      requestId: this.requestId,
      ...traceFields(this.trace, this.headers['traceparent']),
    });
    return this.#log;
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#isAborted) this.#controller.abort(this.#abortReason);
    }
    return this.#controller.signal;
  }

  /** Aborts `signal` with the reason. The client receives a reason that is a Problem as its error. */
  abort(reason?: unknown): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    this.#abortReason = reason;
    this.#controller?.abort(reason);
  }

  get abortReason(): unknown {
    return this.#abortReason;
  }

  timing(name: string, durationMs: number): void {
    this.timings ??= new Map();
    this.timings.set(name.replace(/[^\w-]/g, '-'), durationMs);
  }

  note(fields: CallNote): void {
    this.notes = this.notes === undefined ? { ...fields } : Object.assign(this.notes, fields);
    if (fields.upstreamMs !== undefined) this.timing('upstream', fields.upstreamMs);
  }

  /**
   * The value of `Server-Timing`: the time spent in other services, and as `app`
   * this server's own time so far.
   */
  serverTiming(nowMs: number): string {
    const upstreamMs = this.timings?.get('upstream') ?? 0;
    const app = `app;dur=${Math.max(nowMs - this.startedMs - upstreamMs, 0).toFixed(1)}`;
    if (this.timings === undefined) return app;
    return [...[...this.timings].map(([name, ms]) => `${name};dur=${ms.toFixed(1)}`), app].join(', ');
  }

  /** Bytes of the response, head included, that are written to the socket so far. */
  get bytesOut(): number {
    return this.message.socket.bytesWritten - this.#bytesBefore;
  }

  readBody(operation: ContractOperation): RequestBody | Promise<RequestBody> {
    // The body is read, and thus `100 Continue` sent, only once the request is authorized.
    if (this.awaitsContinue) this.response.writeContinue();
    this.awaitsContinue = false;
    const body = receiveBody(this.message, operation, this.#options.limits, (bytes) =>
      this.#countLarge(bytes),
    );
    return body instanceof Promise
      ? body.then((receivedBody) => this.#countBytes(receivedBody))
      : this.#countBytes(body);
  }

  // Large bodies count until the response is over, as their values are in use until then.
  #countLarge(bytes: number): void {
    const { budget, callerOf } = this.#options;
    // A closed response emits no further `close`, so nothing would return the bytes to the budget.
    if (this.response.closed) return;
    const caller = (this.identity && callerOf?.(this.identity)) ?? this.remoteAddress;
    budget.take(caller, bytes);
    if (this.#largeBytes === 0) this.response.once('close', () => budget.give(caller, this.#largeBytes));
    this.#largeBytes += bytes;
  }

  #countBytes(body: RequestBody): RequestBody {
    this.bytesIn = body.raw.byteLength;
    return body;
  }
}

/**
 * Links a log line to our span of the request, or to the caller's when it sent a well-formed `traceparent`.
 */
function traceFields(trace: RequestTrace | undefined, traceparent: string | string[] | undefined): object {
  if (trace !== undefined) return { traceId: trace.traceId, spanId: trace.spanId };
  const match = typeof traceparent === 'string' ? traceparentShape.exec(traceparent) : null;
  return match ? { traceId: match[1], parentSpanId: match[2] } : {};
}
