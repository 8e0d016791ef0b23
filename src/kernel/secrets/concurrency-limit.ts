// Limits how many passwords are checked at once. A check occupies a thread of the
// libuv pool, which file access and DNS need too.

export interface ConcurrencySlot {
  /** Resolves when the work may start, in the order of the calls. */
  start(): Promise<void>;
  /** Frees the slot, whether or not the work started; a second call has no effect. */
  release(): void;
}

export interface ConcurrencyLimit {
  /** Null when all slots for running and waiting are taken. */
  tryAcquire(): ConcurrencySlot | null;
}

/** Two of the four threads stay free; sixteen waiting checks take about a second. */
export const defaultConcurrency = { running: 2, waiting: 16 };

export function createConcurrencyLimit({
  running,
  waiting,
}: {
  running: number;
  waiting: number;
}): ConcurrencyLimit {
  let slots = 0;
  let activeCount = 0;
  const queue: (() => void)[] = [];

  function startWaiting(): void {
    while (activeCount < running) {
      const next = queue.shift();
      if (!next) return;
      activeCount += 1;
      next();
    }
  }

  return {
    tryAcquire() {
      if (slots >= running + waiting) return null;
      slots += 1;
      let isActive = false;
      let isReleased = false;
      return {
        start: () =>
          new Promise<void>((resolve) => {
            queue.push(() => {
              isActive = true;
              resolve();
            });
            startWaiting();
          }),
        release() {
          if (isReleased) return;
          isReleased = true;
          slots -= 1;
          if (isActive) activeCount -= 1;
          startWaiting();
        },
      };
    },
  };
}
