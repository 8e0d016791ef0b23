// The queue of one reader of a stream: buffers items up to a limit in bytes, and lets the reader wait for
// further items.

export interface Inbox<Item> {
  hasItems(): boolean;
  takeItems(): Item[];
  /**
   * Adds items that were published together. They may exceed the limit on their own, so only the bytes that
   * are queued before them count. Once the limit is exceeded, the queue drops all items and stays empty.
   */
  push(items: readonly Item[], bytes: number): void;
  hasOverflowed(): boolean;
  /** Ends the wait of the reader. */
  wake(): void;
  /** Resolves with false as soon as the reader has something to do, or with true after `ms` without it. */
  waitForQuiet(ms: number): Promise<boolean>;
  close(): void;
}

export interface InboxOptions {
  /** Callers of `push` count a character of text as a byte, so this limits the memory only roughly. */
  maxBytes: number;
  /** The client has disconnected, or the agent stops. */
  signal: AbortSignal;
  /** Whether the reader has something to do besides taking items. */
  isDue?(): boolean;
}

export function createInbox<Item>({ maxBytes, signal, isDue = () => false }: InboxOptions): Inbox<Item> {
  let items: Item[] = [];
  let bytes = 0;
  let hasOverflowed = false;
  let wake = () => {};
  const onAbort = () => wake();
  signal.addEventListener('abort', onAbort);
  return {
    hasItems: () => items.length > 0,
    takeItems() {
      const batch = items;
      items = [];
      bytes = 0;
      return batch;
    },
    push(newItems, newBytes) {
      if (hasOverflowed) return;
      if (bytes > maxBytes) {
        hasOverflowed = true;
        items = [];
      } else items.push(...newItems);
      bytes += newBytes;
      wake();
    },
    hasOverflowed: () => hasOverflowed,
    wake: () => wake(),
    waitForQuiet: (ms) =>
      new Promise((resolve) => {
        const settle = (isQuiet: boolean) => {
          clearTimeout(timer);
          wake = () => {};
          resolve(isQuiet);
        };
        const timer = setTimeout(() => settle(true), ms);
        wake = () => settle(false);
        if (items.length > 0 || hasOverflowed || signal.aborted || isDue()) settle(false);
      }),
    close: () => signal.removeEventListener('abort', onAbort),
  };
}
