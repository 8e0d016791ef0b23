// Waits until a run ends, whichever process executes it.
import { settlesWithin } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { watchChange, type LiveFeed } from '../event-log/live-feed.ts';
import type { LocalRuns } from './local-runs.ts';
import type { RunRecord, RunStore } from './store.ts';

export interface WaitOptions {
  feed: Pick<LiveFeed, 'subscribe'>;
  runStore: RunStore;
  localRuns: LocalRuns;
  clock: Clock;
}

/** Returns the settled run, `waiting` when the timeout comes first, or `gone` when there is no such run. */
export async function waitForRun(
  { feed, runStore, localRuns, clock }: WaitOptions,
  { sessionKey, runId }: { sessionKey: string; runId: string },
  { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal },
): Promise<RunRecord | 'gone' | 'waiting'> {
  const deadlineMs = clock.monotonicMs() + timeoutMs;
  const localRun = localRuns.get(runId);
  if (localRun) await settlesWithin(localRun.settlement, { ms: timeoutMs, clock, signal });
  for (;;) {
    const watch = watchChange(
      feed,
      sessionKey,
      (event) => event.type === 'run.settled' && event.runId === runId,
    );
    try {
      const run = await runStore.run(sessionKey, runId);
      if (!run || run.settledAt !== null) return run ?? 'gone';
      const remainingMs = deadlineMs - clock.monotonicMs();
      if (remainingMs <= 0 || signal.aborted) return 'waiting';
      await settlesWithin(watch.changed, { ms: remainingMs, clock, signal });
    } finally {
      watch.stop();
    }
  }
}
