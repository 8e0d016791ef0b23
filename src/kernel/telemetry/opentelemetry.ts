// Exports spans over OTLP/HTTP with JSON, and the only file that knows
// OpenTelemetry. It is loaded only when an endpoint is set. A slow or dead collector
// costs a bounded queue: spans that do not fit are dropped, and no request waits.
import type { AsyncLocalStorage } from 'node:async_hooks';
import {
  type Attributes,
  type Context,
  ROOT_CONTEXT,
  type Span as ApiSpan,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
  type TracerProviderOptions,
} from '@opentelemetry/sdk-trace';
import { settlesWithin } from '../async.ts';
import type { Clock } from '../clock.ts';
import type { Log } from '../log.ts';
import { decodePercent } from '../percent-encoding.ts';
import type { Surface } from '../problem.ts';
import type { TelemetryContext } from './context.ts';
import type { Span, SpanAttributes, Traces } from './traces.ts';

export interface TraceSettings {
  /** The collector's address; spans are sent to `/v1/traces` below it. */
  endpoint: string;
  /** `name=value` pairs, separated by commas, such as a collector's key. */
  headers: string | undefined;
  serviceName: string;
  /**
   * Sampled share of the traces that start here, from 0 to 1; a trace from outside keeps its own
   * decision.
   */
  sampledShare: number;
}

export interface OpenTelemetry extends Traces {
  /** Sends the remaining spans, for two seconds at most. */
  close(): Promise<void>;
}

export interface OpenTelemetryOptions {
  settings: TraceSettings;
  surface: Surface;
  version: string;
  context: AsyncLocalStorage<TelemetryContext>;
  hide: (text: string) => string;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
  log: Log;
  /** Interval of batches; for tests. */
  batchEveryMs?: number;
}

// At most about 4 MB of spans; a batch that is not accepted within five seconds is dropped.
const maxQueuedSpans = 4_096;
const exportMs = 5_000;
const closeMs = 2_000;
const maxAttributeLength = 256;
const warnEveryMs = 60_000;

export function openOpenTelemetry(options: OpenTelemetryOptions): OpenTelemetry {
  const { version, context: current, hide, clock } = options;
  const provider = createProvider(options);
  const tracer = provider.getTracer('townhall', version);
  // Spans use the monotonic clock, so that a change of the wall clock cannot make one negative.
  const epochMs = clock.now().getTime() - clock.monotonicMs();
  const timeOf = (monotonicMs: number): number => epochMs + monotonicMs;
  const currentTraceparent = () => current.getStore()?.span?.traceparent;

  return {
    isOn: true,
    start(name, { kind = 'internal', attributes = {}, remoteParent, isRoot = false, link } = {}) {
      const linkedSpan = parseTraceparent(link);
      const apiSpan = tracer.startSpan(
        name,
        {
          kind: kinds[kind],
          attributes: redactAttributes(attributes, hide),
          links: linkedSpan === undefined ? [] : [{ context: linkedSpan }],
          startTime: timeOf(clock.monotonicMs()),
        },
        parentContext(remoteParent, isRoot ? undefined : currentTraceparent()),
      );
      return wrapSpan(apiSpan, { hide, endTime: (atMs = clock.monotonicMs()) => timeOf(atMs) });
    },
    runInSpan: (span, work) => current.run({ request: current.getStore()?.request, span }, work),
    traceparent: currentTraceparent,
    async close() {
      // The failed export has been logged.
      await settlesWithin(provider.shutdown(), { ms: closeMs });
    },
  };
}

function createProvider(options: OpenTelemetryOptions): TracerProvider {
  const { settings, surface, version, batchEveryMs = 2_000 } = options;
  const exporter = new OTLPTraceExporter({
    url: `${settings.endpoint.replace(/\/+$/, '')}/v1/traces`,
    headers: parseHeaders(settings.headers),
    timeoutMillis: exportMs,
    concurrencyLimit: 2,
  });
  return new TracerProvider({
    resource: createResource({
      'service.name': settings.serviceName,
      'service.version': version,
      'townhall.surface': surface,
    }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(settings.sampledShare) }),
    spanLimits: { attributeValueLengthLimit: maxAttributeLength },
    spanProcessors: [
      new BatchSpanProcessor({
        exporter: warnOnFailure(exporter, options),
        maxQueueSize: maxQueuedSpans,
        exportTimeoutMillis: exportMs + 1_000,
        scheduledDelayMillis: batchEveryMs,
      }),
    ],
  });
}

/** The caller's span as the parent if its header is valid, else the current span. */
function parentContext(remoteParent: string | undefined, currentTraceparent: string | undefined): Context {
  const remoteSpan = parseTraceparent(remoteParent);
  const parent = remoteSpan ? { ...remoteSpan, isRemote: true } : parseTraceparent(currentTraceparent);
  return parent === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, parent);
}

function redactAttributes(attributes: SpanAttributes, hide: (text: string) => string): Attributes {
  const redactedAttributes: Attributes = {};
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) redactedAttributes[name] = typeof value === 'string' ? hide(value) : value;
  }
  return redactedAttributes;
}

function wrapSpan(
  apiSpan: ApiSpan,
  { hide, endTime }: { hide: (text: string) => string; endTime: (atMs?: number) => number },
): Span {
  const { traceId, spanId, traceFlags } = apiSpan.spanContext();
  let isOver = false;
  return {
    traceId,
    spanId,
    traceparent: `00-${traceId}-${spanId}-${(traceFlags & 1).toString(16).padStart(2, '0')}`,
    set: (attributes) => void apiSpan.setAttributes(redactAttributes(attributes, hide)),
    rename: (name) => void apiSpan.updateName(name),
    fail: (reason) =>
      void apiSpan.setAttribute('error.type', hide(reason)).setStatus({ code: SpanStatusCode.ERROR }),
    end(atMs) {
      if (!isOver) apiSpan.end(endTime(atMs));
      isOver = true;
    },
  };
}

const kinds = { internal: SpanKind.INTERNAL, server: SpanKind.SERVER, client: SpanKind.CLIENT };

// W3C Trace Context: no version ff, and neither id is all zeros.
const traceparentShape = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})/;

/** Undefined for an absent and for an invalid header. */
function parseTraceparent(text: string | undefined): SpanContext | undefined {
  const [, traceId, spanId, flags] = traceparentShape.exec(text ?? '') ?? [];
  return traceId === undefined || spanId === undefined
    ? undefined
    : { traceId, spanId, traceFlags: Number.parseInt(flags ?? '00', 16) & 1 };
}

/** The exporter, with a warning to the operator once a minute while the collector refuses spans. */
function warnOnFailure(
  exporter: SpanExporter,
  { clock, log }: Pick<OpenTelemetryOptions, 'clock' | 'log'>,
): SpanExporter {
  let nextWarningMs = 0;
  return {
    export(spans, done) {
      exporter.export(spans, (result) => {
        if (result.error !== undefined && clock.monotonicMs() >= nextWarningMs) {
          nextWarningMs = clock.monotonicMs() + warnEveryMs;
          log.warn(
            { spans: spans.length, err: result.error },
            'the collector did not accept the spans; they are dropped',
          );
        }
        done(result);
      });
    },
    shutdown: () => exporter.shutdown(),
    forceFlush: async () => exporter.forceFlush?.(),
  };
}

/** Reads `name=value` pairs, separated by commas; invalid pairs are dropped. */
function parseHeaders(text: string | undefined): Record<string, string> {
  const pairs = (text ?? '').split(',').flatMap((pair): [string, string][] => {
    const [, name, value] = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(.*?)\s*$/.exec(pair) ?? [];
    return name === undefined || value === undefined ? [] : [[name, decodePercent(value)]];
  });
  return Object.fromEntries(pairs);
}

/** Replaces the library's default, which contains the machine's name and user. */
function createResource(attributes: Attributes): NonNullable<TracerProviderOptions['resource']> {
  const resource: NonNullable<TracerProviderOptions['resource']> = {
    attributes,
    asyncAttributesPending: false,
    merge: () => resource,
    getRawAttributes: () => Object.entries(attributes),
  };
  return resource;
}
