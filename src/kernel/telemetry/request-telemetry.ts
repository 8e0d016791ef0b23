// Counts, times and traces every request of the server.
import type { AsyncLocalStorage } from 'node:async_hooks';
import { ActiveSet, type ActiveSetEntry } from '../active-set.ts';
import type { CallNote } from '../contract/operation.ts';
import type { ObservedCall, RequestEnd, RequestObserver, RequestScope } from '../http/observer.ts';
import type { TelemetryContext } from './context.ts';
import { type Metrics, secondsBuckets } from './metrics.ts';
import type { Span, Traces } from './traces.ts';

export interface RequestTelemetryOptions {
  context: AsyncLocalStorage<TelemetryContext>;
  metrics: Metrics;
  traces: Traces;
}

/** A class: an object literal with a getter costs as much as the rest of a request's telemetry. */
class ObservedRequest implements RequestScope {
  readonly span: Span | undefined;
  readonly #request: ObservedCall;
  #listeners: ((end: RequestEnd) => void)[] = [];
  #hasEnded = false;

  constructor(request: ObservedCall, span: Span | undefined) {
    this.#request = request;
    this.span = span;
  }

  get requestId(): string {
    return this.#request.requestId;
  }

  get operationId(): string | undefined {
    return this.#request.operation?.handlerId;
  }

  get startedMs(): number {
    return this.#request.startedMs;
  }

  get isStream(): boolean {
    return this.#request.isStream;
  }

  get isClientGone(): boolean {
    return this.#request.isClientGone;
  }

  note(fields: CallNote): void {
    this.#request.note(fields);
  }

  onEnd(listener: (end: RequestEnd) => void): void {
    if (this.#hasEnded) listener(this.#describeEnd());
    else this.#listeners.push(listener);
  }

  end(): void {
    this.#hasEnded = true;
    const listeners = this.#listeners;
    this.#listeners = [];
    const end = this.#describeEnd();
    for (const listener of listeners) listener(end);
  }

  #describeEnd(): RequestEnd {
    const { isStream, isClientGone, notes = {} } = this.#request;
    return { isStream, isClientGone, notes };
  }
}

/**
 * The scope of work that may outlive its request, such as a background response. It ends with the work. The
 * request gets its notes too: they appear in the request's log line unless that is already written.
 */
class DetachedScope implements RequestScope {
  readonly #request: RequestScope;
  readonly #listeners: ((end: RequestEnd) => void)[] = [];
  readonly #notes: CallNote = {};

  constructor(request: RequestScope) {
    this.#request = request;
  }

  get requestId(): string {
    return this.#request.requestId;
  }

  get operationId(): string | undefined {
    return this.#request.operationId;
  }

  get startedMs(): number {
    return this.#request.startedMs;
  }

  get isClientGone(): boolean {
    return this.#request.isClientGone;
  }

  note(fields: CallNote): void {
    Object.assign(this.#notes, fields);
    this.#request.note(fields);
  }

  onEnd(listener: (end: RequestEnd) => void): void {
    this.#listeners.push(listener);
  }

  /** Such work reads the answer as a stream, whatever the request replies with. */
  end(): void {
    const end = { isStream: true, isClientGone: this.isClientGone, notes: this.#notes };
    for (const listener of this.#listeners) listener(end);
  }
}

/** Runs the work in a scope of its own that ends with it. Without a request it only runs the work. */
export async function runDetached<T>(
  context: AsyncLocalStorage<TelemetryContext>,
  work: () => Promise<T>,
): Promise<T> {
  const current = context.getStore();
  if (current?.request === undefined) return work();
  const scope = new DetachedScope(current.request);
  try {
    return await context.run({ ...current, request: scope }, work);
  } finally {
    scope.end();
  }
}

const entryKey = Symbol('entry');
/** The entry among the running requests, once the operation has begun. */
type TelemetryRequest = ObservedCall & { [entryKey]?: ActiveSetEntry<ObservedRequest> };

export function createRequestObserver(options: RequestTelemetryOptions): RequestObserver {
  const { context, metrics, traces } = options;
  const runningRequests = new ActiveSet<ObservedRequest>();
  const count = createRequestMetrics(metrics, () =>
    runningRequests.members().map(({ isStream }) => isStream),
  );

  return {
    runWithin(request: TelemetryRequest, work) {
      const observedRequest = new ObservedRequest(request, startServerSpan(traces, request));
      request[entryKey] = runningRequests.add(observedRequest);
      return context.run({ request: observedRequest, span: observedRequest.span }, work);
    },
    recordEnd(request: TelemetryRequest, durationMs) {
      count(request, durationMs);
      const { [entryKey]: entry } = request;
      if (entry !== undefined) runningRequests.delete(entry);
      const observedRequest = entry?.member;
      observedRequest?.end();
      if (observedRequest?.span) endServerSpan(observedRequest.span, request);
    },
  };
}

/**
 * Returns the function that counts a request that has ended. `listRunning` returns for each running request
 * whether its answer is a stream.
 */
function createRequestMetrics(
  metrics: Metrics,
  listRunning: () => boolean[],
): (request: ObservedCall, durationMs: number) => void {
  const requests = metrics.counter(
    'townhall_requests_total',
    'Requests that have ended, by operation, status and kind of identity.',
    ['operation', 'status', 'identity'],
  );
  const durations = metrics.histogram(
    'townhall_request_duration_seconds',
    'From the arrival of a request to the last byte of its answer.',
    ['operation'],
    secondsBuckets,
  );
  const abandonedRequests = metrics.counter(
    'townhall_requests_abandoned_total',
    'Requests whose client disconnected before the end of the answer.',
    ['operation'],
  );
  metrics.gauge(
    'townhall_requests_in_flight',
    'Requests whose answer is not complete.',
    () => listRunning().length,
  );
  metrics.gauge(
    'townhall_open_streams',
    'Answers that are streams and have not ended.',
    () => listRunning().filter((isStream) => isStream).length,
  );
  return (request, durationMs) => {
    const operation = request.operation?.handlerId ?? 'none';
    requests.add([operation, String(request.response.statusCode), request.identity?.kind ?? 'none']);
    durations.observe([operation], durationMs / 1000);
    if (request.isClientGone) abandonedRequests.add([operation]);
  };
}

function startServerSpan(traces: Traces, request: ObservedCall): Span | undefined {
  if (!traces.isOn) return undefined;
  const { traceparent } = request.headers;
  const span = traces.start(request.method, {
    kind: 'server',
    remoteParent: typeof traceparent === 'string' ? traceparent : undefined,
    attributes: { 'http.request.method': request.method },
  });
  request.trace = { traceId: span.traceId, spanId: span.spanId };
  return span;
}

function endServerSpan(span: Span, request: ObservedCall): void {
  const { operation, identity, response, notes } = request;
  const status = response.statusCode;
  if (operation) span.rename(operation.handlerId);
  span.set({
    'http.response.status_code': status,
    'townhall.operation': operation?.handlerId,
    'townhall.identity': identity?.kind,
    'townhall.request_id': request.requestId,
    'townhall.client_gone': request.isClientGone ? true : undefined,
    ...(notes ? noteAttributes(notes) : {}),
  });
  // A 4xx is the caller's error, and OpenTelemetry leaves the status of a server span unset for it.
  if (status >= 500) span.fail(String(status));
  span.end();
}

/** A handler's notes under the names of OpenTelemetry's conventions for generative models. */
export function noteAttributes({
  model,
  provider,
  tokens,
  credits,
}: CallNote): Record<string, string | number | undefined> {
  const input =
    tokens === undefined
      ? undefined
      : (tokens.input ?? 0) + (tokens.cachedInput ?? 0) + (tokens.cacheWrite ?? 0);
  const output = tokens === undefined ? undefined : (tokens.output ?? 0) + (tokens.reasoning ?? 0);
  return {
    'gen_ai.response.model': model,
    'gen_ai.provider.name': provider,
    'gen_ai.usage.input_tokens': input,
    'gen_ai.usage.output_tokens': output,
    'gen_ai.usage.cache_read.input_tokens': tokens?.cachedInput,
    'gen_ai.usage.cache_creation.input_tokens': tokens?.cacheWrite,
    'gen_ai.usage.reasoning.output_tokens': tokens?.reasoning,
    'townhall.credits': credits === undefined ? undefined : Number(credits),
  };
}
