import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { requirePlantable } from './load.ts';
import { plantedBugs } from './planted-bugs.ts';
import { drawSchedule } from './schedule.ts';
import { shrink } from './shrink.ts';

const run = promisify(execFile);
const program = new URL('main.ts', import.meta.url).pathname;

describe('simulation', () => {
  test('keeps the promises of the ledger in 150 schedules', async () => {
    const options = ['--seed', '1', '--schedules', '150', '--seconds', '80'];
    const { stdout } = await run(process.execPath, [program, ...options]);
    expect(stdout).toMatch(/^150 schedules from seed 1, 0 failed/m);
  });

  test('gives the same trace for the same seed', async () => {
    const trace = async (): Promise<string> => {
      const { stdout } = await run(process.execPath, [program, '--seed', '11', '--trace'], {
        maxBuffer: 1e8,
      });
      // The last line has durations.
      return stdout.replace(/\d+ schedules from.*/, '');
    };
    const firstTrace = await trace();
    expect(firstTrace.length).toBeGreaterThan(1_000);
    expect(await trace()).toBe(firstTrace);
  });

  test.each(plantedBugs.map((bug) => [bug.name, bug] as const))('can plant the bug: %s', (_name, bug) => {
    expect(() => requirePlantable(bug)).not.toThrow();
  });

  test('draws the same schedule from the same seed', () => {
    expect(drawSchedule(5)).toEqual(drawSchedule(5));
    expect(drawSchedule(5)).not.toEqual(drawSchedule(6));
  });

  test('shrinks a failing schedule to the actions that matter', async () => {
    const schedule = drawSchedule(3);
    const failingAction = schedule.actions[7];
    const smallestSchedule = await shrink(schedule, (candidate) =>
      Promise.resolve(candidate.actions.some(({ atMs }) => atMs === failingAction?.atMs)),
    );
    expect(smallestSchedule.actions).toHaveLength(1);
    expect(smallestSchedule.machines).toBe(1);
  });
});
