// Seeded pseudo-random numbers (sfc32), the only source of randomness in a schedule: the
// same seed gives the same schedule.

export interface Random {
  /** From 0 to 1, 1 excluded. */
  next(): number;
  /** A whole number from `low` to `high`, both included. */
  between(low: number, high: number): number;
  chance(probability: number): boolean;
  pick<T>(items: readonly T[]): T;
}

export function seededRandom(seed: number): Random {
  let [a, b, c, d] = [0x9e3779b9, 0x243f6a88 ^ seed, 0xb7e15162 ^ Math.imul(seed, 0x85ebca6b), seed | 0];

  function next(): number {
    const sum = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + sum) | 0;
    return (sum >>> 0) / 4_294_967_296;
  }

  // Skip the first numbers, which are similar for seeds that are close.
  for (let round = 0; round < 12; round += 1) next();
  return {
    next,
    between: (low, high) => low + Math.floor(next() * (high - low + 1)),
    chance: (probability) => next() < probability,
    pick<T>(items: readonly T[]): T {
      const item = items[Math.floor(next() * items.length)];
      if (item === undefined) throw new Error('There is nothing to pick from.');
      return item;
    },
  };
}
