// Journals of a ledger from before a restore: the next gateway puts them aside, and an operator
// applies them once.
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  journalDirectory,
  listAside,
  restoreFromAside,
  sqlAllotmentStore,
} from '../../../src/gateway/credits/index.ts';
import { silentLog } from '../../support/databases.ts';
import { callOf, facts, startLedger, type LedgerWorld } from './world.ts';

let world: LedgerWorld;
beforeAll(async () => {
  world = await startLedger();
});
afterAll(() => world?.close());

const formerGeneration = '00000000-0000-4000-8000-000000000000';

/** Leaves the journal of a process that has ended. */
async function leaveJournal(
  generation: string,
  userId: string,
  charges: Record<string, bigint>,
): Promise<void> {
  const journal = await journalDirectory({ path: world.chargesPath, log: silentLog }).open(generation);
  for (const [usageId, credits] of Object.entries(charges))
    await journal.sync(
      journal.append({
        kind: 'final',
        usageId,
        call: callOf(userId),
        allotmentId: null,
        credits,
        facts: facts(),
      }),
    );
  await journal.close();
}

async function readPostedCredits(userId: string): Promise<bigint> {
  return (await world.account(userId)).posted;
}

test('a journal of another generation is applied once', async () => {
  const userId = await world.user(500n);
  const generation = await sqlAllotmentStore(world.place.database).generation();
  await leaveJournal(generation, userId, { use_a: 20n, use_b: 30n });
  await leaveJournal(formerGeneration, userId, { use_a: 20n, use_c: 40n });
  await world.replica().start();
  expect(await readPostedCredits(userId)).toBe(450n);
  const [asideJournal] = await listAside(world.chargesPath);
  expect(asideJournal).toMatchObject({
    reason: 'other_generation',
    generation: formerGeneration,
    charges: 2,
  });
  await restoreFromAside(world.chargesPath, asideJournal?.name ?? '', { generation, usageDays: 400 });
  await world.replica().start();
  expect(await readPostedCredits(userId)).toBe(410n);
  expect(await listAside(world.chargesPath)).toEqual([]);
});
