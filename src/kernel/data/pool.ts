// A small generic pool whose waits all have a deadline.
import { systemClock } from '../clock.ts';

export interface PoolOptions<Item> {
  max: number;
  /** How long a caller waits for an item before it gets the error of `busyError`. */
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

interface Waiter<Item> {
  resolve(item: Item): void;
  reject(error: unknown): void;
}

const closeMs = 5_000;

export class Pool<Item> {
  readonly #options: PoolOptions<Item>;
  readonly #idleItems: Item[] = [];
  readonly #inUse = new Set<Item>();
  readonly #waiters: Waiter<Item>[] = [];
  #openingCount = 0;
  #onAllReturned: (() => void) | undefined = undefined;
  #isClosed = false;
  #closePromise: Promise<void> | undefined = undefined;

  constructor(options: PoolOptions<Item>) {
    this.#options = options;
  }

  state(): PoolState {
    return {
      max: this.#options.max,
      inUse: this.#inUse.size,
      idle: this.#idleItems.length,
      waiting: this.#waiters.length,
    };
  }

  /**
   * Rejects with what `open` throws, or with `busyError` after `queueMs` and after `close`. The caller
   * must `release` the item, even if it is lost.
   */
  acquire(): Promise<Item> {
    if (this.#isClosed) return Promise.reject(this.#options.busyError());
    // The most recently used item has the warmest caches.
    const item = this.#idleItems.pop();
    if (item === undefined) return this.#enqueue();
    this.#inUse.add(item);
    return Promise.resolve(item);
  }

  release(item: Item): void {
    this.#inUse.delete(item);
    if (this.#options.isAlive(item)) this.#handOut(item);
    else this.#openMore();
    if (this.#inUse.size === 0) this.#onAllReturned?.();
  }

  /**
   * Refuses callers, waits up to five seconds for items in use, then ends all items. A second call waits for
   * the first.
   */
  close(): Promise<void> {
    return (this.#closePromise ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    for (const waiter of this.#waiters.splice(0)) waiter.reject(this.#options.busyError());
    await this.#waitForItemsInUse();
    const items = [...this.#idleItems.splice(0), ...this.#inUse];
    await Promise.all(items.map((item) => this.#options.end(item)));
  }

  #enqueue(): Promise<Item> {
    const item = waitInQueue(this.#waiters, this.#options);
    this.#openMore();
    return item;
  }

  /** Opens items until each waiter has one on its way, within the limit. */
  #openMore(): void {
    while (
      !this.#isClosed &&
      this.#waiters.length > this.#openingCount &&
      this.#openingCount + this.#inUse.size + this.#idleItems.length < this.#options.max
    ) {
      this.#openingCount += 1;
      void this.#openOne();
    }
  }

  async #openOne(): Promise<void> {
    try {
      let isLost = false;
      let openedItem: Item | undefined;
      const item = await this.#options.open(() => {
        isLost = true;
        if (openedItem !== undefined) this.#removeIdle(openedItem);
      });
      openedItem = item;
      this.#openingCount -= 1;
      if (isLost) this.#openMore();
      else this.#handOut(item);
    } catch (error) {
      this.#openingCount -= 1;
      // Only the first waiter fails; the others open items of their own or keep waiting.
      this.#waiters.shift()?.reject(error);
      this.#openMore();
    }
  }

  #handOut(item: Item): void {
    const waiter = this.#waiters.shift();
    if (waiter) {
      this.#inUse.add(item);
      waiter.resolve(item);
    } else if (this.#isClosed) {
      void this.#options.end(item);
    } else {
      this.#idleItems.push(item);
    }
  }

  #removeIdle(item: Item): void {
    const index = this.#idleItems.indexOf(item);
    if (index >= 0) this.#idleItems.splice(index, 1);
  }

  /** Waits for the items in use, five seconds at most. */
  async #waitForItemsInUse(): Promise<void> {
    if (this.#inUse.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onAllReturned = resolve;
    const timer = setTimeout(resolve, closeMs);
    await promise;
    clearTimeout(timer);
  }
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
