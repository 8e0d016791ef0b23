// Runs one load at a time. Calls during a running load share one more load after it, so that every caller
// gets a load that started after its call. A failed load is retried until it succeeds.
import type { Clock } from '../../kernel/clock.ts';

export interface Refresher {
  /**
   * Resolves when a load that started after this call has succeeded. Rejects when that load fails; retries
   * then continue in the background.
   */
  refresh(): Promise<void>;
  /** Stops retrying and waits for the running load and the one that is queued behind it. */
  close(): Promise<void>;
}

const retryMs = 250;

export function createRefresher(load: () => Promise<void>, clock: Pick<Clock, 'sleep'>): Refresher {
  const stop = new AbortController();
  let currentRefresh: Promise<void> | undefined;
  let queuedRefresh: Promise<void> | undefined;
  let pendingRetry: Promise<void> | undefined;

  function start(): Promise<void> {
    currentRefresh = load().finally(() => (currentRefresh = undefined));
    return currentRefresh;
  }

  function startOrQueue(): Promise<void> {
    // A queued load starts a few microtasks after the end of the running one. Check it first: a call in
    // between would start a second load beside it.
    if (queuedRefresh !== undefined) return queuedRefresh;
    if (currentRefresh === undefined) return start();
    queuedRefresh = currentRefresh
      .catch(() => undefined)
      .then(() => {
        queuedRefresh = undefined;
        return start();
      });
    return queuedRefresh;
  }

  async function retryUntilLoaded(): Promise<void> {
    while (!stop.signal.aborted) {
      await clock.sleep(retryMs, stop.signal).catch(() => undefined);
      if (stop.signal.aborted) return;
      try {
        return await startOrQueue();
      } catch {
        // The database is still unavailable. Its own health check reports that.
      }
    }
  }

  return {
    async refresh() {
      try {
        await startOrQueue();
      } catch (error) {
        pendingRetry ??= retryUntilLoaded().finally(() => (pendingRetry = undefined));
        throw error;
      }
    },
    async close() {
      stop.abort();
      await pendingRetry;
      await (queuedRefresh ?? currentRefresh)?.catch(() => undefined);
    },
  };
}
