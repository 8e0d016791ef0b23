// Work that no caller waits for, such as recording the last use of a token. A failure is logged and
// not retried here; the owner can wait for running work before it closes dependencies.
import type { Log } from './log.ts';

export interface Background {
  /** Starts the work unless work of that name is running. Never throws. */
  run(name: string, work: () => Promise<unknown>): void;
  /** Resolves once no work is running. */
  untilSettled(): Promise<void>;
}

export function createBackground(log: Log): Background {
  const runningWork = new Map<string, Promise<void>>();

  async function attempt(name: string, work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      log.warn({ err: error }, 'background work failed');
    } finally {
      runningWork.delete(name);
    }
  }

  return {
    run(name, work) {
      // Start the work in a later microtask, so that its entry exists before the work can delete it.
      if (!runningWork.has(name))
        runningWork.set(
          name,
          Promise.resolve().then(() => attempt(name, work)),
        );
    },
    async untilSettled() {
      while (runningWork.size > 0) await Promise.all(runningWork.values());
    },
  };
}
