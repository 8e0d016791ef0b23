// The pool of database connections, with items that tests count.
import { expect, test } from 'vitest';
import { Pool } from '../../../src/kernel/data/pool.ts';

test('a second close waits for the first, which waits for the item in use', async () => {
  const events: string[] = [];
  const pool = new Pool<object>({
    max: 1,
    queueMs: 1_000,
    open: async () => ({}),
    isAlive: () => true,
    end: async () => void events.push('item ended'),
    busyError: () => new Error('busy'),
  });
  const item = await pool.acquire();
  const startedMs = performance.now();
  const closes = ['first', 'second'].map(async (name) => {
    await pool.close();
    events.push(`${name} close resolved`);
  });
  pool.release(item);
  await Promise.all(closes);
  expect(events).toEqual(['item ended', 'first close resolved', 'second close resolved']);
  // Without the release the pool would wait for five seconds.
  expect(performance.now() - startedMs).toBeLessThan(4_000);
});
