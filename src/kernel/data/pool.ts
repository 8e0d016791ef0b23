// A small generic pool whose waits all have a deadline.
import { systemClock } from '../clock.ts';

export interface PoolOptions<Item> {
  max: number;
  /** How long a caller waits for an item before `busy` is thrown. */
  queueMs: number;
  /** Creates an item; `onLost` is called at most once, when the item can no longer be used. */
  open(onLost: () => void): Promise<Item>;
  isAlive(item: Item): boolean;
  end(item: Item): Promise<void>;
  busyError(): Error;
  /** Called with the wait of each caller that did not get an item at once. */
  onWait?: ((ms: number) => void) | undefined;
}

/** The state of a pool at one moment. */
export interface PoolState {
  max: number;
  inUse: number;
  idle: number;
  waiting: number;
}

export interface Pool<Item> {
  state(): PoolState;
  /**
   * Throws what `open` throws, or `busy()` after `queueMs`. The item must come back
   * by `release`, lost or not.
   */
  acquire(): Promise<Item>;
  release(item: Item): void;
  /** Refuses callers, waits up to five seconds for items in use, then ends all items. */
  close(): Promise<void>;
}

interface Waiter<Item> {
  resolve(item: Item): void;
  reject(error: unknown): void;
}

const closeMs = 5_000;

export function createPool<Item>(options: PoolOptions<Item>): Pool<Item> {
  const idleItems: Item[] = [];
  const inUse = new Set<Item>();
  const waiters: Waiter<Item>[] = [];
  let openingCount = 0;
  let onAllReturned: (() => void) | undefined;
  let isClosed = false;

  /** Opens an item for each waiter without one being opened, within the limit. */
  function openMore(): void {
    while (
      !isClosed &&
      waiters.length > openingCount &&
      openingCount + inUse.size + idleItems.length < options.max
    ) {
      openingCount += 1;
      void openOne();
    }
  }

  async function openOne(): Promise<void> {
    try {
      let isLost = false;
      let current: Item | undefined;
      const item = await options.open(() => {
        isLost = true;
        if (current !== undefined) removeIdle(current);
      });
      current = item;
      openingCount -= 1;
      if (isLost) openMore();
      else handOut(item);
    } catch (error) {
      openingCount -= 1;
      // Only the first waiter fails; the others open items of their own or keep waiting.
      waiters.shift()?.reject(error);
      openMore();
    }
  }

  function handOut(item: Item): void {
    const waiter = waiters.shift();
    if (waiter) {
      inUse.add(item);
      waiter.resolve(item);
    } else if (isClosed) {
      void options.end(item);
    } else {
      idleItems.push(item);
    }
  }

  function removeIdle(item: Item): void {
    const index = idleItems.indexOf(item);
    if (index >= 0) idleItems.splice(index, 1);
  }

  function enqueue(): Promise<Item> {
    const item = waitInQueue(waiters, options);
    openMore();
    return item;
  }

  /** Waits for the items in use, five seconds at most. */
  async function waitForItemsInUse(): Promise<void> {
    if (inUse.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    onAllReturned = resolve;
    const timer = setTimeout(resolve, closeMs);
    await promise;
    clearTimeout(timer);
  }

  return {
    state: () => ({ max: options.max, inUse: inUse.size, idle: idleItems.length, waiting: waiters.length }),
    acquire() {
      if (isClosed) return Promise.reject(options.busyError());
      // The most recently used item has the warmest caches.
      const item = idleItems.pop();
      if (item === undefined) return enqueue();
      inUse.add(item);
      return Promise.resolve(item);
    },
    release(item) {
      inUse.delete(item);
      if (options.isAlive(item)) handOut(item);
      else openMore();
      if (inUse.size === 0) onAllReturned?.();
    },
    async close() {
      isClosed = true;
      for (const waiter of waiters.splice(0)) waiter.reject(options.busyError());
      await waitForItemsInUse();
      await Promise.all([...idleItems.splice(0), ...inUse].map((item) => options.end(item)));
    },
  };
}

/** Adds a waiter that gives up after `queueMs`. */
function waitInQueue<Item>(waiters: Waiter<Item>[], options: PoolOptions<Item>): Promise<Item> {
  const sinceMs = options.onWait === undefined ? 0 : systemClock.monotonicMs();
  return new Promise<Item>((resolve, reject) => {
    const timer = setTimeout(() => {
      waiters.splice(waiters.indexOf(waiter), 1);
      options.onWait?.(options.queueMs);
      reject(options.busyError());
    }, options.queueMs);
    const waiter: Waiter<Item> = {
      resolve(item) {
        clearTimeout(timer);
        options.onWait?.(systemClock.monotonicMs() - sinceMs);
        resolve(item);
      },
      reject(error) {
        clearTimeout(timer);
        reject(error);
      },
    };
    waiters.push(waiter);
  });
}
