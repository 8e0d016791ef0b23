// The metrics interface of gateway and agent. Without a metrics port it does nothing. Label values
// are few and never come from a caller.

/** One number, or one for each set of labels. */
export type GaugeReading = number | readonly { labels: readonly string[]; value: number }[];

export interface Counter {
  /** Adds an amount, by default 1. The labels have the order of their declaration. */
  add(labels: readonly string[], amount?: number): void;
}

export interface Histogram {
  observe(labels: readonly string[], value: number): void;
}

export interface Metrics {
  /** Whether metrics can be read; expensive measurements may be skipped otherwise. */
  readonly isOn: boolean;
  counter(name: string, help: string, labels: readonly string[]): Counter;
  /** `buckets` are the upper bounds, ascending. */
  histogram(name: string, help: string, labels: readonly string[], buckets: readonly number[]): Histogram;
  /**
   * A state that is read at each scrape. An error or a timeout of `collect` omits this gauge from the scrape.
   */
  gauge(
    name: string,
    help: string,
    collect: () => GaugeReading | Promise<GaugeReading>,
    labels?: readonly string[],
  ): void;
}

/** Measures nothing. */
export const silentMetrics: Metrics = {
  isOn: false,
  counter: () => ({ add() {} }),
  histogram: () => ({ observe() {} }),
  gauge() {},
};

/** Bounds in seconds for durations from a millisecond to minutes. */
export const secondsBuckets: readonly number[] = [
  0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
];

/** Bounds in seconds for waits that should be short. */
export const waitBuckets: readonly number[] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5];

/** Keeps the values of a label few: the first `maximum` keep their name, every later one is `other`. */
export function boundedLabel(maximum: number): (value: string) => string {
  const values = new Set<string>();
  return (value) => {
    if (values.has(value)) return value;
    if (values.size >= maximum) return 'other';
    values.add(value);
    return value;
  };
}
