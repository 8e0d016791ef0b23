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

export interface FairLimitOptions {
  slots: number;
  slotsPerOwner: number;
}

export function createFairLimit(options: FairLimitOptions): FairLimit {
  return new RoundRobinLimit(options);
}

class RoundRobinLimit implements FairLimit {
  readonly #slotsPerOwner: number;
  #freeSlots: number;
  readonly #runningCounts = new Map<string, number>();
  /** The queues by owner, in the order of turns: an owner with an admitted task moves to the end. */
  readonly #queues = new Map<string, (() => void)[]>();

  constructor({ slots, slotsPerOwner }: FairLimitOptions) {
    this.#freeSlots = slots;
    this.#slotsPerOwner = slotsPerOwner;
  }

  async acquire(owner: string, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    await this.#waitForTurn(owner, signal);
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      this.#release(owner);
    };
  }

  countWaiting(owner: string): number {
    return this.#queues.get(owner)?.length ?? 0;
  }

  #waitForTurn(owner: string, signal: AbortSignal): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      const abort = () => {
        this.#leaveQueue(owner, admit);
        reject(signal.reason as Error);
      };
      const admit = () => {
        signal.removeEventListener('abort', abort);
        resolve();
      };
      signal.addEventListener('abort', abort, { once: true });
      this.#queues.set(owner, [...(this.#queues.get(owner) ?? []), admit]);
      this.#admitWaiting();
    });
  }

  #admitWaiting(): void {
    for (const [owner, queue] of this.#queues) {
      if (this.#freeSlots === 0) return;
      if ((this.#runningCounts.get(owner) ?? 0) >= this.#slotsPerOwner) continue;
      const admit = queue.shift();
      this.#queues.delete(owner);
      // A Map iterates over keys that are added during the iteration, so this owner gets further turns.
      if (queue.length > 0) this.#queues.set(owner, queue);
      if (admit) this.#start(owner, admit);
    }
  }

  #start(owner: string, admit: () => void): void {
    this.#freeSlots -= 1;
    this.#runningCounts.set(owner, (this.#runningCounts.get(owner) ?? 0) + 1);
    admit();
  }

  #release(owner: string): void {
    this.#freeSlots += 1;
    const count = (this.#runningCounts.get(owner) ?? 1) - 1;
    if (count === 0) this.#runningCounts.delete(owner);
    else this.#runningCounts.set(owner, count);
    this.#admitWaiting();
  }

  #leaveQueue(owner: string, admit: () => void): void {
    const queue = (this.#queues.get(owner) ?? []).filter((other) => other !== admit);
    if (queue.length === 0) this.#queues.delete(owner);
    else this.#queues.set(owner, queue);
  }
}
