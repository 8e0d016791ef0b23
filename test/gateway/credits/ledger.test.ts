// The ledger: held credits are spent once, settlements charge once, under concurrent calls,
// replicas and crashes.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Credits, Hold } from '../../../src/gateway/credits/index.ts';
import type { Tx } from '../../../src/kernel/data/database.ts';
import type { Problem } from '../../../src/kernel/problem.ts';
import { callOf, facts, startLedger, type LedgerWorld } from './world.ts';

let world: LedgerWorld;
let credits: Credits;
beforeEach(async () => {
  world = await startLedger();
  credits = world.replica();
});
afterEach(async () => {
  // Every test must leave a consistent ledger.
  const { faults: mismatches } = await credits.verify();
  await world.close();
  expect(mismatches).toEqual([]);
});

const hold = (userId: string, amount: bigint, members = {}) =>
  credits.ledger.hold(callOf(userId, members), amount);
const readUsage = () =>
  world.sql<{ credits: bigint; outcome: string; estimated: boolean }[]>`
    select credits, outcome, estimated from gateway.usage_records order by usage_id`;
const openKey = (userId: string, cap: bigint | null, tokenId = 'tok_key') =>
  world.place.database.tx((tx) => credits.openKey(tx, { tokenId, userId, cap }));
const takeBack = (userId: string, amount: bigint, ref = 'pay_1') =>
  world.place.database.tx((tx) =>
    credits.balances.takeBack(tx, {
      userId,
      kind: 'refund',
      ref,
      credits: amount,
      reason: 'refunded',
      partial: true,
    }),
  );
const post = (userId: string, amount: bigint, ref = 'pay_2') =>
  world.place.database.tx((tx) =>
    credits.balances.post(tx, { userId, kind: 'payment', ref, credits: amount, reason: 'paid' }),
  );

/** The granted holds; the others must have failed with insufficient_credits. */
async function grantedOf(attempts: Promise<Hold>[]): Promise<Hold[]> {
  const results = await Promise.allSettled(attempts);
  const refusals = results.flatMap((result) =>
    result.status === 'rejected' ? [result.reason as Problem] : [],
  );
  expect(refusals.filter(({ status }) => status !== 402)).toEqual([]);
  return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
}

describe('a hold', () => {
  test('is granted exactly as often as the balance allows', async () => {
    const userId = await world.user(500n);
    const holds = await grantedOf(Array.from({ length: 200 }, () => hold(userId, 10n)));
    expect(holds).toHaveLength(50);
    expect(await world.account(userId)).toEqual({ posted: 500n, held: 500n, owed: 0n });
    await Promise.all(holds.map((granted) => granted.settle(10n, facts())));
    expect(await world.account(userId)).toEqual({ posted: 0n, held: 0n, owed: 0n });
  });

  test('is granted exactly as often by three replicas', async () => {
    const userId = await world.user(100n);
    const replicas = [credits, world.replica(), world.replica()];
    const holds = await grantedOf(
      Array.from({ length: 300 }, (_, index) =>
        (replicas[index % 3] as Credits).ledger.hold(callOf(userId), 1n),
      ),
    );
    expect(holds).toHaveLength(100);
    await Promise.all(holds.map((granted) => granted.settle(1n, facts())));
    expect(await world.account(userId)).toEqual({ posted: 0n, held: 0n, owed: 0n });
  });

  test('is refused with 402 and the affordable credits', async () => {
    const userId = await world.user(120n);
    await hold(userId, 20n);
    await expect(hold(userId, 101n)).rejects.toMatchObject({
      status: 402,
      code: 'insufficient_credits',
      details: [
        { path: 'needed_credits', message: '101' },
        { path: 'affordable_credits', message: '100' },
      ],
    });
    expect(await credits.ledger.available(userId, 'tok_test')).toBe(100n);
    expect((await hold(userId, 100n)).amount).toBe(100n);
  });

  test('of zero is recorded without a balance', async () => {
    const freeHold = await hold('usr_without_an_account', 0n);
    expect(await freeHold.settle(0n, facts())).toEqual({ charged: 0n });
    expect(await readUsage()).toEqual([{ credits: 0n, outcome: 'completed', estimated: false }]);
  });

  test('above any balance is refused with 402', async () => {
    const userId = await world.user(5n);
    await expect(hold(userId, 10n ** 30n)).rejects.toMatchObject({ status: 402 });
  });

  test('is raised to a higher amount only', async () => {
    const userId = await world.user(100n);
    const openHold = await hold(userId, 10n);
    await openHold.raise(60n);
    expect(openHold.amount).toBe(60n);
    await openHold.raise(30n);
    expect(openHold.amount).toBe(60n);
    await expect(openHold.raise(101n)).rejects.toMatchObject({
      status: 402,
      details: [{ message: '101' }, { path: 'affordable_credits', message: '100' }],
    });
    expect(await world.account(userId)).toMatchObject({ held: 60n });
    expect(await openHold.settle(60n, facts())).toEqual({ charged: 60n });
    expect(await world.account(userId)).toEqual({ posted: 40n, held: 0n, owed: 0n });
  });
});

describe('a settlement', () => {
  test('frees the credits that the call did not cost', async () => {
    const userId = await world.user(100n);
    const openHold = await hold(userId, 80n);
    expect(await openHold.settle(30n, facts())).toEqual({ charged: 30n });
    expect(await world.account(userId)).toEqual({ posted: 70n, held: 0n, owed: 0n });
  });

  test('runs before the holds of its batch', async () => {
    const userId = await world.user(100n);
    const firstHold = await hold(userId, 100n);
    // Both requests go to the database in one batch, in this order.
    const [secondHold, { charged }] = await Promise.all([hold(userId, 90n), firstHold.settle(10n, facts())]);
    expect(charged).toBe(10n);
    expect(await world.account(userId)).toEqual({ posted: 90n, held: 90n, owed: 0n });
    await secondHold.settle(90n, facts());
  });

  test('has no effect the second time', async () => {
    const userId = await world.user(100n);
    const openHold = await hold(userId, 50n);
    const [firstSettlement, secondSettlement] = await Promise.all([
      openHold.settle(30n, facts()),
      openHold.settle(50n, facts()),
    ]);
    expect([firstSettlement, secondSettlement, await openHold.settle(50n, facts())]).toEqual([
      { charged: 30n },
      { charged: 30n },
      { charged: 30n },
    ]);
    expect(await world.account(userId)).toEqual({ posted: 70n, held: 0n, owed: 0n });
  });

  test('above its hold takes the available credits and raises an alarm', async () => {
    const userId = await world.user(100n);
    const [firstHold, secondHold] = [await hold(userId, 50n), await hold(userId, 20n)];
    expect(await firstHold.settle(200n, facts())).toEqual({ charged: 80n });
    expect(await world.account(userId)).toEqual({ posted: 20n, held: 20n, owed: 0n });
    expect(
      await world.sql`
        select entry.account_id as id, amount
        from gateway.credits_entries entry join gateway.credits_txs using (tx_id)
        where kind = 'charge' order by 1`,
    ).toEqual([
      { id: 'house:overrun', amount: -120n },
      { id: 'house:usage', amount: 200n },
      { id: userId, amount: -80n },
    ]);
    expect(credits.counters()).toMatchObject({ overruns: 1, overrunCredits: 120n });
    expect(
      world.logLines.some(
        (line) => line.includes('the operator absorbs the rest') && line.includes('"level":"error"'),
      ),
    ).toBe(true);
    expect(await secondHold.settle(20n, facts())).toEqual({ charged: 20n });
  });

  test.each([
    ['a negative price', -5n, 0n],
    ['a price beyond all bounds', 10n ** 40n, 100n],
  ])('of %s stays within the available credits', async (_, price, chargedCredits) => {
    const userId = await world.user(100n);
    expect(await (await hold(userId, 60n)).settle(price, facts())).toEqual({ charged: chargedCredits });
  });

  test('commits or fails with the work of its transaction', async () => {
    const userId = await world.user(100n);
    const [firstHold, secondHold] = [await hold(userId, 10n), await hold(userId, 10n)];
    const insertBureau = (bureauId: string) => async (tx: Tx) =>
      void (await tx`
        insert into gateway.bureaus_records (bureau_id, name, server_url) values (${bureauId}, '', '')`);
    const failingSettlement = firstHold.settle(5n, facts(), {
      work: async (tx) => {
        await insertBureau('undone')(tx);
        throw new Error('cannot');
      },
    });
    const settlement = secondHold.settle(7n, facts(), { work: insertBureau('done') });
    await expect(failingSettlement).rejects.toThrow('cannot');
    expect(await settlement).toEqual({ charged: 7n });
    expect(await world.sql`select bureau_id as id from gateway.bureaus_records where name = ''`).toEqual([
      { id: 'done' },
    ]);
    expect(await world.account(userId)).toMatchObject({ posted: 93n, held: 10n });
    expect(await firstHold.settle(5n, facts())).toEqual({ charged: 5n });
  });

  test('of a thousand concurrent calls adds up exactly', async () => {
    const users = await Promise.all(Array.from({ length: 7 }, () => world.user(10_000n)));
    const prices = Array.from({ length: 1_000 }, (_, index) => index % 61);
    await Promise.all(
      prices.map(async (price, index) => {
        const openHold = await hold(users[index % 7] as string, 60n);
        await openHold.settle(BigInt(price), facts());
      }),
    );
    const totalPrice = prices.reduce((total, price) => total + price, 0);
    const [balance] = await world.sql`
      select sum(posted)::bigint as posted, sum(held)::bigint as held
      from gateway.credits_accounts where account_id = any(${users})`;
    expect(balance).toEqual({ posted: BigInt(70_000 - totalPrice), held: 0n });
    const [usageTotal] = await world.sql`
      select count(*) as count, sum(credits)::bigint as sum from gateway.usage_records`;
    expect(usageTotal).toEqual({ count: 1_000n, sum: BigInt(totalPrice) });
  });
});

describe('the usage record of a call', () => {
  test('has the call and its facts', async () => {
    const userId = await world.user(100n);
    const openHold = await hold(userId, 80n);
    const tokens = { input: 1, cachedInput: 2, cacheWrite: 3, output: 4, reasoning: 5 };
    await openHold.settle(30n, facts({ tokens }));
    const [record] = await world.sql`select * from gateway.usage_records`;
    expect(record).toMatchObject({
      usage_id: openHold.holdId.replace('hld_', 'use_'),
      user_id: userId,
      bureau_id: 'local',
      action: 'text',
      model: 'acme/fast',
      provider: 'acme',
      input_tokens: 1n,
      cached_input_tokens: 2n,
      cache_write_tokens: 3n,
      output_tokens: 4n,
      reasoning_tokens: 5n,
      credits: 30n,
      outcome: 'completed',
      estimated: false,
      ttft_ms: 12n,
      duration_ms: 34n,
    });
  });

  test('has valid counts for invalid facts', async () => {
    const userId = await world.user(100n);
    const invalidTokens = {
      input: -1,
      cachedInput: Number.NaN,
      cacheWrite: 1e300,
      output: 1.5,
      reasoning: Number.POSITIVE_INFINITY,
    };
    await (
      await hold(userId, 60n)
    ).settle(1n, facts({ tokens: invalidTokens, ttftMs: null, durationMs: -3 }));
    const [record] = await world.sql`select * from gateway.usage_records`;
    expect(record).toMatchObject({
      input_tokens: 0n,
      cached_input_tokens: 0n,
      cache_write_tokens: BigInt(Number.MAX_SAFE_INTEGER),
      output_tokens: 2n,
      reasoning_tokens: 0n,
      ttft_ms: null,
      duration_ms: 0n,
    });
  });

  test('has no user when the call is free', async () => {
    await credits.ledger.record(
      {
        requestId: 'req_a',
        userId: null,
        bureauId: null,
        tokenId: 'adm_a',
        action: 'text',
        model: 'acme/fast',
        provider: null,
      },
      facts(),
    );
    await credits.report();
    const [record] = await world.sql`select * from gateway.usage_records`;
    expect(record).toMatchObject({
      request_id: 'req_a',
      user_id: null,
      bureau_id: null,
      token_id: 'adm_a',
      credits: 0n,
    });
  });
});

describe("an API key's cap", () => {
  test('is exact for 100 concurrent calls', async () => {
    const userId = await world.user(1_000n);
    await openKey(userId, 55n);
    const holds = await grantedOf(
      Array.from({ length: 100 }, () => hold(userId, 10n, { tokenId: 'tok_key' })),
    );
    expect(holds).toHaveLength(5);
    expect(await credits.ledger.available(userId, 'tok_key')).toBe(5n);
    expect(await credits.ledger.available(userId, 'tok_other')).toBe(950n);
    await Promise.all(holds.map((granted) => granted.settle(4n, facts())));
    expect(await credits.keys(['tok_key'])).toEqual([{ tokenId: 'tok_key', cap: 55n, spent: 20n }]);
    await expect(hold(userId, 36n, { tokenId: 'tok_key' })).rejects.toMatchObject({
      details: [{}, { message: '35' }],
    });
    expect((await hold(userId, 35n, { tokenId: 'tok_key' })).amount).toBe(35n);
  });

  test('limits a charge above the hold too', async () => {
    const userId = await world.user(1_000n);
    await openKey(userId, 30n);
    expect(await (await hold(userId, 10n, { tokenId: 'tok_key' })).settle(500n, facts())).toEqual({
      charged: 30n,
    });
    expect(credits.counters()).toMatchObject({ overrunCredits: 470n });
  });

  test('counts spending when the cap is null', async () => {
    const userId = await world.user(100n);
    await openKey(userId, null);
    await (await hold(userId, 90n, { tokenId: 'tok_key' })).settle(80n, facts());
    expect(await credits.keys(['tok_key', 'tok_unknown'])).toEqual([
      { tokenId: 'tok_key', cap: null, spent: 80n },
    ]);
  });
});

describe('post and takeBack', () => {
  test('count once for a kind and a reference', async () => {
    const userId = await world.user(0n);
    const replicas = [credits, world.replica()];
    const results = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        world.place.database.tx((tx) =>
          (replicas[index % 2] as Credits).balances.post(tx, {
            userId,
            kind: 'payment',
            ref: 'pay_1',
            credits: 70n,
            reason: 'paid',
          }),
        ),
      ),
    );
    expect(results.filter(({ isNew }) => isNew)).toHaveLength(1);
    expect(await takeBack(userId, 30n)).toEqual({ taken: 30n, owed: 0n });
    expect(await takeBack(userId, 30n)).toEqual({ taken: 30n, owed: 0n });
    expect(await world.account(userId)).toEqual({ posted: 40n, held: 0n, owed: 0n });
  });

  test('create a debt that blocks new holds', async () => {
    const userId = await world.user(100n);
    await (await hold(userId, 70n)).settle(70n, facts());
    expect(await takeBack(userId, 100n)).toEqual({ taken: 30n, owed: 70n });
    expect(await takeBack(userId, 100n)).toEqual({ taken: 30n, owed: 70n });
    expect(await world.account(userId)).toEqual({ posted: 0n, held: 0n, owed: 70n });
    await expect(hold(userId, 1n)).rejects.toMatchObject({ status: 402 });
    await post(userId, 50n, 'pay_a');
    expect(await world.account(userId)).toEqual({ posted: 0n, held: 0n, owed: 20n });
    await expect(hold(userId, 1n)).rejects.toMatchObject({ status: 402 });
    await post(userId, 50n, 'pay_b');
    expect(await world.account(userId)).toEqual({ posted: 30n, held: 0n, owed: 0n });
    expect((await hold(userId, 30n)).amount).toBe(30n);
  });

  test('leave a running call its hold and take the credits that it frees', async () => {
    const userId = await world.user(100n);
    const openHold = await hold(userId, 80n);
    expect(await takeBack(userId, 60n)).toEqual({ taken: 20n, owed: 40n });
    expect(await world.account(userId)).toEqual({ posted: 80n, held: 80n, owed: 40n });
    expect(await openHold.settle(30n, facts())).toEqual({ charged: 30n });
    expect(await world.account(userId)).toEqual({ posted: 10n, held: 0n, owed: 0n });
  });

  test('take all or nothing when partial is false', async () => {
    const userId = await world.user(100n);
    await hold(userId, 30n);
    const deduct = (amount: bigint, ref: string) =>
      world.place.database.tx((tx) =>
        credits.balances.takeBack(tx, {
          userId,
          kind: 'deduct',
          ref,
          credits: amount,
          reason: 'x',
          partial: false,
        }),
      );
    await expect(deduct(71n, 'a')).rejects.toMatchObject({
      status: 402,
      details: [{ message: '71' }, { message: '70' }],
    });
    expect(await deduct(70n, 'b')).toEqual({ taken: 70n, owed: 0n });
    expect(await world.account(userId)).toEqual({ posted: 30n, held: 30n, owed: 0n });
  });

  test('need a user', async () => {
    await expect(post('usr_nobody', 5n)).rejects.toMatchObject({ status: 404, code: 'user_not_found' });
    await expect(takeBack('usr_nobody', 5n)).rejects.toMatchObject({ status: 404 });
  });
});

describe('the tables of the ledger', () => {
  test('refuse a transaction whose entries do not add up to zero', async () => {
    const userId = await world.user(100n);
    await expect(
      world.place.database.tx(async (tx) => {
        const [transaction] = await tx<{ txId: bigint }[]>`
          insert into gateway.credits_txs (kind, ref, account_id, reason)
          values ('grant', 'forged', ${userId}, '') returning tx_id as "txId"`;
        await tx`
          insert into gateway.credits_entries (tx_id, account_id, amount)
          values (${transaction?.txId ?? 0n}, ${userId}, 5)`;
      }),
    ).rejects.toMatchObject({ code: '23514' });
  });

  test('refuse to change or remove entries', async () => {
    await world.user(100n);
    for (const statement of [
      'update gateway.credits_entries set amount = amount + 1',
      'delete from gateway.credits_entries',
      'truncate gateway.credits_entries',
      `update gateway.credits_txs set reason = 'another'`,
      'delete from gateway.credits_txs',
      'truncate gateway.credits_txs cascade',
    ]) {
      await expect(world.sql.unsafe(statement), statement).rejects.toMatchObject({ code: '42501' });
    }
  });

  test('refuse a negative balance', async () => {
    const userId = await world.user(100n);
    await expect(
      world.sql`update gateway.credits_accounts set held = 101 where account_id = ${userId}`,
    ).rejects.toMatchObject({ code: '23514' });
    await expect(
      world.sql`update gateway.credits_accounts set posted = -1 where account_id = ${userId}`,
    ).rejects.toMatchObject({ code: '23514' });
  });
});
