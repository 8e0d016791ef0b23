// One load at a time, and the end of the loads.
import { expect, test } from 'vitest';
import { createRefresher } from '../../../src/gateway/env/refresher.ts';
import { systemClock } from '../../../src/kernel/clock.ts';

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
