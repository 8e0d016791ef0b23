// The runs that this process executes or is about to.
import type { Problem } from '../../../kernel/problem.ts';
import type { CompletedRun, RunHandle } from './active-run.ts';

export interface LocalRun extends RunHandle {
  settlement: Promise<CompletedRun | Problem>;
}

export interface LocalRuns {
  /**
   * Called before the transaction that assigns a run to this process, so that no sweep takes it for an
   * orphan.
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
  /** Resolves when all runs that execute now are settled. */
  allSettled(): Promise<unknown>;
}

export function createLocalRuns(maxRuns: number): LocalRuns {
  const executingRuns = new Map<string, LocalRun>();
  const claimedIds = new Set<string>();
  return {
    claim: (runId) => void claimedIds.add(runId),
    release: (runId) => void claimedIds.delete(runId),
    add(runId, run) {
      executingRuns.set(runId, run);
      claimedIds.delete(runId);
    },
    remove: (runId) => void executingRuns.delete(runId),
    get: (runId) => executingRuns.get(runId),
    has: (runId) => executingRuns.has(runId) || claimedIds.has(runId),
    isExecuting: (runId) => executingRuns.has(runId),
    isEmpty: () => executingRuns.size === 0,
    freePlaces: () => Math.max(0, maxRuns - executingRuns.size - claimedIds.size),
    abortAll(problem) {
      for (const { abort } of executingRuns.values()) abort.abort(problem);
    },
    allSettled: () => Promise.allSettled([...executingRuns.values()].map(({ settlement }) => settlement)),
  };
}
