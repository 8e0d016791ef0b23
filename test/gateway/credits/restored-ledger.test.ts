// `db restore` under a running gateway: calls are refused with 503 while the tables are missing,
// then continue in the restored ledger.
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { startNewGeneration, type Credits } from '../../../src/gateway/credits/index.ts';
import { callOf, facts, payCall, sentFacts, startLedger, type LedgerWorld } from './world.ts';

let world: LedgerWorld;
beforeAll(async () => {
  world = await startLedger();
});
afterAll(() => world?.close());

const call = (credits: Credits, userId: string) => payCall(credits, userId, { amount: 10n, price: 10n });

/** Starts a gateway that is closed at the end of the test, so that it logs nothing during the next one. */
async function startCredits(): Promise<Credits> {
  const credits = world.replica();
  onTestFinished(() => credits.close());
  await credits.start();
  return credits;
}

describe('a restore under a running gateway', () => {
  test('answers 503 while the schema is missing', async () => {
    const credits = await startCredits();
    const userId = await world.user(1_000n);
    await world.sql.unsafe('alter schema gateway rename to gateway_away');
    try {
      expect(await call(credits, userId)).toBe('database_unavailable');
      await expect(world.sql`select gateway.townhall_now()`).rejects.toMatchObject({
        code: 'database_unavailable',
      });
    } finally {
      await world.sql.unsafe('alter schema gateway_away rename to gateway');
    }
    expect(await call(credits, userId)).toBe('charged');
  });

  test('ends the former allotments at once', async () => {
    const credits = await startCredits();
    const userId = await world.user(1_000n);
    await call(credits, userId);
    await credits.report(userId);
    await startNewGeneration(world.place.database);
    expect(await world.account(userId)).toMatchObject({ posted: 990n, held: 0n });
  });

  test('continues in the new generation without a restart', async () => {
    const credits = await startCredits();
    const userId = await world.user(1_000n);
    expect(await call(credits, userId)).toBe('charged');
    await credits.report(userId);
    await startNewGeneration(world.place.database);
    // A call on credits that were idle in memory is still charged to the former ledger.
    const chargeAndRead = async (): Promise<bigint> => {
      await call(credits, userId);
      await credits.report(userId);
      return (await world.account(userId)).posted;
    };
    await expect.poll(chargeAndRead, { interval: 100 }).toBeLessThan(990n);
    expect(await call(credits, userId)).toBe('charged');
    await expect.poll(async () => (await world.account(userId)).held).toBe(0n);
  });

  test('lets a running call finish', async () => {
    const credits = await startCredits();
    const userId = await world.user(1_000n);
    const reservation = await credits.ledger.reserve(callOf(userId), 100n);
    reservation.markSent(sentFacts);
    world.logLines.length = 0;
    await startNewGeneration(world.place.database);
    await expect.poll(() => world.logLines.join('')).toContain('continues with the restored ledger');
    expect(await reservation.settle(50n, facts())).toEqual({ charged: 50n });
    await credits.close();
    expect(await world.account(userId)).toMatchObject({ held: 0n });
  });
});
