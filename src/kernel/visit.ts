// One request from its arrival to its last byte: the ids it bears, the signal that says its client is gone,
// and what is known about it for the log. The server makes one for each request.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type BodyLimits, receiveBody } from './body.ts';
import type { Exchange, OperationFacts, ReceivedBody } from './contract.ts';
import type { Log } from './log.ts';

export interface VisitNeeds {
  requestId: string;
  log: Log;
  nowMs: number;
  /** The client's address, behind whatever proxies are trusted. */
  remoteAddress: string;
  limits: BodyLimits;
}

const traceparentShape = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}/;

/** A class, unlike the house's closures: every request makes one, and its methods must not be made with it. */
export class Visit implements Exchange {
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
  /** Entries of `Server-Timing` so far. */
  timings: string[] | undefined = undefined;
  readonly #needs: VisitNeeds;
  // Made on first use: most requests end without anybody having asked for the signal or a line of log.
  #controller: AbortController | undefined = undefined;
  #log: Log | undefined = undefined;
  #aborted = false;
  #abortReason: unknown = undefined;

  constructor(request: IncomingMessage, response: ServerResponse, needs: VisitNeeds) {
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
  }

  get log(): Log {
    this.#log ??= this.#needs.log.child({ requestId: this.requestId, ...traceFields(this.headers.traceparent) });
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
    this.timings ??= [];
    this.timings.push(`${name.replace(/[^\w-]/g, '-')};dur=${durationMs.toFixed(1)}`);
  }

  readBody(operation: OperationFacts): ReceivedBody | Promise<ReceivedBody> {
    // A client that asked first is told to go on only now, when somebody wants its body.
    if (this.awaitsContinue) this.response.writeContinue();
    this.awaitsContinue = false;
    return receiveBody(this.request, operation, this.#needs.limits);
  }
}

/** Fields that tie a line to the caller's trace, when it sent a well-formed `traceparent`. */
function traceFields(traceparent: string | string[] | undefined): object {
  const match = typeof traceparent === 'string' ? traceparentShape.exec(traceparent) : null;
  return match ? { traceId: match[1], parentSpanId: match[2] } : {};
}
