// A thousand calls of one user that are refused at once: each gets a 402, and they share their
// reads of the balance. With a read for each call, they would wait for a database connection until
// the statement timeout.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { creditsStore, sqlAllotmentStore, type Credits } from '../../../src/gateway/credits/index.ts';
import { callOf, startLedger, type LedgerWorld } from './world.ts';

let world: LedgerWorld;
let credits: Credits;
let reads = 0;
beforeAll(async () => {
  world = await startLedger();
  const { database } = world.place;
  const [store, allotments] = [creditsStore(database), sqlAllotmentStore(database)];
  credits = world.replica({
    store: {
      ...store,
      available: (userId, tokenId) => ((reads += 1), store.available(userId, tokenId)),
    },
    allotmentStore: {
      ...allotments,
      affordable: (request) => ((reads += 1), allotments.affordable(request)),
    },
  });
});
afterAll(() => world?.close());

test('a thousand concurrent reads of a balance become two', async () => {
  const userId = await world.user(120n);
  await credits.ledger.available(userId, 'tok_test');
  reads = 0;
  const balances = await Promise.all(
    Array.from({ length: 1_000 }, () => credits.ledger.available(userId, 'tok_test')),
  );
  expect(new Set(balances)).toEqual(new Set([120n]));
  // The first caller starts a read. All others share a second read, which starts after their calls.
  expect(reads).toBe(2);
});

test('a thousand refused holds are 402 and share their reads', async () => {
  const userId = await world.user(120n);
  reads = 0;
  const outcomes = await Promise.all(
    Array.from({ length: 1_000 }, () =>
      credits.ledger.hold(callOf(userId), 121n).then(
        () => 'granted',
        (error: unknown) => (error as { code: string }).code,
      ),
    ),
  );
  expect(new Set(outcomes)).toEqual(new Set(['insufficient_credits']));
  expect(reads).toBeLessThan(100);
});
