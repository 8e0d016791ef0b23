// Metrics and traces of one server. A part that is off is not loaded.
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from '../clock.ts';
import type { Log } from '../log.ts';
import type { Surface } from '../problem.ts';
import type { RequestObserver, RequestScope } from '../http/observer.ts';
import type { MetricsListener } from './metrics-listener.ts';
import { type Metrics, silentMetrics } from './metrics.ts';
import type { TraceSettings } from './opentelemetry.ts';
import type { TelemetryContext } from './context.ts';
import { createRequestObserver, runDetached } from './request-telemetry.ts';
import { silentTraces, type Traces } from './traces.ts';

export interface TelemetrySettings {
  /** The address for reading metrics; null turns them off. */
  metrics: { host: string; port: number } | null;
  /** The target of spans; null turns them off. */
  traces: TraceSettings | null;
}

export interface TelemetryOptions {
  settings: TelemetrySettings;
  surface: Surface;
  version: string;
  /** Removes live secrets from text for a span. */
  hide: (text: string) => string;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
  log: Log;
  /** Interval of span batches; for tests. */
  batchEveryMs?: number;
}

export interface Telemetry {
  metrics: Metrics;
  traces: Traces;
  /** The observer for the server. */
  observer: RequestObserver;
  /** The request for which the calling code runs. */
  request(): RequestScope | undefined;
  /**
   * Runs work that may outlive the current request and reads its answer as a stream. What is measured in it
   * ends with the work, not with the request.
   */
  runDetached<T>(work: () => Promise<T>): Promise<T>;
  /** The metrics in Prometheus' format; empty when they are off. */
  readMetrics(): Promise<string>;
  /** Serves the metrics if they are on. Rejects when their address is not available. */
  listen(): Promise<{ url: string } | null>;
  close(): Promise<void>;
}

export async function openTelemetry(options: TelemetryOptions): Promise<Telemetry> {
  const { settings, log } = options;
  const context = new AsyncLocalStorage<TelemetryContext>();
  const prometheus =
    settings.metrics === null ? undefined : (await import('./prometheus.ts')).openPrometheus({ log });
  const spans =
    settings.traces === null
      ? undefined
      : (await import('./opentelemetry.ts')).openOpenTelemetry({
          ...options,
          settings: settings.traces,
          context,
        });
  const metrics = prometheus ?? silentMetrics;
  const traces = spans ?? silentTraces;
  let metricsListener: MetricsListener | undefined;

  const observer = createRequestObserver({ context, metrics, traces });
  return {
    metrics,
    traces,
    observer,
    request: () => context.getStore()?.request,
    runDetached: (work) => runDetached(context, work),
    readMetrics: async () => (await prometheus?.read()) ?? '',
    async listen() {
      if (settings.metrics === null || prometheus === undefined) return null;
      const { listenForMetrics } = await import('./metrics-listener.ts');
      metricsListener = await listenForMetrics(settings.metrics, { prometheus, log });
      log.info({ url: metricsListener.url }, 'serving metrics');
      return { url: metricsListener.url };
    },
    async close() {
      await metricsListener?.close();
      await spans?.close();
    },
  };
}
