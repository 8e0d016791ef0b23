// One request from its arrival to its last byte: the ids it bears, the signal that says its client is gone,
// and what is known about it for the log. The server makes one for each request.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type BodyLimits, receiveBody } from './body.ts';
import type { Exchange, OperationFacts } from './contract.ts';
import type { Log } from './log.ts';

export interface Visit extends Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly startedMs: number;
  readonly timings: string[];
  /** Ends the visit's work; the reason is what a producer that is stopped by it will throw. */
  abort(reason?: unknown): void;
  /** The client holds its body back until it is told to go on. */
  awaitsContinue: boolean;
  /** The client went away before it had the whole answer. */
  clientGone: boolean;
}

export interface VisitNeeds {
  requestId: string;
  log: Log;
  nowMs: number;
  limits: BodyLimits;
}

const traceparentShape = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}/;

export function openVisit(request: IncomingMessage, response: ServerResponse, needs: VisitNeeds): Visit {
  // Made on first use: most requests end without anybody having asked for the signal or a line of log.
  let controller: AbortController | undefined;
  let log: Log | undefined;
  let aborted = false;
  let abortReason: unknown;
  const timings: string[] = [];
  const { path, query } = splitTarget(request.url ?? '/');

  return {
    request,
    response,
    method: request.method ?? 'GET',
    path,
    query,
    headers: request.headers,
    requestId: needs.requestId,
    remoteAddress: request.socket.remoteAddress ?? '',
    startedMs: needs.nowMs,
    timings,
    awaitsContinue: request.headers.expect !== undefined,
    operation: undefined,
    identity: undefined,
    handled: false,
    clientGone: false,
    get log() {
      log ??= needs.log.child({ requestId: needs.requestId, ...traceFields(request.headers.traceparent) });
      return log;
    },
    get signal() {
      if (!controller) {
        controller = new AbortController();
        if (aborted) controller.abort(abortReason);
      }
      return controller.signal;
    },
    abort(reason) {
      if (aborted) return;
      aborted = true;
      abortReason = reason;
      controller?.abort(reason);
    },
    timing(name, durationMs) {
      timings.push(`${name.replace(/[^\w-]/g, '-')};dur=${durationMs.toFixed(1)}`);
    },
    readBody(operation: OperationFacts) {
      // A client that asked first is told to go on only now, when somebody wants its body.
      if (this.awaitsContinue) response.writeContinue();
      this.awaitsContinue = false;
      return receiveBody(request, operation, needs.limits);
    },
  };
}

/** Fields that tie a line to the caller's trace, when it sent a well-formed `traceparent`. */
function traceFields(traceparent: string | string[] | undefined): object {
  const match = typeof traceparent === 'string' ? traceparentShape.exec(traceparent) : null;
  return match ? { traceId: match[1], parentSpanId: match[2] } : {};
}

function splitTarget(target: string): { path: string; query: string } {
  const path = target.startsWith('/') ? target : target.replace(/^https?:\/\/[^/?]*/i, '');
  const cut = path.indexOf('?');
  return cut < 0 ? { path, query: '' } : { path: path.slice(0, cut), query: path.slice(cut + 1) };
}
