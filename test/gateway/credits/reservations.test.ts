// Reservations on allotments with the real database and the real journal: exact over parallel
// calls, keys and gateways, and without an SQL statement while an allotment has enough credits.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sqlAllotmentStore, type Credits } from '../../../src/gateway/credits/index.ts';
import type { AllotmentStore } from '../../../src/gateway/credits/allotments/store.ts';
import { id } from '../../../src/kernel/ids.ts';
import { callOf, facts, payCall, startLedger, type LedgerWorld } from './world.ts';

let world: LedgerWorld;
beforeAll(async () => {
  world = await startLedger();
});
afterAll(() => world?.close());

/** Counts the statements that go through the store. */
function countingStore(): { store: AllotmentStore; calls: string[] } {
  const calls: string[] = [];
  const store = new Proxy(sqlAllotmentStore(world.place.database), {
    get(target, name, receiver) {
      const method: unknown = Reflect.get(target, name, receiver);
      if (typeof method !== 'function') return method;
      return (...values: unknown[]): unknown => {
        calls.push(String(name));
        return Reflect.apply(method, target, values);
      };
    },
  });
  return { store, calls };
}

function count(results: readonly string[], result: string): number {
  return results.filter((entry) => entry === result).length;
}

async function readTotals(userId: string): Promise<{ posted: bigint; usage: bigint }> {
  const [row] = await world.sql<{ posted: bigint; usage: bigint }[]>`
    select posted, (
        select coalesce(sum(credits), 0)::bigint from gateway.usage_records where user_id = ${userId}
      ) as usage
    from gateway.credits_accounts where account_id = ${userId}`;
  if (row === undefined) throw new Error('This user has no account.');
  return { ...row };
}

async function readAllotted(userId: string): Promise<bigint> {
  const [row] = await world.sql<{ amount: bigint }[]>`
    select coalesce(sum(amount), 0)::bigint as amount from gateway.credits_allotments
    where account_id = ${userId} and ended_at is null`;
  return row?.amount ?? 0n;
}

describe('a reservation', () => {
  test('is granted exactly as often as the balance allows', async () => {
    const credits = world.replica();
    const userId = await world.user(500n);
    const results = await Promise.all(
      Array.from({ length: 200 }, () => payCall(credits, userId, { amount: 20n, price: 20n })),
    );
    expect([count(results, 'charged'), count(results, 'insufficient_credits')]).toEqual([25, 175]);
    await credits.report(userId);
    expect(await readTotals(userId)).toEqual({ posted: 0n, usage: 500n });
  });

  test('leaves uncharged credits to later calls', async () => {
    const credits = world.replica();
    const userId = await world.user(500n);
    const firstResults = await Promise.all(
      Array.from({ length: 200 }, () => payCall(credits, userId, { amount: 20n, price: 15n })),
    );
    const successes = count(firstResults, 'charged');
    expect(successes).toBeGreaterThanOrEqual(25);
    let remainingCredits = 500n - BigInt(successes) * 15n;
    for (; remainingCredits >= 20n; remainingCredits -= 15n)
      expect(await payCall(credits, userId, { amount: 20n, price: 15n })).toBe('charged');
    expect(await payCall(credits, userId, { amount: 20n, price: 15n })).toBe('insufficient_credits');
    expect(await payCall(credits, userId, { amount: 5n, price: 1n, tokenId: 'tok_other' })).toBe('charged');
  });

  test('is exact over sixty keys of one user', async () => {
    const credits = world.replica();
    const userId = await world.user(600n);
    const results = await Promise.all(
      Array.from({ length: 60 }, (_, key) =>
        payCall(credits, userId, { amount: 20n, price: 20n, tokenId: `tok_key${key}` }),
      ),
    );
    expect([count(results, 'charged'), count(results, 'insufficient_credits')]).toEqual([30, 30]);
    await credits.report(userId);
    expect(await readTotals(userId)).toEqual({ posted: 0n, usage: 600n });
  });

  test('takes idle credits of the other keys of its user', async () => {
    const credits = world.replica();
    const userId = await world.user(100n);
    expect(await payCall(credits, userId, { amount: 90n, price: 1n, tokenId: 'tok_a' })).toBe('charged');
    expect(await payCall(credits, userId, { amount: 95n, price: 1n, tokenId: 'tok_b' })).toBe('charged');
  });

  test('never takes credits of another user', async () => {
    const credits = world.replica();
    const [richUser, poorUser] = [await world.user(1_000n), await world.user(10n)];
    expect(await payCall(credits, richUser, { amount: 100n, price: 1n })).toBe('charged');
    expect(await payCall(credits, poorUser, { amount: 20n, price: 20n })).toBe('insufficient_credits');
    expect(await payCall(credits, poorUser, { amount: 10n, price: 10n })).toBe('charged');
  });

  test('stays within the cap of its key', async () => {
    const credits = world.replica();
    const userId = await world.user(1_000n);
    const tokenId = id('tok');
    await world.place.database.tx((tx) => credits.openKey(tx, { tokenId, userId, cap: 50n }));
    const results = await Promise.all(
      Array.from({ length: 20 }, () => payCall(credits, userId, { amount: 10n, price: 10n, tokenId })),
    );
    expect([count(results, 'charged'), count(results, 'insufficient_credits')]).toEqual([5, 15]);
    expect(await payCall(credits, userId, { amount: 10n, price: 10n })).toBe('charged');
  });

  test('needs no statement while the allotment has enough credits', async () => {
    const { store, calls } = countingStore();
    const credits = world.replica({ allotmentStore: store });
    const userId = await world.user(1_000_000n);
    await payCall(credits, userId, { amount: 100n, price: 1n });
    await credits.report(userId);
    await expect.poll(() => credits.ledger.available(userId, 'tok_test')).toBe(999_999n);
    calls.length = 0;
    const reservation = credits.ledger.reserve(callOf(userId), 50n);
    expect(reservation).not.toBeInstanceOf(Promise);
    expect(calls.filter((name) => name !== 'applyCharges')).toEqual([]);
    (await reservation).release();
  });

  test('of zero needs no balance and no allotment', async () => {
    const { store, calls } = countingStore();
    const credits = world.replica({ allotmentStore: store });
    const userId = await world.user(0n);
    const reservation = await credits.ledger.reserve(callOf(userId), 0n);
    await reservation.settle(0n, facts());
    expect(calls).not.toContain('allot');
    await credits.report(userId);
    expect((await readTotals(userId)).usage).toBe(0n);
  });

  test('is raised only within the credits', async () => {
    const credits = world.replica();
    const userId = await world.user(100n);
    const reservation = await credits.ledger.reserve(callOf(userId), 10n);
    await reservation.raise(60n);
    expect(reservation.amount).toBe(60n);
    await expect(Promise.resolve(reservation.raise(101n))).rejects.toMatchObject({
      code: 'insufficient_credits',
    });
    expect(reservation.amount).toBe(60n);
    reservation.release();
    expect(await payCall(credits, userId, { amount: 100n, price: 100n })).toBe('charged');
  });

  test('charges once when it is settled twice', async () => {
    const credits = world.replica();
    const userId = await world.user(100n);
    const reservation = await credits.ledger.reserve(callOf(userId), 40n);
    const [firstSettlement, secondSettlement] = await Promise.all([
      reservation.settle(30n, facts()),
      reservation.settle(30n, facts()),
    ]);
    expect([firstSettlement, secondSettlement]).toEqual([{ charged: 30n }, { charged: 30n }]);
    await credits.report(userId);
    expect(await readTotals(userId)).toEqual({ posted: 70n, usage: 30n });
  });

  test('charges a price above its amount up to all credits of the account', async () => {
    const credits = world.replica();
    const userId = await world.user(100n);
    const reservation = await credits.ledger.reserve(callOf(userId), 10n);
    // Wait for the background enlargement: a charge cannot take credits that the database has added
    // to the allotment and that memory does not know yet.
    await expect.poll(() => readAllotted(userId)).toBeGreaterThan(10n);
    await credits.report(userId);
    expect(await reservation.settle(130n, facts())).toEqual({ charged: 100n });
    expect(await readTotals(userId)).toEqual({ posted: 0n, usage: 100n });
  });
});

describe('a charge above its reservation', () => {
  test('leaves the reservations of other calls alone', async () => {
    const credits = world.replica();
    const userId = await world.user(120n);
    const largeReservation = await credits.ledger.reserve(callOf(userId), 20n);
    const otherReservation = await credits.ledger.reserve(callOf(userId), 100n);
    expect(await largeReservation.settle(100n, facts())).toEqual({ charged: 20n });
    expect(await otherReservation.settle(30n, facts())).toEqual({ charged: 30n });
    await credits.report(userId);
    expect(await readTotals(userId)).toEqual({ posted: 70n, usage: 50n });
  });
});

describe('a balance', () => {
  test('shows reservations as held and idle allotments as available', async () => {
    const credits = world.replica();
    const userId = await world.user(10_000n);
    const reservation = await credits.ledger.reserve(callOf(userId), 100n);
    await credits.report(userId);
    expect(await credits.handlers['credits.getBalance']?.({ identity: { userId } } as never)).toMatchObject({
      body: { available: 9_900, held: 100, posted: 10_000 },
    });
    await reservation.settle(40n, facts());
    expect(await credits.handlers['credits.getBalance']?.({ identity: { userId } } as never)).toMatchObject({
      body: { available: 9_960, held: 0, posted: 9_960 },
    });
  });
});

describe('an exact hold', () => {
  test('takes idle credits of allotments', async () => {
    const credits = world.replica();
    const userId = await world.user(100n);
    expect(await payCall(credits, userId, { amount: 90n, price: 1n })).toBe('charged');
    const hold = await credits.ledger.hold(callOf(userId), 99n);
    await expect(credits.ledger.hold(callOf(userId), 1n)).rejects.toMatchObject({
      code: 'insufficient_credits',
    });
    await hold.settle(0n, facts());
  });
});

describe('two gateways', () => {
  async function startGateways(): Promise<[Credits, Credits]> {
    const pair: [Credits, Credits] = [world.replica(), world.replica()];
    await Promise.all(pair.map((credits) => credits.start()));
    return pair;
  }

  test('grant together exactly what the balance allows', async () => {
    const pair = await startGateways();
    const userId = await world.user(500n);
    const results = await Promise.all(
      Array.from({ length: 200 }, (_, index) =>
        payCall(pair[index % 2] as Credits, userId, { amount: 20n, price: 20n }),
      ),
    );
    expect(count(results, 'charged')).toBe(25);
    expect(count(results, 'insufficient_credits') + count(results, 'credits_busy')).toBe(175);
    await Promise.all(pair.map((credits) => credits.report(userId)));
    expect(await readTotals(userId)).toEqual({ posted: 0n, usage: 500n });
  });

  test('give each other their idle credits', async () => {
    const [firstGateway, secondGateway] = await startGateways();
    const userId = await world.user(1_000n);
    expect(await payCall(firstGateway, userId, { amount: 800n, price: 10n })).toBe('charged');
    expect(await payCall(secondGateway, userId, { amount: 900n, price: 10n })).toBe('charged');
    expect(await payCall(firstGateway, userId, { amount: 980n, price: 980n })).toBe('charged');
    expect(await payCall(secondGateway, userId, { amount: 1n, price: 1n })).toBe('insufficient_credits');
  });

  test('refuse with 402 a call for credits that the other has reserved', async () => {
    const [firstGateway, secondGateway] = await startGateways();
    const userId = await world.user(100n);
    const reservation = await firstGateway.ledger.reserve(callOf(userId), 80n);
    expect(await payCall(secondGateway, userId, { amount: 30n, price: 30n })).toBe('insufficient_credits');
    expect(await payCall(secondGateway, userId, { amount: 20n, price: 20n })).toBe('charged');
    await reservation.settle(80n, facts());
  });

  test('give idle credits back before a deduction', async () => {
    const [firstGateway, secondGateway] = await startGateways();
    const userId = await world.user(1_000n);
    expect(await payCall(firstGateway, userId, { amount: 600n, price: 0n })).toBe('charged');
    await secondGateway.balances.recallIdle(userId);
    expect(await world.account(userId)).toMatchObject({ posted: 1_000n, held: 0n });
  });
});

describe('a stop of the gateway', () => {
  test('charges everything and holds nothing', async () => {
    const credits = world.replica();
    const userId = await world.user(1_000n);
    await payCall(credits, userId, { amount: 100n, price: 7n });
    await credits.close();
    expect(await world.account(userId)).toMatchObject({ posted: 993n, held: 0n });
  });
});
