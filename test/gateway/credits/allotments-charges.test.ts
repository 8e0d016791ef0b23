// Charges of a journal in the database: each line is charged once, from its allotment first, in one
// transaction per account and batch.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { startNewGeneration } from '../../../src/gateway/credits/index.ts';
import { id } from '../../../src/kernel/ids.ts';
import { chargeOf, startAllotments, type AllotmentsWorld } from './allotments-world.ts';
import { callOf, facts, force } from './world.ts';

let world: AllotmentsWorld;
beforeEach(async () => {
  world = await startAllotments();
});
afterEach(() => world.close());

const usage = () =>
  world.sql<{ usageId: string; credits: bigint }[]>`
    select usage_id as "usageId", credits from gateway.usage_records order by usage_id`;

describe('applyCharges', () => {
  test('lowers account, key and allotment with one usage row per line', async () => {
    const userId = await world.user(100n);
    const tokenId = await world.key(userId, 90n);
    const { allotmentId } = await world.allot(userId, 60n, { tokenId });
    const call = callOf(userId, { tokenId });
    const result = await world.charge([
      { call, allotmentId, credits: 7n },
      { call, allotmentId, credits: 5n },
    ]);
    expect(result).toEqual({
      appliedSeq: 2,
      outcome: 'applied',
      results: [
        { seq: 1, charged: 7n, overrun: 0n, isLate: false },
        { seq: 2, charged: 5n, overrun: 0n, isLate: false },
      ],
      rows: [
        {
          allotmentId,
          version: 1,
          amount: 48n,
          charged: 12n,
          recall: 0n,
          isRecalled: false,
          isClosed: false,
        },
      ],
    });
    expect(await world.account(userId)).toEqual({ posted: 88n, held: 48n, owed: 0n });
    expect(await world.keyRow(tokenId)).toEqual({ spent: 12n, held: 48n });
    expect((await usage()).map(({ credits }) => credits)).toEqual([7n, 5n]);
    expect(await world.mismatches()).toEqual([]);
  });

  test('writes one transaction per account and batch', async () => {
    const [firstUser, secondUser] = [await world.user(100n), await world.user(100n)];
    await world.charge([
      { call: callOf(firstUser) },
      { call: callOf(secondUser) },
      { call: callOf(firstUser), credits: 3n },
    ]);
    expect(
      await world.sql`select ref, reason from gateway.credits_txs where kind = 'charge' order by ref`,
    ).toEqual([
      { ref: 'gwy_a:1-3', reason: '2 calls' },
      { ref: 'gwy_a:2-2', reason: 'text · acme/fast' },
    ]);
  });

  test('charges a batch once when it is repeated', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 60n);
    const batch = {
      journalId: 'gwy_a',
      generation: world.generation,
      expectedSeq: 0,
      toSeq: 1,
      charges: [chargeOf({ call: callOf(userId), allotmentId, credits: 7n })],
    };
    await world.store.openJournal('gwy_a', world.generation);
    const results = await Promise.all(Array.from({ length: 10 }, () => world.store.applyCharges(batch)));
    expect(results.map(({ outcome }) => outcome).sort()).toEqual(['applied', ...Array(9).fill('repeated')]);
    expect(results.map(({ appliedSeq }) => appliedSeq)).toEqual(Array(10).fill(1));
    expect(await world.account(userId)).toEqual({ posted: 93n, held: 53n, owed: 0n });
  });
});

describe('applyCharges with an unexpected journal', () => {
  test('refuses a batch that does not follow the applied lines', async () => {
    const userId = await world.user(100n);
    await world.charge([{ call: callOf(userId) }]);
    const result = await world.charge([{ call: callOf(userId), seq: 4 }], { expectedSeq: 3 });
    expect(result).toMatchObject({ outcome: 'mismatch', appliedSeq: 1, results: [] });
    expect(await world.account(userId)).toMatchObject({ posted: 99n });
  });

  test('refuses an unknown journal', async () => {
    const result = await world.store.applyCharges({
      journalId: 'gwy_unknown',
      generation: world.generation,
      expectedSeq: 0,
      toSeq: 1,
      charges: [],
    });
    expect(result).toMatchObject({ outcome: 'mismatch', appliedSeq: 0 });
  });

  test('refuses a journal of another generation', async () => {
    const userId = await world.user(100n);
    const generation = '00000000-0000-4000-8000-000000000000';
    expect(await world.charge([{ call: callOf(userId) }], { generation })).toMatchObject({
      outcome: 'other_generation',
      appliedSeq: 0,
    });
    expect(await world.charge([{ call: callOf(userId) }])).toMatchObject({ outcome: 'other_generation' });
    expect(await world.account(userId)).toMatchObject({ posted: 100n });
  });

  test('refuses a journal from before a restore', async () => {
    const userId = await world.user(100n);
    await world.charge([{ call: callOf(userId) }]);
    await startNewGeneration(world.place.database);
    expect(await world.store.generation()).not.toBe(world.generation);
    expect(await world.charge([{ call: callOf(userId) }])).toMatchObject({ outcome: 'other_generation' });
    expect(await world.account(userId)).toMatchObject({ posted: 99n });
  });
});

describe('applyCharges on account, key and allotment', () => {
  test('takes a charge beyond its allotment from account and key', async () => {
    const userId = await world.user(100n);
    const tokenId = await world.key(userId, 50n);
    const { allotmentId } = await world.allot(userId, 20n, { tokenId });
    const call = callOf(userId, { tokenId });
    const { results } = await world.charge([
      { call, allotmentId, credits: 15n },
      { call, allotmentId, credits: 15n },
      { call, allotmentId, credits: 30n },
    ]);
    expect(results.map(({ charged, overrun }) => [charged, overrun])).toEqual([
      [15n, 0n],
      [15n, 0n],
      [20n, 10n],
    ]);
    expect(await world.account(userId)).toEqual({ posted: 50n, held: 0n, owed: 0n });
    expect(await world.keyRow(tokenId)).toEqual({ spent: 50n, held: 0n });
    expect(
      await world.sql`select amount from gateway.credits_entries where account_id = 'house:overrun'`,
    ).toEqual([{ amount: -10n }]);
    expect(await world.mismatches()).toEqual([]);
  });

  test('leaves the allotments of other tokens alone', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 20n);
    await world.allot(userId, 70n, { tokenId: 'tok_b', gatewayId: 'gwy_b' });
    const { results } = await world.charge([{ call: callOf(userId), allotmentId, credits: 50n }]);
    expect(results).toMatchObject([{ charged: 30n, overrun: 20n }]);
    expect(await world.account(userId)).toEqual({ posted: 70n, held: 70n, owed: 0n });
  });

  test('takes at most the covered part from an allotment', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 60n);
    const call = callOf(userId);
    const { results, rows } = await world.charge([
      { call, allotmentId, credits: 50n, covered: 20n },
      { call, allotmentId, credits: 50n, covered: 20n },
    ]);
    expect(results.map(({ charged, overrun }) => [charged, overrun])).toEqual([
      [50n, 0n],
      [30n, 20n],
    ]);
    expect(rows).toMatchObject([{ amount: 20n }]);
    expect(await world.account(userId)).toEqual({ posted: 20n, held: 20n, owed: 0n });
    expect(await world.mismatches()).toEqual([]);
  });

  test('charges a late call up to the free credits of its account', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 60n);
    await world.advance(61_000);
    await world.store.takeBackExpired(10);
    await world.allot(userId, 80n, { tokenId: 'tok_b' });
    const { results, rows } = await world.charge([{ call: callOf(userId), allotmentId, credits: 50n }]);
    expect(results).toEqual([{ seq: 1, charged: 20n, overrun: 30n, isLate: true }]);
    expect(rows).toEqual([]);
    expect(await world.mismatches()).toEqual([]);
  });

  test('charges an account with a debt no more than the allotment covers', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 60n);
    await world.takeBack(userId, 70n);
    const { results } = await world.charge([{ call: callOf(userId), allotmentId, credits: 90n }]);
    expect(results).toMatchObject([{ charged: 60n, overrun: 30n }]);
    expect(await world.account(userId)).toEqual({ posted: 0n, held: 0n, owed: 30n });
    expect(await world.mismatches()).toEqual([]);
  });

  test('charges a usage id once', async () => {
    const userId = await world.user(100n);
    const line = { usageId: id('use'), call: callOf(userId), credits: 5n };
    await world.charge([line, line]);
    const { results } = await world.charge([line], { journalId: 'gwy_b' });
    expect(results).toMatchObject([{ charged: 0n, overrun: 0n }]);
    expect(await world.account(userId)).toMatchObject({ posted: 95n });
    expect(await usage()).toEqual([{ usageId: line.usageId, credits: 5n }]);
    expect(await world.mismatches()).toEqual([]);
  });

  test('records the usage of a free call', async () => {
    const call = { ...callOf('usr_a'), userId: null, bureauId: null };
    expect(await world.charge([{ call, credits: 5n }])).toMatchObject({
      results: [{ charged: 0n, overrun: 0n, isLate: false }],
    });
    expect(await usage()).toMatchObject([{ credits: 0n }]);
    expect(await world.sql`select 1 from gateway.credits_txs`).toEqual([]);
  });

  test('lowers the stored counts, or replaces them with a report', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 60n);
    await world.store.renew('gwy_a', [{ allotmentId, reserved: 20n, unapplied: 15n }], 20_000);
    await world.charge([{ call: callOf(userId), allotmentId, credits: 10n }]);
    expect(await world.store.listAllotments(userId)).toMatchObject([{ reserved: 20n, unapplied: 5n }]);
    await world.charge([{ call: callOf(userId), allotmentId, credits: 5n }], {
      reports: [{ allotmentId, reserved: 60n, unapplied: 1n }],
    });
    expect(await world.store.listAllotments(userId)).toMatchObject([
      { amount: 45n, reserved: 44n, unapplied: 1n },
    ]);
  });

  test('raises applied_seq for a batch without lines', async () => {
    expect(await world.charge([], { toSeq: 9 })).toMatchObject({ outcome: 'applied', appliedSeq: 9 });
    expect(await world.store.appliedSeqs(['gwy_a', 'gwy_unknown'])).toEqual(new Map([['gwy_a', 9]]));
  });

  test('refuses the whole batch when the database cannot store one of its lines', async () => {
    const userId = await world.user(100n);
    // PostgreSQL stores no NUL in text; 22P05 is "untranslatable character".
    const badLine = { call: callOf(userId), facts: facts({ model: 'a\u0000b' }) };
    await expect(world.charge([{ call: callOf(userId) }, badLine])).rejects.toMatchObject({ code: '22P05' });
    expect(await world.store.appliedSeqs(['gwy_a'])).toEqual(new Map([['gwy_a', 0]]));
    expect(await world.account(userId)).toMatchObject({ posted: 100n });
  });

  test('charges exactly while the allotments change', async () => {
    const users = await Promise.all(Array.from({ length: 5 }, () => world.user(10_000n)));
    const allotments = await Promise.all(
      users.flatMap((userId) =>
        ['gwy_a', 'gwy_b'].map((gatewayId) => world.allot(userId, 1_000n, { gatewayId })),
      ),
    );
    const lines = allotments.map(({ allotmentId }, index) => ({
      call: callOf(users[Math.floor(index / 2)] as string),
      allotmentId,
      credits: 3n,
    }));
    await Promise.all([
      ...['gwy_a', 'gwy_b'].map(async (journalId) => {
        for (let round = 0; round < 10; round += 1)
          await world.charge(
            lines.filter((_, index) => (index % 2 === 0) === (journalId === 'gwy_a')),
            { journalId },
          );
      }),
      ...allotments.map(({ allotmentId }) =>
        world.store.giveBack([{ allotmentId, version: 1, amount: 500n, end: false }]),
      ),
      ...Array.from({ length: 10 }, () =>
        world.store.renew(
          'gwy_a',
          allotments.map(({ allotmentId }) => ({ allotmentId, reserved: 100n, unapplied: 30n })),
          20_000,
        ),
      ),
    ]);
    // Each user has two allotments, each charged 3 credits in each of ten rounds.
    for (const userId of users) expect(await world.account(userId)).toMatchObject({ posted: 9_940n });
    expect(await world.mismatches()).toEqual([]);
  });
});

describe('the history', () => {
  test('lists each call of a batch, the newest first', async () => {
    const userId = await world.user(100n);
    const ids = Array.from({ length: 5 }, () => id('use'));
    const lines = ids.map((usageId, index) => ({ usageId, call: callOf(userId), credits: BigInt(index) }));
    await world.charge(lines.slice(0, 3));
    await world.charge(lines.slice(3));
    const changes = await world.credits.listChanges(userId, { before: null, limit: 10 });
    expect(changes.map(({ kind, ref, credits }) => [kind, ref, credits])).toEqual([
      ['charge', ids[4], -4n],
      ['charge', ids[3], -3n],
      ['charge', ids[2], -2n],
      ['charge', ids[1], -1n],
      ['grant', changes[4]?.ref, 100n],
    ]);
  });

  test('pages within a batch', async () => {
    const userId = await world.user(100n);
    await world.charge([{ call: callOf(userId) }, { call: callOf(userId) }]);
    const changes = await world.credits.listChanges(userId, { before: null, limit: 10 });
    expect(changes).toHaveLength(3);
    let before: [string, string] | null = null;
    for (const change of changes) {
      const [next] = await world.credits.listChanges(userId, { before, limit: 1 });
      expect(next).toEqual(change);
      before = [String(change.txId), change.line];
    }
    expect(await world.credits.listChanges(userId, { before, limit: 1 })).toEqual([]);
  });

  test('has one line for a batch whose usage is past its retention', async () => {
    const userId = await world.user(100n);
    await world.charge([{ call: callOf(userId) }, { call: callOf(userId) }]);
    await world.sql`delete from gateway.usage_records`;
    const changes = await world.credits.listChanges(userId, { before: null, limit: 10 });
    expect(changes.map(({ ref, credits, reason }) => [ref, credits, reason])).toEqual([
      ['gwy_a:1-2', -2n, '2 calls'],
      [changes[1]?.ref, 100n, 'for a test'],
    ]);
  });
});

describe('verify', () => {
  let userId: string;
  let tokenId: string;
  let allotmentId: string;
  beforeEach(async () => {
    userId = await world.user(100n);
    tokenId = await world.key(userId, 90n);
    ({ allotmentId } = await world.allot(userId, 60n, { tokenId }));
    const call = callOf(userId, { tokenId });
    await world.charge([
      { usageId: 'use_a', call, allotmentId, credits: 7n },
      { usageId: 'use_b', call, allotmentId, credits: 5n },
    ]);
    await world.store.recall({ ticket: 't1', gatewayId: 'gwy_b', userId, tokenId, need: 70n });
  });

  test('agrees with allotments, batches and journals', async () => {
    expect(await world.mismatches()).toEqual([]);
  });

  test.each([
    [
      'a changed amount of an allotment',
      'update gateway.credits_allotments set amount = 40',
      ['held_not_as_holds $USER', 'key_held_not_as_holds $KEY'],
    ],
    [
      'a missing allotment',
      'delete from gateway.credits_allotments',
      ['held_not_as_holds $USER', 'key_held_not_as_holds $KEY'],
    ],
    [
      'an allotment of an unknown account',
      `update gateway.credits_allotments set account_id = 'usr_x'`,
      [
        'allotment_of_another_account $ALLOTMENT',
        'allotment_without_account $ALLOTMENT',
        'held_not_as_holds $USER',
      ],
    ],
    [
      'counts above the amount of an allotment',
      `alter table gateway.credits_allotments drop constraint credits_allotment_covers_reports;
        update gateway.credits_allotments set reserved = 99`,
      ['allotment_not_covering $ALLOTMENT'],
    ],
    [
      'credits of an ended allotment',
      `alter table gateway.credits_allotments drop constraint credits_ended_allotment_is_empty;
        update gateway.credits_allotments set ended_at = now()`,
      ['ended_allotment_not_empty $ALLOTMENT', 'held_not_as_holds $USER', 'key_held_not_as_holds $KEY'],
    ],
    [
      'usage that a batch did not charge',
      `update gateway.usage_records set credits = 6 where usage_id = 'use_a'`,
      ['batch_not_as_usage gwy_a:1-2'],
    ],
    [
      'missing usage of a batch',
      `delete from gateway.usage_records where usage_id = 'use_a'`,
      ['batch_not_as_usage gwy_a:1-2'],
    ],
    [
      'usage of another transaction',
      `update gateway.usage_records set tx_id = 0 where usage_id = 'use_a'`,
      ['batch_not_as_usage gwy_a:1-2', 'charge_missing use_a'],
    ],
    [
      'a journal that was set back',
      'update gateway.credits_journals set applied_seq = 1',
      ['journal_behind_batch gwy_a:1-2'],
    ],
    ['a missing journal', 'delete from gateway.credits_journals', ['journal_behind_batch gwy_a:1-2']],
    [
      'a journal that no batch has raised',
      `insert into gateway.credits_journals (journal_id, generation, applied_seq)
        values ('gwy_x', gen_random_uuid(), 5)`,
      ['journal_never_applied gwy_x'],
    ],
    [
      'a ledger without a generation',
      'delete from gateway.credits_ledger',
      ['generation_missing credits_ledger'],
    ],
    [
      'a ticket of a missing account',
      `update gateway.credits_recalls set account_id = 'usr_x'`,
      ['recall_without_account t1'],
    ],
  ])('finds %s', async (_, statement, mismatches) => {
    const fillIn = (text: string) =>
      text.replace('$USER', userId).replace('$KEY', tokenId).replace('$ALLOTMENT', allotmentId);
    await force(world.sql, statement);
    try {
      expect(await world.mismatches()).toEqual(mismatches.map(fillIn).sort());
    } finally {
      if (statement.startsWith('alter')) await world.sql.unsafe(restoreConstraints);
      else if (statement.includes('credits_ledger'))
        await world.sql`insert into gateway.credits_ledger default values`;
    }
  });
});

// The next test uses the same database with the embedded engine.
const restoreConstraints = `
  update gateway.credits_allotments set amount = 0, reserved = 0;
  alter table gateway.credits_allotments drop constraint if exists credits_allotment_covers_reports;
  alter table gateway.credits_allotments drop constraint if exists credits_ended_allotment_is_empty;
  alter table gateway.credits_allotments
    add constraint credits_allotment_covers_reports check (reserved + unapplied <= amount),
    add constraint credits_ended_allotment_is_empty check (ended_at is null or amount = 0)`;

describe('dropOld', () => {
  test('deletes only allotments that ended before their retention', async () => {
    const userId = await world.user(100n);
    const { allotmentId } = await world.allot(userId, 10n);
    const openAllotment = await world.allot(userId, 10n);
    await world.store.giveBack([{ allotmentId, version: 1, amount: 0n, end: true }]);
    expect(await world.store.dropOld(2, 100)).toBe(0);
    await world.advance(3 * 86_400_000);
    expect(await world.store.dropOld(2, 100)).toBe(1);
    expect(await world.store.read([openAllotment.allotmentId])).toHaveLength(1);
  });
});
