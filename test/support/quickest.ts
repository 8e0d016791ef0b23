// How to hold a promise about time on a machine that does other things as well.

/**
 * The least time of up to ten rounds, in milliseconds, and no more rounds once one took less than `enoughMs`: what the
 * work itself takes, without what a busy machine adds now and then. A round that resolves to a number says with it how long
 * it took, for where its whole length is not the matter.
 */
export async function quickest(enoughMs: number, round: () => Promise<unknown>): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let count = 0; count < 10 && least >= enoughMs; count += 1) {
    const startedMs = performance.now();
    const figure = await round();
    least = Math.min(least, typeof figure === 'number' ? figure : performance.now() - startedMs);
  }
  return least;
}
