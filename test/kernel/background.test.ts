import { describe, expect, test } from 'vitest';
import { createBackground } from '../../src/kernel/background.ts';
import type { Log } from '../../src/kernel/log.ts';

function recordingLog(): { log: Log; warnings: object[] } {
  const warnings: object[] = [];
  const log: Log = {
    debug() {},
    info() {},
    warn: (fields) => warnings.push(fields),
    error() {},
    child: () => log,
  };
  return { log, warnings };
}

describe('createBackground', () => {
  test('starts no work while work of the same name runs', async () => {
    const background = createBackground(recordingLog().log);
    const gate = Promise.withResolvers<void>();
    let runs = 0;
    const work = async () => {
      runs += 1;
      await gate.promise;
    };
    background.run('a', work);
    background.run('a', work);
    background.run('b', work);
    gate.resolve();
    await background.untilSettled();
    expect(runs).toBe(2);
    background.run('a', work);
    await background.untilSettled();
    expect(runs).toBe(3);
  });

  test('logs a failure', async () => {
    const { log, warnings } = recordingLog();
    const background = createBackground(log);
    background.run('a', () => Promise.reject(new Error('away')));
    background.run('b', () => {
      throw new Error('at once');
    });
    await background.untilSettled();
    expect(warnings).toHaveLength(2);
    expect(warnings).toMatchObject(
      expect.arrayContaining([{ err: new Error('away') }, { err: new Error('at once') }]),
    );
  });

  test('runs work again after a failure', async () => {
    const background = createBackground(recordingLog().log);
    background.run('a', () => Promise.reject(new Error('away')));
    await background.untilSettled();
    let runs = 0;
    background.run('a', async () => (runs += 1));
    await background.untilSettled();
    expect(runs).toBe(1);
  });
});
