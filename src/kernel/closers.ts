// A list of close functions for everything that a server has opened while it started. They run in reverse
// order when the server stops, or when a later step of its start throws.

export interface Closers {
  /** Adds the close function of the resource that was just opened. */
  defer(close: () => unknown): void;
  /**
   * Runs every close function once, in reverse order, even if some of them throw; then throws the
   * first error. A second call waits for the first.
   */
  close(): Promise<void>;
}

export function createClosers(): Closers {
  const closeFunctions: (() => unknown)[] = [];
  let closePromise: Promise<void> | undefined;

  async function closeAll(): Promise<void> {
    const errors: unknown[] = [];
    for (let close = closeFunctions.pop(); close !== undefined; close = closeFunctions.pop()) {
      try {
        await close();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
  }

  return {
    defer: (close) => void closeFunctions.push(close),
    close: () => (closePromise ??= closeAll()),
  };
}

/**
 * Runs `start`. If it throws, closes everything that it has deferred and rethrows; errors of the
 * close functions are dropped.
 */
export async function closeOnError<T>(closers: Closers, start: () => Promise<T>): Promise<T> {
  try {
    return await start();
  } catch (error) {
    await closers.close().catch(() => undefined);
    throw error;
  }
}

/** Awaits the work; if it fails, closes what was opened for it before it rethrows. */
export async function closeOnFailure<T>(work: Promise<T>, close: () => Promise<void>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    await close().catch(() => undefined);
    throw error;
  }
}
