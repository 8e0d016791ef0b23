// Timeouts, retries, serialization, batches and shared reads of asynchronous work.
import { type Clock, systemClock } from './clock.ts';

/** Resolves in the next turn of the event loop, after timers and the I/O of other connections. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

export interface WaitOptions {
  clock?: Pick<Clock, 'sleep'>;
  /** Ends the wait early. */
  signal?: AbortSignal | undefined;
}

/** Resolves after `ms`, or as soon as the signal is aborted. Never rejects. */
export function pause(ms: number, { clock = systemClock, signal }: WaitOptions = {}): Promise<void> {
  return clock.sleep(ms, signal).catch(() => undefined);
}

/** The error of work that took too long. */
export class TimeoutError extends Error {
  override readonly name = 'TimeoutError';
}

export interface TimeoutOptions extends WaitOptions {
  ms: number;
  /** Creates the error to reject with instead of a TimeoutError. */
  error?(): Error;
}

/**
 * Settles like `work`. Rejects with a TimeoutError after `ms`, or with the reason of `signal` if
 * that is aborted first. The signal that `work` receives is aborted with the same reason; work
 * that ignores it keeps running, and its result is dropped.
 */
export async function withTimeout<T>(
  work: (signal: AbortSignal) => Promise<T>,
  { ms, error, clock = systemClock, signal: callerSignal }: TimeoutOptions,
): Promise<T> {
  const timeout = new AbortController();
  const completion = new AbortController();
  const callerSignals = callerSignal === undefined ? [] : [callerSignal];
  const result = work(AbortSignal.any([...callerSignals, timeout.signal]));
  result.catch(() => undefined);
  const deadline = clock.sleep(ms, AbortSignal.any([...callerSignals, completion.signal])).then((): never => {
    const reason = error?.() ?? new TimeoutError(`The operation took longer than ${ms} ms.`);
    timeout.abort(reason);
    throw reason;
  });
  deadline.catch(() => undefined);
  try {
    return await Promise.race([result, deadline]);
  } finally {
    completion.abort();
  }
}

/**
 * Whether the work settles, with a result or an error, within `ms` and before the
 * signal is aborted. Never rejects.
 */
export async function settlesWithin(
  work: Promise<unknown>,
  { ms, clock = systemClock, signal: callerSignal }: WaitOptions & { ms: number },
): Promise<boolean> {
  const completion = new AbortController();
  const signal =
    callerSignal === undefined ? completion.signal : AbortSignal.any([callerSignal, completion.signal]);
  const settlement = work.then(
    () => true,
    () => true,
  );
  const deadline = clock.sleep(ms, signal).then(
    () => false,
    () => false,
  );
  const isSettled = await Promise.race([settlement, deadline]);
  completion.abort();
  return isSettled;
}

/**
 * Returns a function that runs one piece of work at a time, in the order of the calls. A failure
 * rejects only the promise of its own call; the next piece of work starts anyway.
 */
export function createSerializer(): <T>(work: () => Promise<T>) => Promise<T> {
  let lastWork: Promise<unknown> = Promise.resolve();
  return (work) => {
    const result = lastWork.then(work);
    lastWork = result.catch(() => undefined);
    return result;
  };
}

export interface RetryOptions extends WaitOptions {
  /** Whether to try again; `attempt` counts from 1. */
  isRetryable(error: unknown, attempt: number): boolean;
  delayMs(attempt: number): number;
}

/**
 * Calls `work` until it succeeds, and rejects with the first error that is not
 * retryable. An abort ends the wait: the work is tried once more and its error is final.
 */
export async function retry<T>(
  work: () => Promise<T>,
  { isRetryable, delayMs, clock, signal }: RetryOptions,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (signal?.aborted || !isRetryable(error, attempt)) throw error;
      await pause(delayMs(attempt), { clock, signal });
    }
  }
}

export interface BatcherOptions<Item> {
  maxItems: number;
  /** Whether the item needs a batch of its own. */
  isAlone?(item: Item): boolean;
  /** Items with the same key never share a batch. */
  keyOf?(item: Item): string;
  /**
   * Whether a batch that failed with this error had no effect, so that its items may be run again
   * one by one.
   */
  hadNoEffect(error: unknown): boolean;
}

interface QueuedItem<Item, Result> {
  item: Item;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

/**
 * Group commit: items that arrive while a batch runs form the next batch, so concurrent
 * callers share a statement and a lone caller does not wait. `work` returns results in the
 * order of the items. It may run twice for an item (`hadNoEffect`).
 */
export function createBatcher<Item, Result>(
  work: (items: readonly Item[]) => Promise<readonly Result[]>,
  { maxItems, isAlone = () => false, keyOf, hadNoEffect }: BatcherOptions<Item>,
): (item: Item) => Promise<Result> {
  const queue: QueuedItem<Item, Result>[] = [];
  let isRunning = false;

  async function run(batch: readonly QueuedItem<Item, Result>[]): Promise<void> {
    try {
      const results = await work(batch.map(({ item }) => item));
      for (const [index, { resolve }] of batch.entries()) resolve(results[index] as Result);
    } catch (error) {
      if (batch.length === 1 || !hadNoEffect(error)) return batch.forEach(({ reject }) => reject(error));
      // A single item may have failed the whole batch, so run each item alone.
      await Promise.all(batch.map((item) => run([item])));
    }
  }

  function nextBatch(): QueuedItem<Item, Result>[] {
    const keys = new Set<string>();
    let count = 0;
    for (const { item } of queue.slice(0, maxItems)) {
      const key = keyOf?.(item);
      if ((count > 0 && isAlone(item)) || (key !== undefined && keys.has(key))) break;
      if (key !== undefined) keys.add(key);
      count += 1;
      if (isAlone(item)) break;
    }
    return queue.splice(0, count);
  }

  async function drain(): Promise<void> {
    while (queue.length > 0) await run(nextBatch());
    isRunning = false;
  }

  return (item) =>
    new Promise((resolve, reject) => {
      queue.push({ item, resolve, reject });
      if (isRunning) return;
      isRunning = true;
      // Start in the next turn: items of other connections that arrive in this turn join the batch.
      setImmediate(() => void drain());
    });
}

interface SharedRead<T> {
  running: Promise<T>;
  /** Starts after the running read; shared by all callers that arrive while that read runs. */
  next: Promise<T> | null;
}

/**
 * Shares reads between concurrent callers: a key has at most one running and one waiting read. A caller never
 * gets the value of a read that started before its call. Callers that share a read also share its failure.
 */
export function createSharedReads<T>(): (key: string, read: () => Promise<T>) => Promise<T> {
  const reads = new Map<string, SharedRead<T>>();

  function start(key: string, read: () => Promise<T>): Promise<T> {
    const entry: SharedRead<T> = { running: read(), next: null };
    reads.set(key, entry);
    const deleteIfLast = (): void => {
      if (entry.next === null) reads.delete(key);
    };
    entry.running.then(deleteIfLast, deleteIfLast);
    return entry.running;
  }

  return (key, read) => {
    const entry = reads.get(key);
    if (entry === undefined) return start(key, read);
    const startNext = () => start(key, read);
    entry.next ??= entry.running.then(startNext, startNext);
    return entry.next;
  };
}
