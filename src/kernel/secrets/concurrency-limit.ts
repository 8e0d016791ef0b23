// Limits how many passwords are checked at once. A check occupies a thread of the
// libuv pool, which file access and DNS need too.

export interface ConcurrencySlot {
  /** Resolves when the work may start, in the order of the calls; never after `release`. */
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
  /** Each starts one work; false if its slot was released while it waited. */
  const queue: (() => boolean)[] = [];

  function startWaiting(): void {
    while (activeCount < running) {
      const next = queue.shift();
      if (!next) return;
      if (next()) activeCount += 1;
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
              if (isReleased) return false;
              isActive = true;
              resolve();
              return true;
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
