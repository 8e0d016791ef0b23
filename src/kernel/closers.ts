// What a start has opened, as a list of close functions: run in reverse order at the end, or when a later step throws.

export interface Closers {
  /** Adds the close function of what was opened last. */
  defer(close: () => unknown): void;
  /**
   * Runs every close function once, the last one first, also when some of them throw; then throws the first error.
   * A second call waits for the same end.
   */
  close(): Promise<void>;
}

export function createClosers(): Closers {
  const pending: (() => unknown)[] = [];
  let closing: Promise<void> | undefined;

  async function closeAll(): Promise<void> {
    const errors: unknown[] = [];
    for (let close = pending.pop(); close !== undefined; close = pending.pop()) {
      try {
        await close();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
  }

  return {
    defer: (close) => void pending.push(close),
    close: () => (closing ??= closeAll()),
  };
}

/** Runs a start. When it throws, closes what it deferred and throws its error; an error of the closing itself is dropped. */
export async function closedOnError<T>(closers: Closers, start: () => Promise<T>): Promise<T> {
  try {
    return await start();
  } catch (error) {
    await closers.close().catch(() => undefined);
    throw error;
  }
}
