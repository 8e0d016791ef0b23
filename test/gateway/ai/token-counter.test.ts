// The thread of the token counter; closer-bound.test.ts has the counts.
import { expect, test } from 'vitest';
import { createTokenCounter } from '../../../src/gateway/ai/metering/token-counter.ts';

test('closing a token counter starts no thread for its queued jobs', async () => {
  let threads = 0;
  const countThread = () => void (threads += 1);
  process.on('worker', countThread);
  try {
    const counter = createTokenCounter({ deadlineMs: 60_000 });
    const counts = [1, 2, 3].map(() => counter.count('o200k_base', ['hello']));
    await counter.close();
    expect(await Promise.all(counts)).toEqual([undefined, undefined, undefined]);
    // The event follows in a later turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve));
    expect(threads).toBe(1);
  } finally {
    process.off('worker', countThread);
  }
});
