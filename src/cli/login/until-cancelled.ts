// Makes Ctrl-C cancel a piece of work.

/**
 * Aborts the work's signal at the first SIGINT or SIGTERM, and then rejects with a message for the terminal.
 */
export async function untilCancelled<Result>(
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const controller = new AbortController();
  const cancel = (): void => controller.abort();
  process.once('SIGINT', cancel);
  process.once('SIGTERM', cancel);
  try {
    return await work(controller.signal);
  } catch (error) {
    const isAbort = error instanceof Error && error.name === 'AbortError';
    throw isAbort ? new Error('cancelled; nothing was changed.', { cause: error }) : error;
  } finally {
    process.off('SIGINT', cancel);
    process.off('SIGTERM', cancel);
  }
}
