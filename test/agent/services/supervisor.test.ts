// The supervisor of one service: commands that arrive while it starts or ends a run.
import { describe, expect, test } from 'vitest';
import {
  createSupervisor,
  supervisorLimits,
  type ServiceSupervisor,
} from '../../../src/agent/services/index.ts';
import type { SupervisorLimits } from '../../../src/agent/services/supervisor.ts';
import type { ServiceDefinition } from '../../../src/agent/service-definition.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../support/databases.ts';

function supervise(
  definition: Pick<ServiceDefinition, 'start' | 'stop' | 'healthy'>,
  limits: Partial<SupervisorLimits> = {},
): ServiceSupervisor {
  return createSupervisor(
    { name: 'bell', title: 'Bell', ...definition },
    {
      limits: { ...supervisorLimits, backOffMs: 60_000, longestBackOffMs: 60_000, waitMs: 2_000, ...limits },
      clock: systemClock,
      log: silentLog,
    },
  );
}

describe('a service supervisor', () => {
  test('shares one start with a command that arrives later', async () => {
    let startCount = 0;
    const gate = Promise.withResolvers<void>();
    const supervisor = supervise({
      async start() {
        startCount += 1;
        await gate.promise;
      },
      stop: async () => {},
    });
    const firstStart = supervisor.control('start');
    await expect.poll(() => startCount).toBe(1);
    const secondStart = supervisor.control('start');
    gate.resolve();
    expect(await firstStart).toEqual({ changed: true });
    expect(await secondStart).toEqual({ changed: false });
    expect(supervisor.snapshot()).toMatchObject({ state: 'running', lastError: null, restarts: 0 });
    expect(startCount).toBe(1);
    await supervisor.close();
  });

  test('obeys a stop that arrives while a failed run ends', async () => {
    let fail: (reason: string) => void = () => {};
    const gate = Promise.withResolvers<void>();
    const supervisor = supervise({
      start: async ({ failed }) => void (fail = failed),
      stop: () => gate.promise,
    });
    await supervisor.control('start');
    fail('It broke.');
    await expect.poll(() => supervisor.snapshot().state).toBe('stopping');
    const stop = supervisor.control('stop');
    gate.resolve();
    await stop;
    expect(supervisor.snapshot().state).toBe('stopped');
    await supervisor.close();
  });

  test('counts no failure when a start follows a stop of a running attempt', async () => {
    let startCount = 0;
    const supervisor = supervise({
      async start() {
        startCount += 1;
        if (startCount === 1) await new Promise(() => {});
      },
      stop: async () => {},
    });
    const firstStart = supervisor.control('start');
    await expect.poll(() => startCount).toBe(1);
    const stop = supervisor.control('stop');
    await supervisor.control('start');
    expect(supervisor.snapshot()).toMatchObject({ state: 'running', lastError: null });
    await Promise.all([firstStart, stop]);
    await supervisor.close();
  });

  test('retries again when a failed service is started', async () => {
    let startCount = 0;
    const supervisor = supervise(
      {
        async start() {
          startCount += 1;
          throw new Error('It is broken.');
        },
        stop: async () => {},
      },
      { retries: 2, backOffMs: 1, longestBackOffMs: 1 },
    );
    for (const attempts of [3, 6]) {
      await supervisor.control('start');
      expect(supervisor.snapshot().state).toBe('failed');
      expect(startCount).toBe(attempts);
    }
    await supervisor.close();
  });

  test('stops a service at once during a health check that hangs', async () => {
    const check = Promise.withResolvers<void>();
    let hasStopped = false;
    const supervisor = supervise(
      {
        start: async () => {},
        stop: async () => void (hasStopped = true),
        healthy() {
          check.resolve();
          return new Promise(() => {});
        },
      },
      // The interval between two checks is also the deadline of each.
      { healthMs: 1_000, waitMs: 500 },
    );
    await supervisor.control('start');
    await check.promise;
    await supervisor.control('stop');
    expect(hasStopped).toBe(true);
    await supervisor.close();
  });
});
