// The dispatcher of inputs that wait for a free place, without a database.
import { describe, expect, test } from 'vitest';
import type { Log } from '../../../src/kernel/log.ts';
import { createDispatcher } from '../../../src/agent/sessions/runs/dispatcher.ts';
import type { SettlementRules } from '../../../src/agent/sessions/runs/settlement.ts';

describe('startWaiting', () => {
  test('ends while the process drains', async () => {
    let attempts = 0;
    const dispatcher = createDispatcher({
      eventLog: {
        // A start that the settlement rules refuse.
        async transact() {
          attempts += 1;
          if (attempts > 10) throw new Error('The waiting inputs are tried again and again.');
          return null as never;
        },
      },
      runStore: { idleQueues: async () => ['a', 'b'] },
      rules: { agentId: 'agent', mayStartNext: () => false } as SettlementRules,
      localRuns: { freePlaces: () => 1 },
      start: () => {},
      retryLater: () => {},
      log: {} as Log,
    });
    await dispatcher.startWaiting();
    expect(dispatcher.hasWaiting()).toBe(true);
  });

  test('starts the other sessions when one cannot be started', async () => {
    const waitingKeys = ['broken', 'a', 'b'];
    const attempts: string[] = [];
    const startedRuns: unknown[] = [];
    const dispatcher = createDispatcher({
      eventLog: {
        async transact() {
          const next = waitingKeys.find((key) => !attempts.includes(key)) ?? '';
          attempts.push(next);
          if (next === 'broken') throw new Error('The session is broken.');
          waitingKeys.splice(waitingKeys.indexOf(next), 1);
          return { runId: next } as never;
        },
      },
      runStore: {
        idleQueues: async (_agentId, limit, except) =>
          waitingKeys.filter((key) => !except.includes(key)).slice(0, limit),
      },
      rules: { agentId: 'agent', mayStartNext: () => true } as SettlementRules,
      localRuns: { freePlaces: () => 1 },
      start: ({ runId }) => startedRuns.push(runId),
      retryLater: () => {},
      log: { warn() {} } as unknown as Log,
    });
    await expect(dispatcher.startWaiting()).rejects.toThrow('The session is broken.');
    expect([attempts, startedRuns]).toEqual([
      ['broken', 'a', 'b'],
      ['a', 'b'],
    ]);
  });
});
