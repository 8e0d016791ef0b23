// A hold that needs the idle credits of allotments of this process.
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { adoptRow, reserveCredits } from '../../../../src/gateway/credits/allotments/allotment.ts';
import type { AllotmentLedger } from '../../../../src/gateway/credits/allotments/allotment-ledger.ts';
import { GiveBacks } from '../../../../src/gateway/credits/allotments/give-backs.ts';
import { holdWithRecall } from '../../../../src/gateway/credits/allotments/hold-with-recall.ts';
import { AllotmentPool } from '../../../../src/gateway/credits/allotments/pool.ts';
import { insufficientCredits } from '../../../../src/gateway/credits/allotments/problems.ts';
import { defaultAllotmentTimes } from '../../../../src/gateway/credits/allotments/times.ts';
import { AllotmentWrites } from '../../../../src/gateway/credits/allotments/writes.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { id } from '../../../../src/kernel/ids.ts';

const payer = { userId: 'usr_1', bureauId: 'local', tokenId: 'tok_1' };
const otherPayer = { ...payer, tokenId: 'tok_2' };

/** The user's only allotment in this process: 100 credits, of which 60 are reserved. */
function ledgerWithIdleCredits() {
  const pool = new AllotmentPool(id);
  const allotment = pool.open(otherPayer, 0);
  const row = {
    allotmentId: allotment.allotmentId,
    version: 1,
    charged: 0n,
    recall: 0n,
    isRecalled: false,
    isClosed: false,
  };
  adoptRow(allotment, { ...row, amount: 100n });
  reserveCredits(allotment, 60n, 0);
  let returnedCredits = 0n;
  const writes = new AllotmentWrites({
    store: {
      allot: () => Promise.reject(new Error('not expected')),
      async giveBack(requests) {
        returnedCredits += 100n - (requests[0]?.amount ?? 100n);
        return [{ ...row, version: 2, amount: 60n }];
      },
    },
    pool,
    clock: systemClock,
    gatewayId: 'gwy_a',
    generation: 'generation',
    leaseMs: 20_000,
    onGone: async () => {},
  });
  const giveBacks = new GiveBacks({
    store: { flags: () => Promise.reject(new Error('not expected')) },
    pool,
    writes,
    clock: systemClock,
    gatewayId: 'gwy_a',
    times: defaultAllotmentTimes,
  });
  const ledger = { idle: (userId: string) => pool.idleOfUser(userId), giveBacks, counters: {} };
  return {
    allotment,
    ledger: ledger as unknown as AllotmentLedger,
    returnedCredits: () => returnedCredits,
  };
}

test('a hold is tried again only after the pending write of an allotment', async () => {
  const { allotment, ledger, returnedCredits } = ledgerWithIdleCredits();
  const pendingWrite = sleep(50).then(() => {
    allotment.write = null;
  });
  allotment.write = pendingWrite;
  let tries = 0;
  const hold = await holdWithRecall(
    { ...payer, amount: 40n },
    async () => {
      tries += 1;
      // As long as a statement on a fast database.
      await sleep(1);
      if (returnedCredits() < 40n) throw insufficientCredits(40n, returnedCredits());
      return 'held';
    },
    {
      allotments: { gatewayId: 'gwy_a', ledger },
      store: {
        affordable: () => Promise.reject(new Error('not expected')),
        recall: () => Promise.reject(new Error('not expected')),
      },
      clock: systemClock,
      makeId: id,
      times: defaultAllotmentTimes,
    },
  );
  // The first try fails; the second one finds the 40 idle credits in the account.
  expect([hold, tries]).toEqual(['held', 2]);
});
