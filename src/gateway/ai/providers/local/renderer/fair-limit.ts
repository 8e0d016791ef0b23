// A limit on concurrent tasks with round-robin scheduling between owners; no owner gets every slot.

export interface FairLimit {
  /**
   * Resolves to the function that releases the slot. Rejects with the signal's
   * reason when it is aborted first.
   */
  acquire(owner: string, signal: AbortSignal): Promise<() => void>;
  /** Tasks of the owner that wait for a slot. */
  countWaiting(owner: string): number;
}

export function createFairLimit({
  slots,
  slotsPerOwner,
}: {
  slots: number;
  slotsPerOwner: number;
}): FairLimit {
  const runningCounts = new Map<string, number>();
  // The queues by owner, in the order of turns: an owner with an admitted task moves to the end.
  const queues = new Map<string, (() => void)[]>();
  let freeSlots = slots;

  function admitWaiting(): void {
    for (const [owner, queue] of queues) {
      if (freeSlots === 0) return;
      if ((runningCounts.get(owner) ?? 0) >= slotsPerOwner) continue;
      const admit = queue.shift();
      queues.delete(owner);
      // A Map iterates over keys that are added during the iteration, so this owner gets further turns.
      if (queue.length > 0) queues.set(owner, queue);
      if (admit) start(owner, admit);
    }
  }

  function start(owner: string, admit: () => void): void {
    freeSlots -= 1;
    runningCounts.set(owner, (runningCounts.get(owner) ?? 0) + 1);
    admit();
  }

  function release(owner: string): void {
    freeSlots += 1;
    const count = (runningCounts.get(owner) ?? 1) - 1;
    if (count === 0) runningCounts.delete(owner);
    else runningCounts.set(owner, count);
    admitWaiting();
  }

  function leaveQueue(owner: string, admit: () => void): void {
    const queue = (queues.get(owner) ?? []).filter((other) => other !== admit);
    if (queue.length === 0) queues.delete(owner);
    else queues.set(owner, queue);
  }

  function waitForTurn(owner: string, signal: AbortSignal): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      const abort = () => {
        leaveQueue(owner, admit);
        reject(signal.reason as Error);
      };
      const admit = () => {
        signal.removeEventListener('abort', abort);
        resolve();
      };
      signal.addEventListener('abort', abort, { once: true });
      queues.set(owner, [...(queues.get(owner) ?? []), admit]);
      admitWaiting();
    });
  }

  return {
    async acquire(owner, signal) {
      signal.throwIfAborted();
      await waitForTurn(owner, signal);
      let isReleased = false;
      return () => {
        if (isReleased) return;
        isReleased = true;
        release(owner);
      };
    },
    countWaiting: (owner) => queues.get(owner)?.length ?? 0,
  };
}
