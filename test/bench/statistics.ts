// Statistics of measured values.

/** The smallest value with at least this share of the values below it; NaN without values. */
export function quantile(values: readonly number[], share: number): number {
  const sortedValues = values.toSorted((a, b) => a - b);
  return sortedValues[Math.min(values.length - 1, Math.floor(values.length * share))] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}
