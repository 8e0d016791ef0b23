// Comparisons of credits.

export function larger(...credits: bigint[]): bigint {
  return credits.reduce((largest, value) => (value > largest ? value : largest));
}

export function smaller(one: bigint, other: bigint): bigint {
  return one < other ? one : other;
}
