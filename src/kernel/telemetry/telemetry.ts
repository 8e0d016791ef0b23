// Metrics and traces of one server, put together: what is off is not even loaded. It also follows each request, so
// that what is measured deep below is counted to the request that it was done for.
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from '../clock.ts';
import type { Log } from '../log.ts';
import type { CallNote } from '../contract/operation.ts';
import type { RequestObserver } from '../http/server.ts';
import type { HttpRequest } from '../http/request.ts';
import type { MetricsListener } from './metrics-listener.ts';
import { type Metrics, secondsBuckets, silentMetrics } from './metrics.ts';
import type { TraceSettings } from './opentelemetry.ts';
import type { TelemetryContext, RequestEnd, RequestScope } from './context.ts';
import { silentTraces, type Span, type Traces } from './traces.ts';

export interface TelemetrySettings {
  /** Where metrics are read; null for nowhere. */
  metrics: { host: string; port: number } | null;
  /** Where spans are sent; null for nowhere. */
  traces: TraceSettings | null;
}

export interface TelemetryNeeds {
  settings: TelemetrySettings;
  surface: 'gateway' | 'agent';
  version: string;
  /** Takes live secrets out of what goes into a span. */
  hide: (text: string) => string;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
  log: Log;
  /** Between two batches of spans; for tests. */
  batchEveryMs?: number;
}

export interface Telemetry {
  metrics: Metrics;
  traces: Traces;
  /** For the server. */
  observer: RequestObserver;
  /** The request for which the caller works at this moment. */
  request(): RequestScope | undefined;
  /** Told of each request that has ended. */
  onRequestEnd(listener: (end: RequestEnd) => void): void;
  /** Serves the metrics, when that was asked for. Rejects when their address cannot be had. */
  listen(): Promise<{ url: string } | null>;
  close(): Promise<void>;
}

export async function openTelemetry(needs: TelemetryNeeds): Promise<Telemetry> {
  const { settings, clock, log } = needs;
  const place = new AsyncLocalStorage<TelemetryContext>();
  const prometheus =
    settings.metrics === null ? undefined : (await import('./prometheus.ts')).openPrometheus({ log });
  const spans =
    settings.traces === null
      ? undefined
      : (await import('./opentelemetry.ts')).openOpenTelemetry({
          ...needs,
          settings: settings.traces,
          place,
        });
  const metrics = prometheus ?? silentMetrics;
  const traces = spans ?? silentTraces;
  const listeners: ((end: RequestEnd) => void)[] = [];
  let listener: MetricsListener | undefined;

  const observer = observe({ place, metrics, traces, clock, listeners });
  return {
    metrics,
    traces,
    observer,
    request: () => place.getStore()?.request,
    onRequestEnd: (told) => void listeners.push(told),
    async listen() {
      if (settings.metrics === null || prometheus === undefined) return null;
      const { listenForMetrics } = await import('./metrics-listener.ts');
      listener = await listenForMetrics(settings.metrics, { prometheus, log });
      log.info({ url: listener.url }, 'serving metrics');
      return { url: listener.url };
    },
    async close() {
      await listener?.close();
      await spans?.close();
    },
  };
}

interface Observing {
  place: AsyncLocalStorage<TelemetryContext>;
  metrics: Metrics;
  traces: Traces;
  clock: Pick<Clock, 'monotonicMs'>;
  listeners: readonly ((end: RequestEnd) => void)[];
}

/** One request that is being followed. */
interface Followed {
  span: Span | undefined;
  ending: ((end: RequestEnd) => void)[];
}

function observe({ place, metrics, traces, listeners }: Observing): RequestObserver {
  const followed = new Map<HttpRequest, Followed>();
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
  const abandoned = metrics.counter(
    'townhall_requests_abandoned_total',
    'Requests whose client went away before it had the whole answer.',
    ['operation'],
  );
  metrics.gauge(
    'townhall_requests_in_flight',
    'Requests that have not got their whole answer yet.',
    () => followed.size,
  );
  metrics.gauge(
    'townhall_open_streams',
    'Answers that are streams and have not ended.',
    () => [...followed.keys()].filter(({ isStream }) => isStream).length,
  );

  return {
    within(visit, work) {
      const span = traces.isOn
        ? traces.start(visit.method, {
            kind: 'server',
            remoteParent: headerOf(visit.headers.traceparent),
            attributes: { 'http.request.method': visit.method },
          })
        : undefined;
      if (span !== undefined) visit.trace = { traceId: span.traceId, spanId: span.spanId };
      const known = followed.get(visit) ?? { span, ending: [] };
      followed.set(visit, known);
      const request: RequestScope = {
        requestId: visit.requestId,
        get operationId() {
          return visit.operation?.operationId;
        },
        startedMs: visit.startedMs,
        note: (fields) => visit.note(fields),
        onEnd: (listener) => void known.ending.push(listener),
      };
      return place.run({ request, span }, work);
    },
    ended(visit, durationMs) {
      const operation = visit.operation?.operationId ?? 'none';
      requests.add([operation, String(visit.response.statusCode), visit.identity?.kind ?? 'none']);
      durations.observe([operation], durationMs / 1000);
      if (visit.clientGone) abandoned.add([operation]);
      const known = followed.get(visit);
      followed.delete(visit);
      const end: RequestEnd = {
        isStream: visit.isStream,
        clientGone: visit.clientGone,
        noted: visit.noted ?? {},
      };
      for (const listener of known?.ending ?? []) listener(end);
      for (const listener of listeners) listener(end);
      if (known?.span) endServerSpan(known.span, visit);
    },
  };
}

function endServerSpan(span: Span, visit: HttpRequest): void {
  const { operation, identity, response, noted } = visit;
  const status = response.statusCode;
  if (operation) span.rename(operation.operationId);
  span.set({
    'http.response.status_code': status,
    'townhall.operation': operation?.operationId,
    'townhall.identity': identity?.kind,
    'townhall.request_id': visit.requestId,
    'townhall.client_gone': visit.clientGone ? true : undefined,
    ...(noted ? noteAttributes(noted) : {}),
  });
  // A refusal is the caller's affair; the span of the server failed when the server did.
  if (status >= 500) span.fail(String(status));
  span.end();
}

/** What a handler noted, under the names of OpenTelemetry's conventions for generative models. */
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

function headerOf(value: string | string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}
