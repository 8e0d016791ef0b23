// Statistics of measured values.

/**
 * The smallest value that more than this share of the values do not exceed, the largest value for a share of 1;
 * NaN without values.
 */
export function quantile(values: readonly number[], share: number): number {
  const sortedValues = values.toSorted((a, b) => a - b);
  return sortedValues[Math.min(values.length - 1, Math.floor(values.length * share))] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}
