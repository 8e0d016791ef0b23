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
  surface: 'gateway' | 'agent';
  version: string;
  context: AsyncLocalStorage<TelemetryContext>;
  hide: (text: string) => string;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
  log: Log;
  /** Interval of batches; for tests. */
  batchEveryMs?: number;
}

// At most about 4 MB of spans; a batch that is not accepted within five seconds is dropped.
const queuedSpans = 4_096;
const exportMs = 5_000;
const closeMs = 2_000;
const maximumText = 256;
const quietMs = 60_000;

export function openOpenTelemetry(options: OpenTelemetryOptions): OpenTelemetry {
  const { settings, surface, version, context: current, hide, clock } = options;
  const exporter = new OTLPTraceExporter({
    url: `${settings.endpoint.replace(/\/+$/, '')}/v1/traces`,
    headers: headersOf(settings.headers),
    timeoutMillis: exportMs,
    concurrencyLimit: 2,
  });
  const provider = new TracerProvider({
    resource: resourceOf({
      'service.name': settings.serviceName,
      'service.version': version,
      'townhall.surface': surface,
    }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(settings.sampledShare) }),
    spanLimits: { attributeValueLengthLimit: maximumText },
    spanProcessors: [
      new BatchSpanProcessor({
        exporter: warnOnFailure(exporter, options),
        maxQueueSize: queuedSpans,
        exportTimeoutMillis: exportMs + 1_000,
        scheduledDelayMillis: options.batchEveryMs ?? 2_000,
      }),
    ],
  });
  const tracer = provider.getTracer('townhall', version);
  // Spans use the monotonic clock, so that a change of the wall clock cannot make one negative.
  const epochMs = clock.now().getTime() - clock.monotonicMs();
  const timeOf = (monotonicMs: number): number => epochMs + monotonicMs;

  function attributesOf(attributes: SpanAttributes): Attributes {
    const redactedAttributes: Attributes = {};
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined) redactedAttributes[name] = typeof value === 'string' ? hide(value) : value;
    }
    return redactedAttributes;
  }

  function spanOf(apiSpan: ApiSpan): Span {
    const { traceId, spanId, traceFlags } = apiSpan.spanContext();
    let isOver = false;
    return {
      traceId,
      spanId,
      traceparent: `00-${traceId}-${spanId}-${(traceFlags & 1).toString(16).padStart(2, '0')}`,
      set: (attributes) => void apiSpan.setAttributes(attributesOf(attributes)),
      rename: (name) => void apiSpan.updateName(name),
      fail: (reason) =>
        void apiSpan.setAttribute('error.type', hide(reason)).setStatus({ code: SpanStatusCode.ERROR }),
      end(atMs = clock.monotonicMs()) {
        if (!isOver) apiSpan.end(timeOf(atMs));
        isOver = true;
      },
    };
  }

  return {
    isOn: true,
    start(name, { kind = 'internal', attributes = {}, remoteParent, isRoot = false, link } = {}) {
      const parent = remoteParent === undefined ? undefined : parseTraceparent(remoteParent);
      const activeTraceparent =
        isRoot || parent !== undefined ? undefined : current.getStore()?.span?.traceparent;
      const localContext = activeTraceparent === undefined ? undefined : parseTraceparent(activeTraceparent);
      const parentContext = parent ? { ...parent, isRemote: true } : localContext;
      const context: Context =
        parentContext === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, parentContext);
      const linkedSpan = link === undefined ? undefined : parseTraceparent(link);
      const links = linkedSpan === undefined ? [] : [{ context: linkedSpan }];
      return spanOf(
        tracer.startSpan(
          name,
          {
            kind: kinds[kind],
            attributes: attributesOf(attributes),
            links,
            startTime: timeOf(clock.monotonicMs()),
          },
          context,
        ),
      );
    },
    runInSpan: (span, work) => current.run({ request: current.getStore()?.request, span }, work),
    traceparent: () => current.getStore()?.span?.traceparent,
    async close() {
      // The failed export has been logged.
      await settlesWithin(provider.shutdown(), { ms: closeMs });
    },
  };
}

const kinds = { internal: SpanKind.INTERNAL, server: SpanKind.SERVER, client: SpanKind.CLIENT };

const traceparentShape = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})/;

function parseTraceparent(text: string): SpanContext | undefined {
  const [, traceId, spanId, flags] = traceparentShape.exec(text) ?? [];
  return traceId === undefined || spanId === undefined
    ? undefined
    : { traceId, spanId, traceFlags: Number.parseInt(flags ?? '00', 16) & 1 };
}

/** The exporter, with an occasional warning to the operator while the collector refuses spans. */
function warnOnFailure(
  exporter: SpanExporter,
  { clock, log }: Pick<OpenTelemetryOptions, 'clock' | 'log'>,
): SpanExporter {
  let quietUntilMs = 0;
  return {
    export(spans, done) {
      exporter.export(spans, (result) => {
        if (result.error !== undefined && clock.monotonicMs() >= quietUntilMs) {
          quietUntilMs = clock.monotonicMs() + quietMs;
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

function headersOf(text: string | undefined): Record<string, string> {
  const pairs = (text ?? '').split(',').flatMap((pair): [string, string][] => {
    const [, name, value] = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(.*?)\s*$/.exec(pair) ?? [];
    return name === undefined || value === undefined ? [] : [[name, decodeText(value)]];
  });
  return Object.fromEntries(pairs);
}

function decodeText(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

/** Replaces the library's default, which contains the machine's name and user. */
function resourceOf(attributes: Attributes): NonNullable<TracerProviderOptions['resource']> {
  const resource: NonNullable<TracerProviderOptions['resource']> = {
    attributes,
    asyncAttributesPending: false,
    merge: () => resource,
    getRawAttributes: () => Object.entries(attributes),
  };
  return resource;
}
