// Slots of the concurrency limit.
import { describe, expect, test } from 'vitest';
import { nextTurn } from '../../../src/kernel/async.ts';
import {
  type ConcurrencySlot,
  createConcurrencyLimit,
} from '../../../src/kernel/secrets/concurrency-limit.ts';

describe('createConcurrencyLimit', () => {
  test('starts the next work after a waiting one gave up', async () => {
    const limit = createConcurrencyLimit({ running: 1, waiting: 2 });
    const [first, second, third] = Array.from({ length: 3 }, () => limit.tryAcquire() as ConcurrencySlot) as [
      ConcurrencySlot,
      ConcurrencySlot,
      ConcurrencySlot,
    ];
    expect(limit.tryAcquire()).toBeNull();
    await first.start();
    void second.start();
    const started: string[] = [];
    const thirdStart = third.start().then(() => started.push('third'));
    second.release();
    await nextTurn();
    expect(started).toEqual([]);
    first.release();
    await thirdStart;
    third.release();
    const next = limit.tryAcquire();
    expect(next).not.toBeNull();
    await next?.start();
  });
});
