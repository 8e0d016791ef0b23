// Allotments in the database: opened, enlarged, given back, renewed, recalled, closed and taken
// back, and never more than the credits of account and key.
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { id } from '../../../src/kernel/ids.ts';
import { waitForBlockedStatement } from '../../support/locks.ts';
import { startAllotments, startServerAt, type AllotmentsWorld } from './allotments-world.ts';

let world: AllotmentsWorld;
beforeEach(async () => {
  world = await startAllotments();
});
afterEach(async () => {
  const mismatches = await world.mismatches();
  await world.close();
  expect(mismatches).toEqual([]);
});

const end = (allotmentId: string, version = 1) =>
  world.store.giveBack([{ allotmentId, version, amount: 0n, end: true }]);

describe('allot', () => {
  test('opens an allotment out of the balance', async () => {
    const userId = await world.user(100n);
    const { allotmentId, ...result } = await world.allot(userId, 30n, { want: 50n });
    expect(result).toEqual({
      outcome: 'granted',
      row: {
        allotmentId,
        version: 1,
        amount: 50n,
        charged: 0n,
        recall: 0n,
        isRecalled: false,
        isClosed: false,
      },
      available: 50n,
      idleElsewhere: 0n,
    });
    expect(await world.account(userId)).toEqual({ posted: 100n, held: 50n, owed: 0n });
  });

  test('enlarges by fewer credits than wanted when no more are left', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 30n);
    const result = await world.allot(userId, 10n, { allotmentId, version: 1, want: 500n });
    expect(result).toMatchObject({ outcome: 'granted', available: 0n, row: { version: 2, amount: 100n } });
  });

  test('grants all or nothing of the needed credits', async () => {
    const userId = await world.user(100n);
    expect(await world.allot(userId, 101n)).toMatchObject({ outcome: 'short', row: null, available: 100n });
    expect(await world.account(userId)).toMatchObject({ held: 0n });
  });

  test('stays within the cap of the key', async () => {
    const userId = await world.user(100n);
    const tokenId = await world.key(userId, 40n);
    expect(await world.allot(userId, 41n, { tokenId })).toMatchObject({ outcome: 'short', available: 40n });
    expect(await world.allot(userId, 1n, { tokenId, want: 90n })).toMatchObject({ row: { amount: 40n } });
    expect(await world.keyRow(tokenId)).toEqual({ spent: 0n, held: 40n });
  });

  test('answers a repeated request with the unchanged row', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 30n);
    expect(await world.allot(userId, 30n, { allotmentId })).toMatchObject({
      outcome: 'stale',
      row: { version: 1, amount: 30n },
    });
    expect(await world.account(userId)).toMatchObject({ held: 30n });
  });

  test.each([
    ['that was never opened', { version: 3 }],
    ['of another generation', { generation: '00000000-0000-4000-8000-000000000000' }],
  ])('refuses an allotment %s as gone', async (_, members) => {
    const userId = await world.user(100n);
    expect(await world.allot(userId, 1n, members)).toMatchObject({ outcome: 'gone', row: null });
  });

  test('refuses an id that has ended', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 30n);
    await end(allotmentId);
    expect(await world.allot(userId, 30n, { allotmentId })).toMatchObject({ outcome: 'gone', row: null });
  });

  test('refuses to enlarge the allotment of another token', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 30n);
    expect(await world.allot(userId, 1n, { allotmentId, version: 1, tokenId: 'tok_b' })).toMatchObject({
      outcome: 'gone',
      row: null,
    });
  });

  test('does not enlarge a closed allotment', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 30n);
    await world.store.close({ userId });
    expect(await world.allot(userId, 1n, { allotmentId, version: 1 })).toMatchObject({
      outcome: 'closed',
      row: { amount: 30n, isClosed: true },
    });
  });

  test('grants exactly the balance to concurrent requests', async () => {
    const userId = await world.user(500n);
    const results = await Promise.all(
      Array.from({ length: 60 }, (_, index) =>
        world.allot(userId, 20n, { gatewayId: `gwy_${index % 3}`, tokenId: `tok_${index}` }),
      ),
    );
    expect(results.filter(({ outcome }) => outcome === 'granted')).toHaveLength(25);
    expect(await world.account(userId)).toEqual({ posted: 500n, held: 500n, owed: 0n });
  });

  test('grants exactly the cap of a key to concurrent requests', async () => {
    const userId = await world.user(500n);
    const tokenId = await world.key(userId, 70n);
    const results = await Promise.all(
      Array.from({ length: 30 }, () => world.allot(userId, 10n, { tokenId, gatewayId: id('gwy') })),
    );
    expect(results.filter(({ outcome }) => outcome === 'granted')).toHaveLength(7);
    expect(await world.keyRow(tokenId)).toEqual({ spent: 0n, held: 70n });
  });
});

describe('idleElsewhere', () => {
  test('counts only the allotments of other gateways', async () => {
    const userId = await world.user(100n);
    await world.allot(userId, 30n);
    await world.allot(userId, 45n, { gatewayId: 'gwy_b' });
    expect(await world.allot(userId, 80n, { tokenId: 'tok_b' })).toMatchObject({
      outcome: 'short',
      available: 25n,
      idleElsewhere: 45n,
    });
  });

  test('counts no more than the key could get', async () => {
    const userId = await world.user(100n);
    const tokenId = await world.key(userId, 50n);
    await world.allot(userId, 30n, { gatewayId: 'gwy_b', tokenId });
    await world.allot(userId, 60n, { gatewayId: 'gwy_b' });
    expect(await world.allot(userId, 45n, { tokenId })).toMatchObject({ available: 10n, idleElsewhere: 40n });
  });

  test('does not count a gateway that has answered the ticket', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 60n, { gatewayId: 'gwy_b' });
    await world.allot(userId, 40n, { gatewayId: 'gwy_c' });
    await world.store.recall({ ticket: 't1', gatewayId: 'gwy_a', userId, tokenId: 'tok_test', need: 50n });
    await world.store.giveBack([{ allotmentId, version: 1, amount: 60n, end: false }]);
    expect(await world.allot(userId, 50n, { ticket: 't1' })).toMatchObject({ idleElsewhere: 40n });
    expect(await world.allot(userId, 50n)).toMatchObject({ idleElsewhere: 100n });
  });

  test('is the same number in affordable', async () => {
    const userId = await world.user(100n);
    await world.allot(userId, 60n, { gatewayId: 'gwy_b' });
    expect(await world.store.affordable({ gatewayId: 'gwy_a', userId, tokenId: 'tok_test' })).toEqual({
      available: 40n,
      idleElsewhere: 60n,
    });
  });
});

describe('giveBack', () => {
  test('lowers the allotment, account and key', async () => {
    const userId = await world.user(100n);
    const tokenId = await world.key(userId, 90n);
    const { allotmentId } = await world.allot(userId, 80n, { tokenId });
    const rows = await world.store.giveBack([{ allotmentId, version: 1, amount: 30n, end: false }]);
    expect(rows).toMatchObject([
      { allotmentId, version: 2, amount: 30n, charged: 0n, isRecalled: false, isClosed: false },
    ]);
    expect(await world.account(userId)).toEqual({ posted: 100n, held: 30n, owed: 0n });
    expect(await world.keyRow(tokenId)).toEqual({ spent: 0n, held: 30n });
  });

  test('counts once when it is repeated', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 80n);
    const request = [{ allotmentId, version: 1, amount: 30n, end: false }];
    await world.store.giveBack(request);
    expect(await world.store.giveBack(request)).toMatchObject([{ version: 2, amount: 30n }]);
    expect(await world.account(userId)).toMatchObject({ held: 30n });
  });

  test('never raises the amount', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 30n);
    expect(await world.store.giveBack([{ allotmentId, version: 1, amount: 90n, end: false }])).toMatchObject([
      { version: 2, amount: 30n },
    ]);
  });

  test('returns null for an unknown allotment and for one that it ends', async () => {
    const userId = await world.user(100n);
    const firstAllotment = await world.allot(userId, 10n);
    const secondAllotment = await world.allot(userId, 20n, { tokenId: 'tok_b' });
    const rows = await world.store.giveBack([
      { allotmentId: 'alt_unknown', version: 1, amount: 0n, end: true },
      { allotmentId: secondAllotment.allotmentId, version: 1, amount: 5n, end: false },
      { allotmentId: firstAllotment.allotmentId, version: 1, amount: 0n, end: true },
    ]);
    expect(rows).toMatchObject([null, { allotmentId: secondAllotment.allotmentId, amount: 5n }, null]);
    expect(await world.store.read([firstAllotment.allotmentId, secondAllotment.allotmentId])).toHaveLength(1);
    expect(await world.account(userId)).toMatchObject({ held: 5n });
  });

  test('pays a debt first', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 80n);
    expect(await world.takeBack(userId, 60n)).toEqual({ taken: 20n, owed: 40n, lacking: 0n });
    expect(await world.account(userId)).toEqual({ posted: 80n, held: 80n, owed: 40n });
    await world.store.giveBack([{ allotmentId, version: 1, amount: 50n, end: false }]);
    expect(await world.account(userId)).toEqual({ posted: 50n, held: 50n, owed: 10n });
    await end(allotmentId, 2);
    expect(await world.account(userId)).toEqual({ posted: 40n, held: 0n, owed: 0n });
  });

  test('lowers stored counts that the amount no longer covers', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 80n);
    await world.store.renew('gwy_a', [{ allotmentId, reserved: 50n, unapplied: 20n }], 20_000);
    await world.store.giveBack([{ allotmentId, version: 1, amount: 30n, end: false }]);
    expect(await world.store.listAllotments(userId)).toMatchObject([
      { amount: 30n, reserved: 10n, unapplied: 20n },
    ]);
  });
});

describe('recall', () => {
  const recallFor = (userId: string, need: bigint, members = {}) =>
    world.store.recall({ ticket: 't1', gatewayId: 'gwy_a', userId, tokenId: 'tok_test', need, ...members });

  test('flags the allotments of other gateways on the account', async () => {
    const userId = await world.user(100n);
    await world.allot(userId, 30n);
    const { allotmentId } = await world.allot(userId, 60n, { gatewayId: 'gwy_b', tokenId: 'tok_b' });
    await recallFor(userId, 50n);
    expect((await world.store.flags('gwy_a')).rows).toEqual([]);
    expect((await world.store.flags('gwy_b')).rows).toMatchObject([{ allotmentId, isRecalled: true }]);
  });

  test('flags only allotments of the key when only its cap is short', async () => {
    const userId = await world.user(100n);
    const tokenId = await world.key(userId, 20n);
    const { allotmentId } = await world.allot(userId, 20n, { gatewayId: 'gwy_b', tokenId });
    await world.allot(userId, 20n, { gatewayId: 'gwy_b', tokenId: 'tok_b' });
    await recallFor(userId, 10n, { tokenId });
    expect((await world.store.flags('gwy_b')).rows).toMatchObject([{ allotmentId }]);
  });

  test('is answered by a giveBack that lowers nothing', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 60n, { gatewayId: 'gwy_b' });
    await recallFor(userId, 50n);
    await world.store.giveBack([{ allotmentId, version: 1, amount: 60n, end: false }]);
    expect((await world.store.flags('gwy_b')).rows).toEqual([]);
  });

  test('reserves returned credits for the oldest ticket', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 100n, { gatewayId: 'gwy_b' });
    await recallFor(userId, 60n);
    await world.store.giveBack([{ allotmentId, version: 1, amount: 30n, end: false }]);
    const third = { gatewayId: 'gwy_c', tokenId: 'tok_c' };
    expect(await world.allot(userId, 20n, third)).toMatchObject({ outcome: 'short', available: 70n });
    expect(await world.allot(userId, 10n, third)).toMatchObject({ outcome: 'granted' });
    expect(await world.allot(userId, 60n, { ticket: 't1' })).toMatchObject({
      outcome: 'granted',
      available: 0n,
    });
  });

  test('takes precedence over requests without a ticket for a second', async () => {
    const userId = await world.user(100n);
    await world.allot(userId, 50n, { gatewayId: 'gwy_b' });
    await recallFor(userId, 60n);
    const third = { gatewayId: 'gwy_c', tokenId: 'tok_c' };
    expect(await world.allot(userId, 50n, third)).toMatchObject({ outcome: 'short' });
    await world.advance(1_000);
    expect(await world.allot(userId, 50n, third)).toMatchObject({ outcome: 'granted' });
  });

  test('flags every allotment that opens at the same time', async () => {
    const userId = await world.user(100n);
    await Promise.all([
      ...Array.from({ length: 10 }, (_, index) =>
        world.allot(userId, 10n, { gatewayId: 'gwy_b', tokenId: `tok_${index}` }),
      ),
      recallFor(userId, 100n),
    ]);
    // Each allotment of the other gateway was flagged, or refused in favor of the ticket.
    const openAllotments = await world.store.listAllotments(userId);
    expect(openAllotments.filter(({ isRecalled }) => !isRecalled)).toEqual([]);
  });
});

describe('close', () => {
  test.each(['userId', 'tokenId', 'bureauId'] as const)('closes open allotments by %s', async (member) => {
    const userId = await world.user(100n);
    const tokenId = await world.key(userId, null);
    const { allotmentId } = await world.allot(userId, 30n, { tokenId, bureauId: 'bur_a' });
    const otherUser = await world.user(100n);
    await world.allot(otherUser, 30n);
    const scopes = { userId: { userId }, tokenId: { tokenId }, bureauId: { bureauId: 'bur_a' } };
    expect(await world.store.close(scopes[member])).toBe(1);
    expect((await world.store.flags('gwy_a')).rows).toMatchObject([
      { allotmentId, isClosed: true, isRecalled: true },
    ]);
  });

  test('closes the allotments of an account with a debt', async () => {
    const userId = await world.user(100n);
    await world.allot(userId, 80n);
    // The first refund takes 10 of the 20 free credits; the second needs 20 and leaves a debt of
    // 10.
    await world.takeBack(userId, 10n);
    expect((await world.store.flags('gwy_a')).rows).toEqual([]);
    await world.takeBack(userId, 20n);
    expect((await world.store.flags('gwy_a')).rows).toMatchObject([{ isClosed: true }]);
  });
});

describe('renew', () => {
  test('stores the reported counts, up to the amount', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 50n);
    await world.store.renew('gwy_a', [{ allotmentId, reserved: 70n, unapplied: 20n }], 20_000);
    expect(await world.store.listAllotments(userId)).toMatchObject([{ reserved: 30n, unapplied: 20n }]);
  });

  test('renews allotments without a report too', async () => {
    const userId = await world.user(100n);
    const { row } = await world.allot(userId, 10n);
    await world.advance(61_000);
    expect(await world.store.renew('gwy_a', [], 20_000)).toEqual([row]);
    expect(await world.store.takeBackExpired(100)).toEqual([]);
  });

  test('answers with the open allotments of the gateway', async () => {
    const userId = await world.user(100n);
    const firstAllotment = await world.allot(userId, 10n);
    const endedAllotment = await world.allot(userId, 10n);
    const otherAllotment = await world.allot(userId, 10n, { gatewayId: 'gwy_b' });
    await end(endedAllotment.allotmentId);
    const reports = [firstAllotment, endedAllotment, otherAllotment].map(({ allotmentId }) => ({
      allotmentId,
      reserved: 1n,
      unapplied: 0n,
    }));
    expect(await world.store.renew('gwy_a', reports, 20_000)).toEqual([firstAllotment.row]);
  });

  test('keeps an allotment from being taken back', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 10n);
    const unrenewedAllotment = await world.allot(userId, 20n, { gatewayId: 'gwy_b' });
    await world.advance(61_000);
    await world.store.renew('gwy_a', [{ allotmentId, reserved: 0n, unapplied: 0n }], 20_000);
    expect(await world.store.takeBackExpired(100)).toEqual([
      { allotmentId: unrenewedAllotment.allotmentId, amount: 20n },
    ]);
    expect(await world.account(userId)).toMatchObject({ held: 10n });
  });
});

describe('takeBackExpired', () => {
  // A lease lasts 20 s (allotments-world.ts), so it can be taken back 60 s after its allotment
  // opened.
  test('waits 40 s after the end of a lease', async () => {
    const userId = await world.user(100n);
    await world.allot(userId, 10n);
    await world.advance(59_000);
    expect(await world.store.takeBackExpired(100)).toEqual([]);
    await world.advance(2_000);
    expect(await world.store.takeBackExpired(100)).toHaveLength(1);
    expect(await world.account(userId)).toEqual({ posted: 100n, held: 0n, owed: 0n });
  });

  // The embedded engine runs one transaction at a time.
  test.skipIf(inject('databaseSource')?.engine !== 'postgres')(
    'keeps an allotment that is renewed while it waits for the row',
    async () => {
      const userId = await world.user(100n);
      const { allotmentId } = await world.allot(userId, 10n);
      await world.advance(61_000);
      const { round } = await world.place.database.tx(async (tx) => {
        await tx`select 1 from gateway.credits_allotments where allotment_id = ${allotmentId} for update`;
        const takingBack = world.store.takeBackExpired(100);
        await waitForBlockedStatement(world.sql);
        await tx`select * from gateway.credits_renew('gwy_a', '{}', 20)`;
        // Wrapped in an object: the transaction would await the promise, which needs its commit.
        return { round: takingBack };
      });
      expect(await round).toEqual([]);
      expect(await world.store.read([allotmentId])).toHaveLength(1);
    },
  );

  test('waits until the database has been up for a minute', async () => {
    const userId = await world.user(100n);
    await world.allot(userId, 10n);
    await world.advance(61_000);
    await startServerAt(world.sql, 'now');
    expect(await world.store.takeBackExpired(100)).toEqual([]);
    await startServerAt(world.sql, '-infinity');
    expect(await world.store.takeBackExpired(100)).toHaveLength(1);
  });

  test('ends each allotment once among several gateways', async () => {
    const userId = await world.user(100n);
    await Promise.all(
      Array.from({ length: 10 }, (_, index) => world.allot(userId, 10n, { tokenId: `tok_${index}` })),
    );
    await world.advance(61_000);
    const rounds = await Promise.all(Array.from({ length: 4 }, () => world.store.takeBackExpired(4)));
    expect(rounds.flat().length).toBeGreaterThanOrEqual(4);
    expect(new Set(rounds.flat().map(({ allotmentId }) => allotmentId)).size).toBe(rounds.flat().length);
    while ((await world.store.takeBackExpired(4)).length > 0);
    expect(await world.account(userId)).toMatchObject({ held: 0n });
  });
});

describe('the balance of an account', () => {
  test('counts idle credits of allotments as available', async () => {
    const userId = await world.user(100n);
    const tokenId = await world.key(userId, 70n);
    const { allotmentId } = await world.allot(userId, 60n, { tokenId });
    expect(await world.credits.findAccount(userId)).toMatchObject({ posted: 100n, held: 0n });
    expect(await world.credits.available(userId, tokenId)).toBe(70n);
    await world.store.renew('gwy_a', [{ allotmentId, reserved: 25n, unapplied: 5n }], 20_000);
    expect(await world.credits.findAccount(userId)).toMatchObject({ posted: 100n, held: 30n });
    expect(await world.credits.available(userId, tokenId)).toBe(40n);
  });

  test('has nothing available while it owes credits', async () => {
    const userId = await world.user(100n);
    await world.allot(userId, 60n);
    await world.takeBack(userId, 50n);
    expect(await world.credits.findAccount(userId)).toMatchObject({ posted: 60n, held: 60n, owed: 10n });
  });
});
