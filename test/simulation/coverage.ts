// Counts how often each kind of event and each branch of the ledger was reached. A long
// run fails when an expected one was never reached (expected-states.ts).

export interface Coverage {
  count(name: string, times?: number): void;
  counts(): Map<string, number>;
}

export function createCoverage(): Coverage {
  const counts = new Map<string, number>();
  return {
    count: (name, times = 1) => void counts.set(name, (counts.get(name) ?? 0) + times),
    counts: () => counts,
  };
}
