// Change notices between replicas through one row.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createChanges, type Changes } from '../../../src/kernel/data/changes.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import type { Database } from '../../../src/kernel/data/database.ts';
import { silentLog, testDatabase, type TestDatabase } from '../../support/databases.ts';
import { until } from '../../support/until.ts';

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
    everyMs: 10,
  });
  openChanges.push(changes);
  let notifications = 0;
  changes.onChange(() => (notifications += 1));
  changes.start();
  return { changes, countNotifications: () => notifications };
}

describe('changes', () => {
  test('notify each replica at its start and after a commit', async () => {
    const [firstReplica, secondReplica] = [replica(), replica()];
    await until(
      () => firstReplica.countNotifications() === 1 && secondReplica.countNotifications() === 1,
      'both were notified at their start',
    );
    let seenInside = 0;
    await place.database.tx(async (tx) => {
      await firstReplica.changes.bump(tx);
      seenInside = secondReplica.countNotifications();
    });
    await until(
      () => firstReplica.countNotifications() === 2 && secondReplica.countNotifications() === 2,
      'both were notified of the change',
    );
    expect(seenInside).toBe(1);
  });

  test('are not announced when rolled back', async () => {
    const firstReplica = replica();
    await until(() => firstReplica.countNotifications() === 1, 'it was notified at its start');
    await expect(
      place.database.tx(async (tx) => {
        await firstReplica.changes.bump(tx);
        throw new Error('undone');
      }),
    ).rejects.toThrow('undone');
    await place.database.tx((tx) => firstReplica.changes.bump(tx));
    await until(() => firstReplica.countNotifications() > 1, 'it was told of the change that stayed');
    expect(firstReplica.countNotifications()).toBe(2);
  });

  test('notify again after a database outage', async () => {
    let isAway = false;
    let rejections = 0;
    const { sql } = place.database;
    const flakySql = Object.assign((...parameters: Parameters<typeof sql>) => {
      if (isAway && Array.isArray(parameters[0])) {
        rejections += 1;
        return Promise.reject(new Error('away'));
      }
      return (sql as unknown as (...parameters: unknown[]) => unknown)(...parameters);
    }, {}) as unknown as typeof sql;
    const firstReplica = replica({ sql: flakySql });
    await until(() => firstReplica.countNotifications() === 1, 'it was notified at its start');
    isAway = true;
    await until(() => rejections > 1, 'it has looked in vain');
    expect(firstReplica.countNotifications()).toBe(1);
    isAway = false;
    await until(() => firstReplica.countNotifications() === 2, 'it was told once the database was back');
  });

  test('reach the other listeners when one of them throws', async () => {
    const firstReplica = replica();
    firstReplica.changes.onChange(() => {
      throw new Error('a bad listener');
    });
    let secondListenerCalls = 0;
    const stop = firstReplica.changes.onChange(() => (secondListenerCalls += 1));
    await until(() => firstReplica.countNotifications() === 1, 'it was notified at its start');
    await place.database.tx((tx) => firstReplica.changes.bump(tx));
    await until(
      () => firstReplica.countNotifications() === 2 && secondListenerCalls > 0,
      'the listener behind the bad one was reached',
    );
    stop();
    const callsBefore = secondListenerCalls;
    await place.database.tx((tx) => firstReplica.changes.bump(tx));
    await until(() => firstReplica.countNotifications() === 3, 'the first listener was told');
    expect(secondListenerCalls).toBe(callsBefore);
  });

  test('keep their generation until something changes', async () => {
    const [firstReplica, secondReplica] = [replica(), replica()];
    await until(
      () => firstReplica.changes.generation() !== null && secondReplica.changes.generation() !== null,
      'both know where they are',
    );
    const [generationBefore, beforeThere] = [
      firstReplica.changes.generation(),
      secondReplica.changes.generation(),
    ];
    expect(firstReplica.changes.generation()).toBe(generationBefore);
    await place.database.tx(async (tx) => {
      await firstReplica.changes.bump(tx);
      // A read now could be from before the commit.
      expect(firstReplica.changes.generation()).toBeNull();
      const readCount = firstReplica.countNotifications();
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect([firstReplica.changes.generation(), firstReplica.countNotifications()]).toEqual([
        null,
        readCount,
      ]);
    });
    await until(
      () => firstReplica.changes.generation() !== null && secondReplica.changes.generation() !== beforeThere,
      'both have seen the change',
    );
    expect(firstReplica.changes.generation()).not.toBe(generationBefore);
  });

  test('have no generation before the start or during an outage', async () => {
    let nowMs = 0;
    let isAway = false;
    const { sql } = place.database;
    const flakySql = ((...parameters: Parameters<typeof sql>) =>
      isAway && Array.isArray(parameters[0])
        ? Promise.reject(new Error('away'))
        : (sql as unknown as (...parameters: unknown[]) => unknown)(...parameters)) as unknown as typeof sql;
    const changes = createChanges({
      database: { sql: flakySql },
      schema: 'gateway',
      clock: { monotonicMs: () => nowMs, sleep: (ms, signal) => systemClock.sleep(ms, signal) },
      log: silentLog,
      everyMs: 10,
    });
    openChanges.push(changes);
    expect(changes.generation()).toBeNull();
    changes.start();
    await until(() => changes.generation() !== null, 'it has looked');
    isAway = true;
    // A poll that is already running may still succeed.
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(changes.generation()).not.toBeNull();
    nowMs += 901;
    expect(changes.generation()).toBeNull();
    isAway = false;
    await until(() => changes.generation() !== null, 'it has looked again');
  });
});
