// What the rooms measure with. Nobody below the composition root knows whether anything is measured: without a port
// for metrics all of this does nothing. Labels are a few words of our own, never what a caller wrote.

/** One number, or one for each set of labels. */
export type GaugeReading = number | readonly { labels: readonly string[]; value: number }[];

export interface Counter {
  /** Adds, 1 unless said otherwise. The labels stand in the order in which they were declared. */
  add(labels: readonly string[], amount?: number): void;
}

export interface Histogram {
  observe(labels: readonly string[], value: number): void;
}

export interface Metrics {
  /** Whether anybody can read them; where something is dear to measure it may be left out otherwise. */
  readonly isOn: boolean;
  counter(name: string, help: string, labels: readonly string[]): Counter;
  /** `buckets` are the upper bounds, ascending. */
  histogram(name: string, help: string, labels: readonly string[], buckets: readonly number[]): Histogram;
  /**
   * A state that is asked for at each reading. What `collect` throws leaves this one gauge out of the reading; a late
   * answer does so too.
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

/** Bounds in seconds for what takes from a millisecond to minutes. */
export const secondsBuckets: readonly number[] = [
  0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
];

/** Bounds in seconds for waits that should be short. */
export const waitBuckets: readonly number[] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5];

/** Keeps the values of a label few: the first `maximum` that are seen keep their name, every later one is `other`. */
export function boundedLabel(maximum: number): (value: string) => string {
  const seen = new Set<string>();
  return (value) => {
    if (seen.has(value)) return value;
    if (seen.size >= maximum) return 'other';
    seen.add(value);
    return value;
  };
}
