// The supervisor of one service: commands that arrive while it starts or ends a run.
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import {
  createSupervisor,
  supervisorLimits,
  type ServiceSupervisor,
} from '../../../src/agent/services/index.ts';
import type { ServiceDefinition } from '../../../src/agent/service-definition.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../support/databases.ts';

function supervise(definition: Pick<ServiceDefinition, 'start' | 'stop'>): ServiceSupervisor {
  return createSupervisor(
    { name: 'bell', title: 'Bell', ...definition },
    {
      limits: { ...supervisorLimits, backOffMs: 60_000, longestBackOffMs: 60_000, waitMs: 2_000 },
      clock: systemClock,
      log: silentLog,
    },
  );
}

describe('a service supervisor', () => {
  test('shares one start with a command that arrives later', async () => {
    let startCount = 0;
    const supervisor = supervise({
      async start() {
        startCount += 1;
        await sleep(50);
      },
      stop: async () => {},
    });
    const firstStart = supervisor.control('start');
    await sleep(10);
    expect(await supervisor.control('start')).toEqual({ changed: false });
    await firstStart;
    expect(supervisor.snapshot()).toMatchObject({ state: 'running', lastError: null, restarts: 0 });
    expect(startCount).toBe(1);
    await supervisor.close();
  });

  test('obeys a stop that arrives while a failed run ends', async () => {
    let fail: (reason: string) => void = () => {};
    const supervisor = supervise({
      start: async ({ failed }) => void (fail = failed),
      stop: () => sleep(50),
    });
    await supervisor.control('start');
    fail('It broke.');
    await expect.poll(() => supervisor.snapshot().state, { interval: 1 }).toBe('stopping');
    await supervisor.control('stop');
    expect(supervisor.snapshot().state).toBe('stopped');
    await supervisor.close();
  });
});
