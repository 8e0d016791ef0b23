// Reports of gateways about their allotments while charges are being applied: late, out of order,
// or on request of a reader.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { endAllotments } from '../../../src/gateway/credits/allotments/leases.ts';
import { askAllReports, type Credits } from '../../../src/gateway/credits/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { startAllotments, type AllotmentsWorld } from './allotments-world.ts';
import { callOf, facts, payCall, startLedger, type LedgerWorld } from './world.ts';

describe('the row of an allotment', () => {
  let world: AllotmentsWorld;
  beforeAll(async () => {
    world = await startAllotments();
  });
  afterAll(() => world?.close());

  test('keeps nothing for a charge that was applied before a give-back', async () => {
    const userId = await world.user(500n);
    const { allotmentId } = await world.allot(userId, 500n);
    await world.charge([{ call: callOf(userId), allotmentId, credits: 100n, covered: 100n }]);
    // The holder had not seen the charge: it kept 100 for it and 30 for a call.
    const [row] = await world.store.giveBack([
      { allotmentId, version: 1, amount: 130n, charged: 0n, end: false },
    ]);
    expect(row).toMatchObject({ amount: 30n, charged: 100n });
    expect(await world.account(userId)).toMatchObject({ posted: 400n, held: 30n });
  });

  test('subtracts applied charges from an older report', async () => {
    const userId = await world.user(500n);
    const { allotmentId } = await world.allot(userId, 500n);
    await world.charge([{ call: callOf(userId), allotmentId, credits: 30n, covered: 30n }]);
    const report = { allotmentId, reserved: 20n, unapplied: 40n, charged: 0n, number: 1n };
    await world.store.renew('gwy_a', [report], 20_000);
    expect(await world.store.listAllotments(userId)).toMatchObject([{ reserved: 20n, unapplied: 10n }]);
  });

  test('ignores a report that arrives after a later report', async () => {
    const userId = await world.user(500n);
    const { allotmentId } = await world.allot(userId, 500n);
    await world.store.report('gwy_a', [{ allotmentId, reserved: 0n, unapplied: 30n, number: 6n }], null);
    await world.store.report('gwy_a', [{ allotmentId, reserved: 30n, unapplied: 0n, number: 5n }], null);
    expect(await world.store.listAllotments(userId)).toMatchObject([{ reserved: 0n, unapplied: 30n }]);
  });

  test('stays recalled after an earlier give-back', async () => {
    const userId = await world.user(500n);
    const { allotmentId } = await world.allot(userId, 500n);
    await world.store.openJournal('gwy_a', world.generation);
    const request = { userId, tokenId: 'tok_test', gatewayId: 'gwy_b' };
    await world.store.recall({ ...request, ticket: `tkt_${userId}`, need: 500n });
    await world.store.giveBack([{ allotmentId, version: 1, amount: 400n, recall: 0n, end: false }]);
    expect((await world.store.flags('gwy_a')).rows).toMatchObject([{ allotmentId, recall: 1n }]);
    const credits = await world.store.affordable({ ...request, ticket: `tkt_${userId}` });
    expect(credits.available + credits.idleElsewhere).toBe(500n);
    await world.store.giveBack([{ allotmentId, version: 2, amount: 400n, recall: 1n, end: false }]);
    expect((await world.store.flags('gwy_a')).rows).toEqual([]);
  });

  test('is ended in a statement with at most 500 rows', async () => {
    const sizes: number[] = [];
    const store = {
      giveBack: (requests: Parameters<typeof world.store.giveBack>[0]) => {
        sizes.push(requests.length);
        return world.store.giveBack(requests);
      },
    };
    const userId = await world.user(501n);
    const rows = [];
    for (let index = 0; index < 501; index += 1) {
      const { row } = await world.allot(userId, 1n, { tokenId: `tok_${index}` });
      if (row !== null) rows.push(row);
    }
    await endAllotments(store, rows);
    expect(sizes).toEqual([500, 1]);
    expect(await world.account(userId)).toMatchObject({ held: 0n });
  });
});

describe('a balance over two gateways', () => {
  let world: LedgerWorld;
  beforeAll(async () => {
    world = await startLedger();
  });
  afterAll(() => world?.close());

  async function startGateways(): Promise<[Credits, Credits]> {
    const pair: [Credits, Credits] = [world.replica(), world.replica()];
    await Promise.all(pair.map((credits) => credits.start()));
    return pair;
  }

  async function readBalance({ handlers }: Credits, userId: string): Promise<object> {
    return (await handlers['credits.getBalance']?.({ identity: { userId } } as never)) as object;
  }

  test('has every charge that was settled before', async () => {
    const [firstGateway, secondGateway] = await startGateways();
    const userId = await world.user(1_000n);
    for (let posted = 930; posted >= 300; posted -= 70) {
      const reservation = await firstGateway.ledger.reserve(callOf(userId), 100n);
      await reservation.settle(70n, facts());
      expect(await readBalance(secondGateway, userId)).toMatchObject({ body: { available: posted, posted } });
    }
  });

  test('is read without new reports about other users', async () => {
    const [firstGateway] = await startGateways();
    const users = await Promise.all(Array.from({ length: 20 }, () => world.user(1_000n)));
    const [userId = ''] = users;
    for (const user of users) (await firstGateway.ledger.reserve(callOf(user), 10n)).release();
    const countReports = async (): Promise<bigint> => {
      const [row] = await world.sql<{ sum: bigint }[]>`
        select coalesce(sum(report), 0)::bigint as sum from gateway.credits_allotments
        where account_id = any(${users.slice(1)}::text[])`;
      return row?.sum ?? 0n;
    };
    const countBefore = await countReports();
    for (let read = 0; read < 5; read += 1) await readBalance(firstGateway, userId);
    expect(await countReports()).toBe(countBefore);
  });

  test('can be spent completely after calls that cost less than they reserved', async () => {
    const pair = await startGateways();
    const userId = await world.user(500n);
    const results = await Promise.all(
      Array.from({ length: 200 }, (_, index) =>
        payCall(pair[index % 2] as Credits, userId, { amount: 20n, price: 1n }),
      ),
    );
    const chargedCount = results.filter((result) => result === 'charged').length;
    expect(chargedCount).toBeGreaterThanOrEqual(25);
    const remainingCredits = 500n - BigInt(chargedCount);
    const lastCall = { amount: remainingCredits, price: remainingCredits };
    expect(await payCall(pair[0], userId, lastCall)).toBe('charged');
    expect(await readBalance(pair[1], userId)).toMatchObject({ body: { available: 0, posted: 0 } });
  });
});

test('a backup has the charges of all gateways', async () => {
  const world = await startLedger();
  try {
    const credits = world.replica({ allotmentTimes: { applyEveryMs: 60_000 } });
    await credits.start();
    const userId = await world.user(100n);
    const reservation = await credits.ledger.reserve(callOf(userId), 10n);
    await reservation.settle(7n, facts());
    expect(await world.account(userId)).toMatchObject({ posted: 100n });
    await askAllReports(world.place.database, systemClock);
    expect(await world.account(userId)).toMatchObject({ posted: 93n });
  } finally {
    await world.close();
  }
});
