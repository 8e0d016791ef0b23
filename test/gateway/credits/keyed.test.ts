// Paid calls with an Idempotency-Key whose gateway dies or loses the database: one key leads to one
// charge.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { creditsStore, type Credits, type CreditsStore } from '../../../src/gateway/credits/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import {
  createIdempotency,
  type Idempotency,
  type IdempotentCall,
  type Remember,
} from '../../../src/kernel/data/idempotency.ts';
import { id } from '../../../src/kernel/ids.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { silentLog } from '../../support/databases.ts';
import { callOf, facts, startLedger, stillTimes, type LedgerWorld } from './world.ts';

let world: LedgerWorld;
let idempotency: Idempotency;
let credits: Credits;
let isAway: boolean;
let userId: string;
beforeEach(async () => {
  world = await startLedger();
  isAway = false;
  credits = world.replica({ store: storeWithOutage() });
  idempotency = createIdempotency({
    database: world.place.database,
    schema: 'gateway',
    clock: systemClock,
    log: silentLog,
  });
  userId = await world.user(1_000n);
});
afterEach(async () => {
  const { faults: mismatches } = await credits.verify();
  await idempotency.close();
  await world.close();
  expect(mismatches).toEqual([]);
});

/** The real store, except that `apply` fails while `isAway`. */
function storeWithOutage(): CreditsStore {
  const store = creditsStore(world.place.database);
  return {
    ...store,
    apply: (...input) =>
      isAway
        ? Promise.reject(new Problem('unavailable', 'database_unavailable', 'away'))
        : store.apply(...input),
  };
}

function keyedCall(signal = new AbortController().signal): IdempotentCall {
  return {
    operationId: 'ai.generateText',
    caller: `user ${userId}`,
    key: 'key',
    request: { path: {}, query: {}, body: {}, rawBody: new Uint8Array() },
    requestId: id('req'),
    isSecret: false,
    signal,
  };
}

/** Makes a call of 30 credits; `before` runs between its hold and its settlement. */
function payKeyed(
  call: IdempotentCall,
  { before = async () => {}, replica = credits, answer = { text: 'hi' } as unknown } = {},
) {
  return idempotency.runOnce(call, async (remember: Remember) => {
    const hold = await replica.ledger.hold(callOf(userId, { requestId: call.requestId }), 100n);
    await before();
    const reply = { status: 200, body: answer, headers: { 'x-townhall-credits': '30' } };
    const inSettlement = remember.inSettlement(reply);
    if (inSettlement === undefined) throw new Error('A keyed call has no key.');
    await hold.settle(30n, facts(), { answer: inSettlement });
    return reply;
  });
}

const loseDatabase = async () => void (isAway = true);
const expireKeys = () =>
  world.sql`update gateway.idempotency set lease_until = gateway.townhall_now() - interval '1 second'`;
/** Starts another replica, which settles what it finds in the journal. */
const replay = () => world.replica().start();
const posted = async () => (await world.account(userId)).posted;
const replayedReply = {
  status: 200,
  body: { text: 'hi' },
  headers: { 'x-townhall-credits': '30', 'idempotent-replayed': 'true' },
};

describe('a key whose call lost the database before its settlement', () => {
  test('is in use until the journal is applied', async () => {
    expect(await payKeyed(keyedCall(), { before: loseDatabase })).toMatchObject({ body: { text: 'hi' } });
    await expireKeys();
    isAway = false;
    await expect(payKeyed(keyedCall())).rejects.toMatchObject({
      status: 409,
      code: 'idempotency_key_in_use',
    });
    await replay();
    expect(await payKeyed(keyedCall())).toEqual(replayedReply);
    expect(await posted()).toBe(970n);
  });

  test('replays the answer when the hold was resolved before the journal', async () => {
    await payKeyed(keyedCall(), { before: loseDatabase });
    await creditsStore(world.place.database).recover({ isForced: true, limit: 10 });
    await replay();
    expect(await payKeyed(keyedCall())).toEqual(replayedReply);
    expect(await posted()).toBe(970n);
  });

  test('charges only the second call when one ran before the journal was applied', async () => {
    await payKeyed(keyedCall(), { before: loseDatabase });
    await creditsStore(world.place.database).recover({ isForced: true, limit: 10 });
    await expireKeys();
    const otherReplica = world.replica();
    expect(await payKeyed(keyedCall(), { replica: otherReplica, answer: 'second' })).toMatchObject({
      status: 200,
      body: 'second',
    });
    const thirdReplica = world.replica();
    await thirdReplica.start();
    expect(await posted()).toBe(970n);
    expect(thirdReplica.counters()).toMatchObject({ lateSettlements: 1, overrunCredits: 30n });
    expect(await payKeyed(keyedCall())).toMatchObject({ body: 'second' });
  });
});

test('a key is free again once the hold of its dead process is resolved', async () => {
  void payKeyed(keyedCall(), { before: () => new Promise(() => undefined) });
  const countHolds = async () => (await world.sql`select 1 from gateway.credits_holds`).length;
  await expect.poll(countHolds).toBe(1);
  await expireKeys();
  await expect(payKeyed(keyedCall())).rejects.toMatchObject({ code: 'idempotency_key_in_use' });
  await creditsStore(world.place.database).recover({ isForced: true, limit: 10 });
  expect(await payKeyed(keyedCall())).toMatchObject({ body: { text: 'hi' } });
  expect(await posted()).toBe(970n);
});

test('a key stays in use when its settlement could not be written', async () => {
  const journal = {
    prepare: async () => undefined,
    list: async () => [],
    remove: async () => undefined,
    write: () => Promise.reject(new Error('full')),
  };
  const replica = world.replica({
    journal,
    // The start may be rejected: after an outage, the ledger pauses for 250 ms. The loop that writes checkpoints
    // repeats the settlement.
    times: { ...stillTimes, checkpointEveryMs: 200 },
    store: storeWithOutage(),
  });
  await expect(payKeyed(keyedCall(), { before: loseDatabase, replica })).rejects.toMatchObject({
    status: 503,
  });
  await expireKeys();
  await expect(payKeyed(keyedCall())).rejects.toMatchObject({ code: 'idempotency_key_in_use' });
  isAway = false;
  await replica.start();
  await expect.poll(posted).toBe(970n);
  expect(await payKeyed(keyedCall())).toEqual(replayedReply);
  expect(await posted()).toBe(970n);
});

test('a keyed call whose gateway is killed before the first text costs its input', async () => {
  const replica = world.replica({ times: { ...stillTimes, checkpointEveryMs: 200 } });
  await replica.start();
  const hold = await replica.ledger.hold(callOf(userId), 100n);
  hold.markSent({ model: 'acme/fast', provider: 'acme', inputCredits: 7n, facts: { model: 'acme/fast' } });
  await expect
    .poll(() => world.sql`select checkpoint from gateway.credits_holds`)
    .toEqual([{ checkpoint: 7n }]);
  await creditsStore(world.place.database).recover({ isForced: true, limit: 10 });
  expect(await posted()).toBe(993n);
  expect(await world.sql`select credits, outcome, estimated from gateway.usage_records`).toEqual([
    { credits: 7n, outcome: 'upstream_failed', estimated: true },
  ]);
});
