// Batches of the ledger's operations when one operation of a batch fails.
import { expect, test } from 'vitest';
import { databaseUnavailable } from '../../../src/gateway/credits/allotments/problems.ts';
import type { CreditsStore, Operation, Verdict } from '../../../src/gateway/credits/core/store.ts';
import { createWriteBatcher } from '../../../src/gateway/credits/write-batcher.ts';

const verdict: Verdict = { verdict: 'raised', amount: 1n, overrun: 0n, available: null };

/** Runs three operations of one account in one batch; `apply` answers each batch. */
async function runThree(apply: (operations: readonly Operation[]) => Promise<Verdict[]>) {
  const sizes: number[] = [];
  const batcher = createWriteBatcher({
    store: {
      apply(operations) {
        sizes.push(operations.length);
        return apply(operations);
      },
      tx: () => Promise.reject(new Error('No operation has work of its own.')),
    } satisfies Pick<CreditsStore, 'apply' | 'tx'>,
    clock: { monotonicMs: () => 0 },
    leaseMs: 1_000,
    concurrentBatches: 1,
    onDatabaseAnswer: () => undefined,
  });
  const raise = (holdId: string) => batcher.run({ kind: 'raise', holdId, accountId: 'usr_1', amount: 1n });
  const results = await Promise.allSettled(['hld_bad', 'hld_2', 'hld_3'].map(raise));
  return { sizes, results };
}

const hasBadOperation = (operations: readonly Operation[]) =>
  operations.some(({ holdId }) => holdId === 'hld_bad');

test('the other operations of a refused batch succeed', async () => {
  const { sizes, results } = await runThree(async (operations) => {
    if (hasBadOperation(operations)) throw new Error('refused');
    return operations.map(() => verdict);
  });
  expect(sizes).toEqual([3, 1, 1, 1]);
  expect(results.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'fulfilled']);
});

test('an outage after a refused batch rejects the other operations without further statements', async () => {
  const { sizes, results } = await runThree(async (operations) => {
    if (hasBadOperation(operations)) throw new Error('refused');
    throw databaseUnavailable('away');
  });
  expect(sizes).toEqual([3, 1, 1]);
  expect(results.slice(1)).toMatchObject(Array(2).fill({ reason: { code: 'database_unavailable' } }));
});
