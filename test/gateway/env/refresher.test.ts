// One load at a time, and the end of the loads.
import { expect, test } from 'vitest';
import { createRefresher } from '../../../src/gateway/env/refresher.ts';
import { systemClock } from '../../../src/kernel/clock.ts';

test('never runs two loads at once', async () => {
  const loads: PromiseWithResolvers<void>[] = [];
  let runningLoads = 0;
  let mostLoads = 0;
  const refresher = createRefresher(async () => {
    runningLoads += 1;
    mostLoads = Math.max(mostLoads, runningLoads);
    const load = Promise.withResolvers<void>();
    loads.push(load);
    await load.promise;
    runningLoads -= 1;
  }, systemClock);
  // The last call is made when the first load has ended and the queued load has not started yet.
  const firstRefresh = refresher.refresh().then(() => refresher.refresh());
  const queuedRefresh = refresher.refresh();
  loads[0]?.resolve();
  await expect.poll(() => loads.length).toBeGreaterThan(1);
  for (const load of loads) load.resolve();
  await Promise.all([firstRefresh, queuedRefresh]);
  expect([mostLoads, loads.length]).toEqual([1, 2]);
});

test('close waits for the load that is queued behind the running one', async () => {
  const loads: PromiseWithResolvers<void>[] = [];
  const refresher = createRefresher(() => {
    const load = Promise.withResolvers<void>();
    loads.push(load);
    return load.promise;
  }, systemClock);
  const refreshes = [refresher.refresh(), refresher.refresh()];
  let isClosed = false;
  const closing = refresher.close().then(() => (isClosed = true));
  loads[0]?.resolve();
  await expect.poll(() => loads.length).toBe(2);
  expect(isClosed).toBe(false);
  loads[1]?.resolve();
  await closing;
  await Promise.all(refreshes);
});
