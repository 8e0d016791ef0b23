// The sweep for abandoned runs, without a database.
import { describe, expect, test, vi } from 'vitest';
import { Problem } from '../../../src/kernel/problem.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { createRunRecovery, type RecoveryOptions } from '../../../src/agent/sessions/runs/recovery.ts';
import { silentLog } from '../../support/databases.ts';

function createWorld(firstError: Error) {
  let transactions = 0;
  const startedRuns: unknown[] = [];
  const startWaiting = vi.fn<() => Promise<void>>(async () => {});
  const options = {
    eventLog: {
      async transact() {
        transactions += 1;
        if (transactions === 1) throw firstError;
        return { next: { runId: `next ${transactions}` } };
      },
    },
    runStore: {
      abandonedRuns: async () => [{ runId: 'broken' }, { runId: 'whole' }],
      expiredInputs: async () => new Map(),
      nextExpiryMs: async () => null,
    },
    rules: { agentId: 'agent', holder: { instanceId: 'ins', leaseMs: 1_000 }, mayStartNext: () => true },
    limits: { leaseMs: 1_000, keptDays: 1 },
    hasReplicas: false,
    localRuns: { has: () => false, isEmpty: () => true, start: (run: unknown) => startedRuns.push(run) },
    dispatcher: { startWaiting },
    closing: new AbortController().signal,
    clock: systemClock,
    log: silentLog,
  } as unknown as RecoveryOptions;
  return { recovery: createRunRecovery(options), startedRuns, startWaiting };
}

describe('a sweep', () => {
  test('settles the other runs when one cannot be settled', async () => {
    const { recovery, startedRuns, startWaiting } = createWorld(new TypeError('an event is broken'));
    await recovery.sweep();
    expect(startedRuns).toEqual([{ runId: 'next 2' }]);
    expect(startWaiting).toHaveBeenCalledOnce();
  });

  test('ends when the database is unavailable', async () => {
    const outage = new Problem('unavailable', 'database_unavailable', 'The database does not answer.');
    const { recovery, startedRuns } = createWorld(outage);
    await expect(recovery.sweep()).rejects.toBe(outage);
    expect(startedRuns).toEqual([]);
  });
});
