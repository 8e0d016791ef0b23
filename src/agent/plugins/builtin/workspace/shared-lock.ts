// A readers-writer lock within one process. Requests are granted in the order of the calls.

export interface SharedLock {
  /** Runs concurrently with other shared work. */
  runShared<T>(work: () => Promise<T>): Promise<T>;
  /** Runs alone. */
  runExclusively<T>(work: () => Promise<T>): Promise<T>;
}

export function createSharedLock(): SharedLock {
  let lastExclusive: Promise<unknown> = Promise.resolve();
  const runningWork = new Set<Promise<unknown>>();
  return {
    runShared(work) {
      const result = lastExclusive.then(work);
      const end = result.catch(() => {}).then(() => void runningWork.delete(end));
      runningWork.add(end);
      return result;
    },
    runExclusively(work) {
      const result = Promise.all([lastExclusive, ...runningWork]).then(work);
      lastExclusive = result.catch(() => {});
      return result;
    },
  };
}
