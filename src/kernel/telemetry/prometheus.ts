// Metrics in Prometheus' format, in the only file that uses prom-client. It is loaded only with a
// metrics port; gateway and agent have separate registries, since they may share a process.
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { withTimeout } from '../async.ts';
import type { Log } from '../log.ts';
import type { GaugeReading, Metrics } from './metrics.ts';

export interface Prometheus extends Metrics {
  contentType: string;
  /** All metrics as text. */
  read(): Promise<string>;
}

// A gauge that queries the database must not delay all others.
const collectMs = 2_000;

export function openPrometheus({ log }: { log: Log }): Prometheus {
  const registry = new Registry();
  // Metrics of the process: processor, memory, handles, garbage collection and event loop lag.
  collectDefaultMetrics({ register: registry });

  return {
    isOn: true,
    contentType: registry.contentType,
    read: () => registry.metrics(),
    counter(name, help, labels) {
      const counter = new Counter({ name, help, labelNames: [...labels], registers: [registry] });
      return { add: (values, amount = 1) => counter.labels(...values).inc(amount) };
    },
    histogram(name, help, labels, buckets) {
      const histogram = new Histogram({
        name,
        help,
        labelNames: [...labels],
        buckets: [...buckets],
        registers: [registry],
      });
      return { observe: (values, value) => histogram.labels(...values).observe(value) };
    },
    gauge(name, help, collect, labels = []) {
      registerGauge(registry, { name, help, labels, read: () => readGauge(name, collect, log) });
    },
  };
}

/** Returns no values, which omits the gauge from the scrape, if `collect` fails or takes too long. */
async function readGauge(
  name: string,
  collect: () => GaugeReading | Promise<GaugeReading>,
  log: Log,
): Promise<GaugeReading> {
  try {
    return await withTimeout(async () => collect(), { ms: collectMs });
  } catch (error) {
    log.warn({ metric: name, err: error }, 'a metric could not be read');
    return [];
  }
}

interface GaugeOptions {
  name: string;
  help: string;
  labels: readonly string[];
  read(): Promise<GaugeReading>;
}

function registerGauge(registry: Registry, { name, help, labels, read }: GaugeOptions): void {
  const gauge: Gauge = new Gauge({
    name,
    help,
    labelNames: [...labels],
    registers: [registry],
    async collect() {
      const reading = await read();
      gauge.reset();
      // A gauge without a reading is absent, not zero.
      if (labels.length === 0) gauge.remove();
      if (typeof reading === 'number') gauge.set(reading);
      else for (const { labels: values, value } of reading) gauge.labels(...values).set(value);
    },
  });
}
