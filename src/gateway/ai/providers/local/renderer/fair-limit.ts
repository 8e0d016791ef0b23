// A fair limit on work at once: owners take turns (round-robin), and one owner never holds every slot.

export interface FairLimit {
  /** Resolves to the function that gives the slot back, once. Rejects with the signal's reason when it is aborted first. */
  acquire(owner: string, signal: AbortSignal): Promise<() => void>;
  /** Entries of the owner that wait. */
  countWaiting(owner: string): number;
}

/** `slots` at once, `ofOwner` of them for one owner. */
export function createFairLimit({ slots, ofOwner }: { slots: number; ofOwner: number }): FairLimit {
  const running = new Map<string, number>();
  // In the order of turns: the owner that is admitted goes to the end.
  const queues = new Map<string, (() => void)[]>();
  let free = slots;

  function admitWaiting(): void {
    for (const [owner, queue] of queues) {
      if (free === 0) return;
      if ((running.get(owner) ?? 0) >= ofOwner) continue;
      const admit = queue.shift();
      queues.delete(owner);
      // The iteration reaches an owner that is added again, so each may be admitted until the slots are taken.
      if (queue.length > 0) queues.set(owner, queue);
      if (admit) start(owner, admit);
    }
  }

  function start(owner: string, admit: () => void): void {
    free -= 1;
    running.set(owner, (running.get(owner) ?? 0) + 1);
    admit();
  }

  function leave(owner: string): void {
    free += 1;
    const left = (running.get(owner) ?? 1) - 1;
    if (left === 0) running.delete(owner);
    else running.set(owner, left);
    admitWaiting();
  }

  function forget(owner: string, admit: () => void): void {
    const queue = (queues.get(owner) ?? []).filter((other) => other !== admit);
    if (queue.length === 0) queues.delete(owner);
    else queues.set(owner, queue);
  }

  return {
    async acquire(owner, signal) {
      signal.throwIfAborted();
      await new Promise<void>((resolve, reject) => {
        const abandon = () => {
          forget(owner, admit);
          reject(signal.reason as Error);
        };
        const admit = () => {
          signal.removeEventListener('abort', abandon);
          resolve();
        };
        signal.addEventListener('abort', abandon, { once: true });
        queues.set(owner, [...(queues.get(owner) ?? []), admit]);
        admitWaiting();
      });
      let isOver = false;
      return () => {
        if (isOver) return;
        isOver = true;
        leave(owner);
      };
    },
    countWaiting: (owner) => queues.get(owner)?.length ?? 0,
  };
}
