// Change notices between replicas through one row.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { pause } from '../../../src/kernel/async.ts';
import { createChanges, type Changes } from '../../../src/kernel/data/changes.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import type { Database } from '../../../src/kernel/data/database.ts';
import { silentLog, testDatabase, type TestDatabase } from '../../support/databases.ts';
import { until } from '../../support/until.ts';

const everyMs = 10;
const severalPollsMs = 5 * everyMs;
let place: TestDatabase;
const openChanges: Changes[] = [];
beforeEach(async () => {
  place = await testDatabase();
});
afterEach(async () => {
  for (const changes of openChanges.splice(0)) await changes.stop();
  await place.close();
});

function replica(database: Pick<Database, 'sql'> = place.database) {
  const changes = createChanges({
    database,
    schema: 'gateway',
    clock: systemClock,
    log: silentLog,
    everyMs,
  });
  openChanges.push(changes);
  let notifications = 0;
  changes.onChange(() => (notifications += 1));
  changes.start();
  return { changes, countNotifications: () => notifications };
}

/** The database of the test, whose statements fail while `isAway` is set. */
function controlledOutage(): Pick<Database, 'sql'> & { isAway: boolean; rejections: number } {
  const outage = { isAway: false, rejections: 0 };
  const sql = new Proxy(place.database.sql, {
    apply(target, receiver, [first, ...rest]: [unknown, ...unknown[]]) {
      // `sql('name')` only quotes the name and sends nothing.
      if (!outage.isAway || !Array.isArray(first)) return Reflect.apply(target, receiver, [first, ...rest]);
      outage.rejections += 1;
      return Promise.reject(new Error('away'));
    },
  });
  return Object.assign(outage, { sql });
}

describe('changes', () => {
  test('notify each replica when it starts and after a commit', async () => {
    const [firstReplica, secondReplica] = [replica(), replica()];
    await until(
      () => firstReplica.countNotifications() === 1 && secondReplica.countNotifications() === 1,
      'both were notified when they started',
    );
    let countWithin = 0;
    await place.database.tx(async (tx) => {
      await firstReplica.changes.bump(tx);
      await pause(severalPollsMs);
      countWithin = secondReplica.countNotifications();
    });
    await until(
      () => firstReplica.countNotifications() === 2 && secondReplica.countNotifications() === 2,
      'both were notified of the change',
    );
    expect(countWithin).toBe(1);
  });

  test('are not announced when rolled back', async () => {
    const firstReplica = replica();
    await until(() => firstReplica.countNotifications() === 1, 'it was notified when it started');
    await expect(
      place.database.tx(async (tx) => {
        await firstReplica.changes.bump(tx);
        throw new Error('undone');
      }),
    ).rejects.toThrow('undone');
    await pause(severalPollsMs);
    expect(firstReplica.countNotifications()).toBe(1);
    await place.database.tx((tx) => firstReplica.changes.bump(tx));
    await until(() => firstReplica.countNotifications() > 1, 'it was notified of the commit');
    expect(firstReplica.countNotifications()).toBe(2);
  });

  test('notify again after a database outage', async () => {
    const outage = controlledOutage();
    const firstReplica = replica(outage);
    await until(() => firstReplica.countNotifications() === 1, 'it was notified when it started');
    outage.isAway = true;
    await until(() => outage.rejections > 1, 'its polls fail');
    expect(firstReplica.countNotifications()).toBe(1);
    outage.isAway = false;
    await until(() => firstReplica.countNotifications() === 2, 'it was notified after the outage');
  });

  test('reach the other listeners when one of them throws', async () => {
    const firstReplica = replica();
    firstReplica.changes.onChange(() => {
      throw new Error('a bad listener');
    });
    let secondListenerCalls = 0;
    const stop = firstReplica.changes.onChange(() => (secondListenerCalls += 1));
    await until(() => firstReplica.countNotifications() === 1, 'it was notified when it started');
    await place.database.tx((tx) => firstReplica.changes.bump(tx));
    await until(
      () => firstReplica.countNotifications() === 2 && secondListenerCalls > 0,
      'the listener after the bad one was reached',
    );
    stop();
    const callsBefore = secondListenerCalls;
    await place.database.tx((tx) => firstReplica.changes.bump(tx));
    await until(() => firstReplica.countNotifications() === 3, 'the first listener was notified');
    expect(secondListenerCalls).toBe(callsBefore);
  });

  test('keep their generation until something changes', async () => {
    const [firstReplica, secondReplica] = [replica(), replica()];
    await until(
      () => firstReplica.changes.generation() !== null && secondReplica.changes.generation() !== null,
      'both know their generation',
    );
    const [generationBefore, secondBefore] = [
      firstReplica.changes.generation(),
      secondReplica.changes.generation(),
    ];
    await pause(severalPollsMs);
    expect(firstReplica.changes.generation()).toBe(generationBefore);
    await place.database.tx(async (tx) => {
      await firstReplica.changes.bump(tx);
      // A read now could be from before the commit.
      expect(firstReplica.changes.generation()).toBeNull();
      const countBefore = firstReplica.countNotifications();
      await pause(severalPollsMs);
      expect([firstReplica.changes.generation(), firstReplica.countNotifications()]).toEqual([
        null,
        countBefore,
      ]);
    });
    await until(
      () => firstReplica.changes.generation() !== null && secondReplica.changes.generation() !== secondBefore,
      'both know the change',
    );
    expect(firstReplica.changes.generation()).not.toBe(generationBefore);
  });

  test('have no generation before the start or during an outage', async () => {
    let nowMs = 0;
    const outage = controlledOutage();
    const changes = createChanges({
      database: outage,
      schema: 'gateway',
      clock: { monotonicMs: () => nowMs, sleep: (ms, signal) => systemClock.sleep(ms, signal) },
      log: silentLog,
      everyMs,
    });
    openChanges.push(changes);
    expect(changes.generation()).toBeNull();
    changes.start();
    await until(() => changes.generation() !== null, 'the first poll');
    outage.isAway = true;
    // A poll that is already running may still succeed.
    await pause(severalPollsMs);
    expect(changes.generation()).not.toBeNull();
    // Cached values are used for 900 ms after the last poll.
    nowMs += 901;
    expect(changes.generation()).toBeNull();
    outage.isAway = false;
    await until(() => changes.generation() !== null, 'a poll after the outage');
  });
});
