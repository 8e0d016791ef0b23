// Waiting for a condition that other code makes true.

/**
 * Polls until the condition is true and resolves with the milliseconds that it took; rejects at the
 * deadline.
 */
export async function until(
  condition: () => Promise<boolean> | boolean,
  description: string,
  deadlineMs = 30_000,
): Promise<number> {
  const startedMs = performance.now();
  while (!(await condition())) {
    if (performance.now() - startedMs > deadlineMs)
      throw new Error(`This did not happen in ${deadlineMs} ms: ${description}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return performance.now() - startedMs;
}
