// Reservations that wait for a write of their allotment.
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { adoptRow } from '../../../../src/gateway/credits/allotments/allotment.ts';
import { beginLease } from '../../../../src/gateway/credits/allotments/lease.ts';
import { AllotmentPool } from '../../../../src/gateway/credits/allotments/pool.ts';
import { Reserving } from '../../../../src/gateway/credits/allotments/reserving.ts';
import type { AllotmentRow, AllotmentStore } from '../../../../src/gateway/credits/allotments/store.ts';
import { AllotmentWrites } from '../../../../src/gateway/credits/allotments/writes.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { id } from '../../../../src/kernel/ids.ts';
import { silentLog } from '../../../support/databases.ts';

const payer = { userId: 'usr_1', bureauId: 'local', tokenId: 'tok_1' };

test('a call waits for a give-back that starts while leases are renewed', async () => {
  const pool = new AllotmentPool(id);
  const allotment = pool.open(payer, 0);
  const rowOf = (version: number, amount: bigint): AllotmentRow => ({
    allotmentId: allotment.allotmentId,
    version,
    amount,
    charged: 0n,
    recall: 0n,
    isRecalled: false,
    isClosed: false,
  });
  adoptRow(allotment, rowOf(1, 10n));
  const events: string[] = [];
  const store: Pick<AllotmentStore, 'allot' | 'giveBack'> = {
    async giveBack() {
      events.push('give-back begins');
      await sleep(20);
      events.push('give-back ends');
      return [rowOf(2, 0n)];
    },
    async allot() {
      events.push('enlargement');
      return { outcome: 'granted', available: 0n, idleElsewhere: 0n, row: rowOf(3, 5n) };
    },
  };
  const writes = new AllotmentWrites({
    store,
    pool,
    clock: systemClock,
    gatewayId: 'gwy_a',
    generation: 'generation',
    leaseMs: 60_000,
    onGone: async () => {},
  });
  const reserving = new Reserving({
    store: { recall: async () => {} },
    pool,
    writes,
    clock: systemClock,
    makeId: id,
    log: silentLog,
    gatewayId: 'gwy_a',
    times: { recallMs: 1_000, recallPollMs: 10 },
    counters: { recalls: 0, busy: 0 },
    async renewLeases() {
      allotment.lease = beginLease(systemClock, 60_000);
      void writes.giveBack([allotment]);
    },
  });
  reserving.stopEnlarging();
  expect(await reserving.take(payer, 5n)).toBe(allotment);
  expect(events).toEqual(['give-back begins', 'give-back ends', 'enlargement']);
});
