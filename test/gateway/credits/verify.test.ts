// `verify`: a ledger in use is consistent, and rows that a test alters in the database are found by
// the function, by the hourly round and by the command.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runInProcess } from '../../cli/in-process.ts';
import type { Credits } from '../../../src/gateway/credits/index.ts';
import { callOf, facts, force, startLedger, stillTimes, type LedgerWorld } from './world.ts';
import { databaseEnv } from '../../support/databases.ts';

let world: LedgerWorld;
let credits: Credits;
let userId: string;
let holdId: string;
beforeEach(async () => {
  world = await startLedger();
  credits = world.replica();
  userId = await world.user(1_000n);
  await world.place.database.tx((tx) => credits.openKey(tx, { tokenId: 'tok_key', userId, cap: 900n }));
  const holds = await Promise.all(
    Array.from({ length: 5 }, () => credits.ledger.hold(callOf(userId, { tokenId: 'tok_key' }), 100n)),
  );
  await Promise.all(holds.slice(0, 3).map((hold) => hold.settle(60n, facts())));
  holdId = holds[0]?.holdId ?? '';
});
afterEach(() => world.close());

const verifyRows = async () =>
  (await credits.verify()).faults.map(({ fault, row }) => `${fault} ${row}`).sort();
const forceStatement = (statement: string) =>
  force(world.sql, statement.replaceAll('$USER', userId).replaceAll('$HOLD', holdId));
const charge = `(select tx_id from gateway.credits_txs where kind = 'charge' and ref = '$HOLD')`;

describe('verify', () => {
  // One grant and three charges make four transactions; two of the five holds are open.
  test('counts the rows of a consistent ledger with open holds', async () => {
    expect(await credits.verify()).toEqual({
      ok: true,
      transactions: 4,
      accounts: 1,
      keys: 1,
      holds: 5,
      allotments: 0,
      journals: 0,
      usage: 3,
      faults: [],
    });
  });

  test('reads more rows than fit into a chunk of 1,000', async () => {
    const userIds = await Promise.all(Array.from({ length: 20 }, () => world.user(100n)));
    await Promise.all(
      Array.from({ length: 1_300 }, async (_, index) =>
        (await credits.ledger.hold(callOf(userIds[index % 20] as string), 1n)).settle(1n, facts()),
      ),
    );
    expect(await credits.verify()).toMatchObject({
      ok: true,
      holds: 1_305,
      usage: 1_303,
      transactions: 4 + userIds.length + 1_300,
    });
  });

  test.each([
    [
      'changed posted credits of an account',
      `update gateway.credits_accounts set posted = posted + 1 where account_id = '$USER'`,
      ['posted_not_as_entries $USER'],
    ],
    [
      'changed held credits of an account',
      `update gateway.credits_accounts set held = held + 1 where account_id = '$USER'`,
      ['held_not_as_holds $USER'],
    ],
    [
      'changed held credits of a key',
      `update gateway.credits_keys set held = held - 1`,
      ['key_held_not_as_holds tok_key'],
    ],
    [
      'a changed amount of an open hold',
      `update gateway.credits_holds set amount = 50
        where hold_id = (select max(hold_id) from gateway.credits_holds where state = 'held')`,
      ['held_not_as_holds $USER', 'key_held_not_as_holds tok_key'],
    ],
    [
      'one changed entry of a transaction',
      `update gateway.credits_entries set amount = -61 where account_id = '$USER' and tx_id = ${charge}`,
      [
        'charge_not_as_held $HOLD',
        'hold_not_as_charge $HOLD',
        'posted_not_as_entries $USER',
        'tx_not_balanced charge $HOLD',
      ],
    ],
    [
      'two changed entries of a transaction',
      `update gateway.credits_entries set amount = amount / 2 where tx_id = ${charge}`,
      ['charge_not_as_held $HOLD', 'hold_not_as_charge $HOLD', 'posted_not_as_entries $USER'],
    ],
    [
      'a changed charge of a hold',
      `update gateway.credits_holds set charged = 1 where hold_id = '$HOLD'`,
      ['charge_not_as_held $HOLD', 'hold_not_as_charge $HOLD', 'usage_not_as_charge $USE'],
    ],
    [
      'changed credits of a usage record',
      `update gateway.usage_records set credits = 0 where usage_id = '$USE'`,
      ['usage_not_as_charge $USE'],
    ],
    [
      'a missing usage record',
      `delete from gateway.usage_records where usage_id = '$USE'`,
      ['usage_missing $USE'],
    ],
    ['a missing hold', `delete from gateway.credits_holds where hold_id = '$HOLD'`, ['hold_missing $HOLD']],
    [
      'a missing transaction with its entries',
      `delete from gateway.credits_entries where tx_id = ${charge};
        delete from gateway.credits_txs where kind = 'charge' and ref = '$HOLD'`,
      ['charge_missing $USE', 'hold_not_as_charge $HOLD', 'posted_not_as_entries $USER'],
    ],
    [
      'a usage record that was never charged',
      `insert into gateway.usage_records
        select 'use_forged', request_id, user_id, bureau_id, token_id, action, model, provider,
          0, 0, 0, 0, 0, '{}', 5, outcome, false, null, 0
        from gateway.usage_records limit 1`,
      ['charge_missing use_forged'],
    ],
  ])('finds %s', async (_, statement, rows) => {
    const fillIn = (text: string) =>
      text
        .replaceAll('$USER', userId)
        .replaceAll('$HOLD', holdId)
        .replaceAll('$USE', holdId.replace('hld_', 'use_'));
    await forceStatement(fillIn(statement));
    expect(await verifyRows()).toEqual(rows.map(fillIn).sort());
  });

  test('accepts rows that retention has dropped', async () => {
    await world.sql`
      update gateway.credits_holds set resolved_at = resolved_at - interval '401 days'
      where state <> 'held'`;
    await world.sql`update gateway.usage_records set created_at = created_at - interval '401 days'`;
    await force(world.sql, `update gateway.credits_txs set created_at = created_at - interval '401 days'`);
    await world.replica({ times: { ...stillTimes, verifyEveryMs: 50 } }).start();
    await world.sql`delete from gateway.usage_records`;
    const countResolved = async () =>
      (await world.sql`select 1 from gateway.credits_holds where state <> 'held'`).length;
    await expect.poll(countResolved).toBe(0);
    expect(await credits.verify()).toMatchObject({ ok: true, holds: 2, usage: 0 });
  });

  test('logs an error from the hourly round', async () => {
    await forceStatement(`update gateway.credits_accounts set posted = posted + 1`);
    await world.replica({ times: { ...stillTimes, verifyEveryMs: 50 } }).start();
    const isAlarmed = () =>
      world.logLines.some(
        (line) =>
          line.includes('the ledger is not consistent') &&
          line.includes(userId) &&
          line.includes('"level":"error"'),
      );
    await expect.poll(isAlarmed).toBe(true);
  });
});

describe('townhall ledger verify', () => {
  async function run(...args: string[]): Promise<{ code: number; output: string[]; errors: string[] }> {
    const { options } = world.place;
    // The embedded engine has one process; the command can open the folder once it is closed here.
    if ('path' in options) await world.place.database.close();
    const env = databaseEnv(options);
    return runInProcess(['ledger', 'verify', ...args], env);
  }

  test('exits with 0 for a consistent ledger', async () => {
    expect(await run()).toEqual({
      code: 0,
      output: [
        'The ledger is consistent: 4 transactions, 1 accounts, 5 holds, 0 allotments, 3 usage records.',
      ],
      errors: [],
    });
  });

  test('exits with 1 and names an altered row', async () => {
    await forceStatement(`update gateway.credits_accounts set posted = posted + 7`);
    const { code, errors } = await run();
    expect(code).toBe(1);
    expect(errors[1]).toBe(`Account ${userId} has 827 posted, but its entries add up to 820.`);
  });

  test('prints the same as JSON', async () => {
    await forceStatement(`update gateway.credits_accounts set posted = posted + 7`);
    const { code, output } = await run('--json');
    expect(code).toBe(1);
    expect(JSON.parse(output[0] ?? '')).toMatchObject({
      ok: false,
      faults: [{ fault: 'posted_not_as_entries', row: userId, expected: '820', found: '827' }],
    });
  });
});
