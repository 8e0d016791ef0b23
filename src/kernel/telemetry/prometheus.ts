// The metrics as Prometheus reads them, and the only file that knows prom-client. It is loaded only when somebody has
// asked for metrics; each surface has a registry of its own, as two of them may live in one process.
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Log } from '../log.ts';
import type { GaugeReading, Metrics } from './metrics.ts';

export interface Prometheus extends Metrics {
  contentType: string;
  /** All of them as text. */
  read(): Promise<string>;
}

// A gauge that asks the database must not hold up the reading of all others.
const collectMs = 2_000;

export function openPrometheus({ log }: { log: Log }): Prometheus {
  const registry = new Registry();
  // Of the process: processor, memory, handles, garbage collection and the lag of the event loop.
  collectDefaultMetrics({ register: registry });

  async function measure(
    name: string,
    collect: () => GaugeReading | Promise<GaugeReading>,
  ): Promise<GaugeReading> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error('It took too long.')), collectMs);
    });
    try {
      return await Promise.race([collect(), late]);
    } catch (error) {
      log.warn({ metric: name, err: error }, 'a metric could not be read');
      return [];
    } finally {
      clearTimeout(timer);
    }
  }

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
      const gauge: Gauge = new Gauge({
        name,
        help,
        labelNames: [...labels],
        registers: [registry],
        async collect() {
          const measured = await measure(name, collect);
          gauge.reset();
          // What was not measured is not zero.
          if (labels.length === 0) gauge.remove();
          if (typeof measured === 'number') gauge.set(measured);
          else for (const { labels: values, value } of measured) gauge.labels(...values).set(value);
        },
      });
    },
  };
}
