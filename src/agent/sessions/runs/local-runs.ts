// The runs that this process executes or is about to.
import type { Problem } from '../../../kernel/problem.ts';
import type { CompletedRun, RunHandle } from './active-run.ts';

export interface LocalRun extends RunHandle {
  settled: Promise<CompletedRun | Problem>;
}

export interface LocalRuns {
  /**
   * Before the transaction that gives a run to this process, so that no sweep takes the run for an orphan.
   */
  claim(runId: string): void;
  release(runId: string): void;
  add(runId: string, run: LocalRun): void;
  remove(runId: string): void;
  get(runId: string): LocalRun | undefined;
  /** Whether this process executes the run or has claimed it. */
  has(runId: string): boolean;
  isExecuting(runId: string): boolean;
  isEmpty(): boolean;
  /** How many more runs may be claimed. */
  freePlaces(): number;
  abortAll(problem: Problem): void;
  /** Resolves after the runs of this moment are settled. */
  allSettled(): Promise<unknown>;
}

export function createLocalRuns(maxRuns: number): LocalRuns {
  const executing = new Map<string, LocalRun>();
  const claimed = new Set<string>();
  return {
    claim: (runId) => void claimed.add(runId),
    release: (runId) => void claimed.delete(runId),
    add(runId, run) {
      executing.set(runId, run);
      claimed.delete(runId);
    },
    remove: (runId) => void executing.delete(runId),
    get: (runId) => executing.get(runId),
    has: (runId) => executing.has(runId) || claimed.has(runId),
    isExecuting: (runId) => executing.has(runId),
    isEmpty: () => executing.size === 0,
    freePlaces: () => Math.max(0, maxRuns - executing.size - claimed.size),
    abortAll(problem) {
      for (const { abort } of executing.values()) abort.abort(problem);
    },
    allSettled: () => Promise.allSettled([...executing.values()].map(({ settled }) => settled)),
  };
}
