// A small pool of connections whose waits all end. It knows nothing of what a connection is.
import { systemClock } from '../clock.ts';

export interface PoolOptions<Item> {
  max: number;
  /** How long a caller waits for an item before `busy` is thrown. */
  queueMs: number;
  /** Makes an item; `onLost` is called at most once, when it can be used no more. */
  open(onLost: () => void): Promise<Item>;
  isAlive(item: Item): boolean;
  end(item: Item): Promise<void>;
  busy(): Error;
  /** Told how long each caller waited that did not get an item at once. */
  waited?: ((ms: number) => void) | undefined;
}

/** How a pool stands at one moment. */
export interface PoolState {
  max: number;
  inUse: number;
  idle: number;
  waiting: number;
}

export interface Pool<Item> {
  state(): PoolState;
  /** Throws what `open` throws, or `busy()` after `queueMs`. What it gives must come back by `release`, lost or not. */
  acquire(): Promise<Item>;
  release(item: Item): void;
  /** Refuses callers, waits up to five seconds for what is out, then ends all items. */
  close(): Promise<void>;
}

const closeMs = 5_000;

interface Waiter<Item> {
  resolve(item: Item): void;
  reject(error: unknown): void;
}

export function createPool<Item>(options: PoolOptions<Item>): Pool<Item> {
  const idle: Item[] = [];
  const out = new Set<Item>();
  const waiters: Waiter<Item>[] = [];
  let opening = 0;
  let emptied: (() => void) | undefined;
  let isClosed = false;

  function acquire(): Promise<Item> {
    if (isClosed) return Promise.reject(options.busy());
    // The item used last is the warmest.
    const item = idle.pop();
    if (item !== undefined) {
      out.add(item);
      return Promise.resolve(item);
    }
    const since = options.waited === undefined ? 0 : systemClock.monotonicMs();
    return new Promise<Item>((resolve, reject) => {
      const timer = setTimeout(() => {
        waiters.splice(waiters.indexOf(waiter), 1);
        options.waited?.(options.queueMs);
        reject(options.busy());
      }, options.queueMs);
      const waiter: Waiter<Item> = {
        resolve(given) {
          clearTimeout(timer);
          options.waited?.(systemClock.monotonicMs() - since);
          resolve(given);
        },
        reject(error) {
          clearTimeout(timer);
          reject(error);
        },
      };
      waiters.push(waiter);
      openMore();
    });
  }

  /** Opens as many items as there are waiters without one on its way, within the limit. */
  function openMore(): void {
    while (!isClosed && waiters.length > opening && opening + out.size + idle.length < options.max) {
      opening += 1;
      void openOne();
    }
  }

  async function openOne(): Promise<void> {
    try {
      let isLost = false;
      let opened: Item | undefined;
      const item = await options.open(() => {
        isLost = true;
        if (opened !== undefined) forget(opened);
      });
      opened = item;
      opening -= 1;
      if (isLost) openMore();
      else give(item);
    } catch (error) {
      opening -= 1;
      // Only the one that it was opened for hears of it; the others try for themselves or wait on.
      waiters.shift()?.reject(error);
      openMore();
    }
  }

  function give(item: Item): void {
    const waiter = waiters.shift();
    if (waiter) {
      out.add(item);
      waiter.resolve(item);
    } else if (isClosed) {
      void options.end(item);
    } else {
      idle.push(item);
    }
  }

  function forget(item: Item): void {
    const index = idle.indexOf(item);
    if (index >= 0) idle.splice(index, 1);
  }

  function release(item: Item): void {
    out.delete(item);
    if (options.isAlive(item)) give(item);
    else openMore();
    if (out.size === 0) emptied?.();
  }

  return {
    state: () => ({ max: options.max, inUse: out.size, idle: idle.length, waiting: waiters.length }),
    acquire,
    release,
    async close() {
      isClosed = true;
      for (const waiter of waiters.splice(0)) waiter.reject(options.busy());
      if (out.size > 0) {
        const timeout = Promise.withResolvers<void>();
        emptied = timeout.resolve;
        const timer = setTimeout(timeout.resolve, closeMs);
        await timeout.promise;
        clearTimeout(timer);
      }
      await Promise.all([...idle.splice(0), ...out].map((item) => options.end(item)));
    },
  };
}
