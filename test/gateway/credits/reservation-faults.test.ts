// Reservations and charges when the database loses answers or is unreachable, when a clock jumps,
// and after the end of the process.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { sqlAllotmentStore, type Credits, type CreditsOptions } from '../../../src/gateway/credits/index.ts';
import type { AllotmentStore } from '../../../src/gateway/credits/allotments/store.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { callOf, facts, sentFacts, startLedger, type LedgerWorld } from './world.ts';

let world: LedgerWorld;
let replicas: Credits[] = [];
beforeAll(async () => {
  world = await startLedger();
});
afterEach(async () => {
  for (const credits of replicas) await credits.close();
  replicas = [];
});
afterAll(() => world?.close());

/** Intervals of tests that wait for the background work. */
const quickTimes = { maintenanceEveryMs: 20, renewEveryMs: 50, idleMs: 40, retryMs: 10 };

type Fault = 'none' | 'before' | 'after';

interface FaultyStore {
  store: AllotmentStore;
  /** Loses statements of these names before or after they run. */
  lossOf: Map<string, Fault>;
  isDown: boolean;
}

function faultyStore(): FaultyStore {
  const state: FaultyStore = {
    store: sqlAllotmentStore(world.place.database),
    lossOf: new Map(),
    isDown: false,
  };
  state.store = new Proxy(state.store, {
    get(target, name, receiver) {
      const method: unknown = Reflect.get(target, name, receiver);
      if (typeof method !== 'function') return method;
      return async (...values: unknown[]): Promise<unknown> => {
        const fault = state.isDown ? 'before' : (state.lossOf.get(String(name)) ?? 'none');
        state.lossOf.delete(String(name));
        if (fault === 'before') throw databaseUnavailable();
        const answer: unknown = await Reflect.apply(method, target, values);
        if (fault === 'after') throw databaseUnavailable();
        return answer;
      };
    },
  });
  return state;
}

function databaseUnavailable(): Problem {
  return new Problem('unavailable', 'database_unavailable', 'The database is unavailable at the moment.');
}

function replica(options: Partial<CreditsOptions> = {}): Credits {
  const credits = world.replica({ allotmentTimes: quickTimes, ...options });
  replicas.push(credits);
  return credits;
}

async function charge(credits: Credits, userId: string, amount: bigint, price: bigint): Promise<void> {
  const reservation = await credits.ledger.reserve(callOf(userId), amount);
  reservation.markSent(sentFacts);
  await reservation.settle(price, facts());
}

describe('a lost answer', () => {
  test.each(['before', 'after'] as const)('of a batch of charges counts once (%s)', async (fault) => {
    const { store, lossOf } = faultyStore();
    const credits = replica({ allotmentStore: store });
    const userId = await world.user(1_000n);
    lossOf.set('applyCharges', fault);
    await charge(credits, userId, 100n, 40n);
    await expect.poll(() => world.account(userId)).toMatchObject({ posted: 960n });
    await charge(credits, userId, 100n, 40n);
    await expect.poll(() => world.account(userId)).toMatchObject({ posted: 920n });
    await credits.close();
    expect(await world.account(userId)).toMatchObject({ posted: 920n, held: 0n });
  });

  test.each(['before', 'after'] as const)('of an opening leaves no credits held (%s)', async (fault) => {
    const { store, lossOf } = faultyStore();
    const credits = replica({ allotmentStore: store });
    await credits.start();
    const userId = await world.user(1_000n);
    lossOf.set('allot', fault);
    await expect(charge(credits, userId, 100n, 40n)).rejects.toMatchObject({ code: 'database_unavailable' });
    await expect.poll(() => world.account(userId)).toMatchObject({ posted: 1_000n, held: 0n });
    await charge(credits, userId, 1_000n, 40n);
  });

  test.each(['before', 'after'] as const)('of a give-back counts once (%s)', async (fault) => {
    const { store, lossOf } = faultyStore();
    const credits = replica({ allotmentStore: store });
    const userId = await world.user(1_000n);
    await charge(credits, userId, 500n, 40n);
    lossOf.set('giveBack', fault);
    await credits.start();
    await expect.poll(() => world.account(userId)).toMatchObject({ posted: 960n, held: 0n });
    await charge(credits, userId, 960n, 960n);
  });
});

describe('while the database is unreachable', () => {
  test('a running call is charged from the journal later', async () => {
    const faultyDatabase = faultyStore();
    const credits = replica({ allotmentStore: faultyDatabase.store });
    const userId = await world.user(1_000n);
    const reservation = await credits.ledger.reserve(callOf(userId), 100n);
    faultyDatabase.isDown = true;
    expect(await reservation.settle(60n, facts())).toEqual({ charged: 60n });
    expect(await world.account(userId)).toMatchObject({ posted: 1_000n });
    faultyDatabase.isDown = false;
    await expect.poll(() => world.account(userId)).toMatchObject({ posted: 940n });
  });

  test('a new token gets 503', async () => {
    const faultyDatabase = faultyStore();
    const credits = replica({ allotmentStore: faultyDatabase.store });
    const userId = await world.user(1_000n);
    (await credits.ledger.reserve(callOf(userId, { tokenId: 'tok_first' }), 1n)).release();
    faultyDatabase.isDown = true;
    await expect(credits.ledger.reserve(callOf(userId), 1n)).rejects.toMatchObject({
      code: 'database_unavailable',
    });
    faultyDatabase.isDown = false;
  });
});

describe('without a journal', () => {
  test('a call is settled once its charge is in the database', async () => {
    const credits = replica({ journals: null });
    const userId = await world.user(1_000n);
    const reservation = await credits.ledger.reserve(callOf(userId), 100n);
    await reservation.settle(60n, facts());
    expect(await world.account(userId)).toMatchObject({ posted: 940n });
  });
});

describe('the journal of a process that is gone', () => {
  test('is charged by the next replica', async () => {
    const faultyDatabase = faultyStore();
    const firstReplica = replica({ allotmentStore: faultyDatabase.store });
    const userId = await world.user(1_000n);
    const firstReservation = await firstReplica.ledger.reserve(callOf(userId), 100n);
    const reservation = await firstReplica.ledger.reserve(callOf(userId), 100n);
    reservation.markSent({
      model: 'acme/fast',
      provider: 'acme',
      inputCredits: 7n,
      facts: { action: 'text' },
    });
    faultyDatabase.isDown = true;
    await firstReservation.settle(60n, facts());
    await firstReplica.close();
    expect(await world.account(userId)).toMatchObject({ posted: 1_000n });
    await replica().start();
    expect(await world.account(userId)).toMatchObject({ posted: 933n, held: 0n });
    await replica().start();
    expect(await world.account(userId)).toMatchObject({ posted: 933n, held: 0n });
  });
});

describe('a lease', () => {
  test('is invalid after a jump of wall time, until it is renewed', async () => {
    let jumpMs = 0;
    const clock = { ...systemClock, now: () => new Date(Date.now() + jumpMs) };
    const credits = replica({ clock });
    const userId = await world.user(1_000n);
    const reservation = await credits.ledger.reserve(callOf(userId), 100n);
    jumpMs = 5_000;
    expect(() => reservation.markSent(sentFacts)).toThrow(expect.objectContaining({ code: 'credits_busy' }));
    reservation.release();
    await charge(credits, userId, 100n, 10n);
    await credits.report(userId);
    expect(await world.account(userId)).toMatchObject({ posted: 990n });
  });
});
