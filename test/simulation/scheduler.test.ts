import { describe, expect, test } from 'vitest';
import { seededRandom } from './random.ts';
import { createScheduler, type Process, type Scheduler } from './scheduler.ts';
import { createVirtualClock } from './virtual-clock.ts';

const farMs = 1_000_000;

function newProcess(): Process {
  return { name: 'gateway', state: 'running', suspendedMs: 0, wallOffsetMs: 0 };
}

function runAll(scheduler: Scheduler): void {
  while (scheduler.step(farMs) !== null);
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
}

describe('seededRandom', () => {
  test('gives the same numbers for the same seed', () => {
    const draw = (seed: number): number[] => {
      const random = seededRandom(seed);
      return [random.next(), random.between(1, 1_000), random.next()];
    };
    expect(draw(7)).toEqual(draw(7));
    expect(draw(7)).not.toEqual(draw(8));
  });

  test('reaches both ends of a range', () => {
    const random = seededRandom(1);
    const numbers = new Set(Array.from({ length: 200 }, () => random.between(3, 5)));
    expect([...numbers].toSorted((a, b) => a - b)).toEqual([3, 4, 5]);
  });
});

describe('scheduler', () => {
  test('runs events in the order of their times', () => {
    const scheduler = createScheduler(seededRandom(1));
    const times: number[] = [];
    for (const delayMs of [50, 10, 30, 20, 40, 0])
      scheduler.after(delayMs, null, () => times.push(scheduler.nowMs()));
    runAll(scheduler);
    expect(times).toEqual([0, 10, 20, 30, 40, 50]);
  });

  test('orders events of one time by the seed', () => {
    const orderOf = (seed: number): string => {
      const scheduler = createScheduler(seededRandom(seed));
      let order = '';
      for (const name of 'abcdef') scheduler.after(5, null, () => (order += name));
      runAll(scheduler);
      return order;
    };
    expect(orderOf(1)).toBe(orderOf(1));
    expect(new Set([1, 2, 3, 4].map(orderOf)).size).toBeGreaterThan(1);
  });

  test('stops at the given time', () => {
    const scheduler = createScheduler(seededRandom(1));
    scheduler.after(100, null, () => undefined);
    expect(scheduler.step(99)).toBeNull();
    expect(scheduler.nowMs()).toBe(99);
    expect(scheduler.step(100)).toMatchObject({ atMs: 100 });
  });

  test('skips cancelled events', () => {
    const scheduler = createScheduler(seededRandom(1));
    let count = 0;
    scheduler.cancel(scheduler.after(1, null, () => (count += 1)));
    runAll(scheduler);
    expect(count).toBe(0);
  });

  test('delivers the events of a stopped process when it continues', () => {
    const scheduler = createScheduler(seededRandom(1));
    const process = newProcess();
    const times: number[] = [];
    scheduler.after(10, process, () => times.push(scheduler.nowMs()));
    scheduler.after(70, null, () => scheduler.resume(process));
    scheduler.stop(process);
    runAll(scheduler);
    expect(times).toEqual([70]);
  });

  test('drops the events of a dead process', () => {
    const scheduler = createScheduler(seededRandom(1));
    const process = newProcess();
    let count = 0;
    scheduler.after(10, process, () => (count += 1));
    scheduler.kill(process);
    runAll(scheduler);
    expect(count).toBe(0);
  });
});

describe('virtual clock', () => {
  test('sleeps in virtual time', async () => {
    const scheduler = createScheduler(seededRandom(1));
    const clock = createVirtualClock(scheduler, newProcess());
    let wokenAtMs = -1;
    void clock.sleep(20_000).then(() => (wokenAtMs = scheduler.nowMs()));
    while (scheduler.step(farMs) !== null) await settle();
    expect(wokenAtMs).toBe(20_000);
  });

  test('rejects an aborted sleep with the reason', async () => {
    const scheduler = createScheduler(seededRandom(1));
    const clock = createVirtualClock(scheduler, newProcess());
    const controller = new AbortController();
    const sleep = clock.sleep(100, controller.signal);
    controller.abort('enough');
    await expect(sleep).rejects.toBe('enough');
  });

  test('stops on a suspended machine except for wall time', async () => {
    const scheduler = createScheduler(seededRandom(1));
    const process = newProcess();
    const clock = createVirtualClock(scheduler, process);
    const startedMs = clock.now().getTime();
    let wokenAtMs = -1;
    void clock.sleep(100).then(() => (wokenAtMs = scheduler.nowMs()));
    scheduler.stop(process);
    scheduler.after(60_000, null, () => {
      process.suspendedMs += 60_000;
      scheduler.resume(process);
    });
    while (scheduler.step(farMs) !== null) await settle();
    expect(wokenAtMs).toBe(60_100);
    expect(clock.monotonicMs()).toBe(farMs - 60_000);
    expect(clock.now().getTime() - startedMs).toBe(farMs);
  });
});
