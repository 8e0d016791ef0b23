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
});
