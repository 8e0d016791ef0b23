// Background work: one run at a time per name; a failure is logged and reaches no caller.
import { expect, test } from 'vitest';
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

test('work of one name runs one at a time', async () => {
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

test('background work continues after a failure', async () => {
  const { log, warnings } = recordingLog();
  const background = createBackground(log);
  background.run('a', () => Promise.reject(new Error('away')));
  background.run('b', () => {
    throw new Error('at once');
  });
  await background.untilSettled();
  expect(warnings).toHaveLength(2);
});
