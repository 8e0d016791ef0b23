// The audit log: an entry is written in the transaction of its change and appended to the chain shortly
// afterwards; verification finds every manipulation.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { audit, auditStore, type Audit, type AuditEntry } from '../../../src/gateway/audit/index.ts';
import {
  batchHash,
  appendPending,
  deleteOldDays,
  entryDigest,
  genesisHash,
} from '../../../src/gateway/audit/chain.ts';
import { verifyChain } from '../../../src/gateway/audit/verify.ts';
import { systemOrigin } from '../../../src/gateway/identity.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog, testDatabase, type TestDatabase } from '../../support/databases.ts';

let place: TestDatabase;
let log: Audit;
const entry = (number: number): AuditEntry => ({
  ...systemOrigin,
  action: 'bureaus.pauseBureau',
  target: { kind: 'bureau', id: `b${number}` },
  outcome: 'ok',
  diff: { state: { from: 'active', to: 'paused' }, number },
});
const sql = () => place.database.sql;
const store = () => auditStore(place.database);

async function write(start: number, end: number): Promise<void> {
  for (let number = start; number <= end; number += 1) await log.note(entry(number));
  await appendPending(store(), silentLog);
}

/** Runs a statement while the protecting triggers are off, which only the owner of the tables can do. */
async function force(statement: string): Promise<void> {
  const tables = ['audit_entries', 'audit_batches', 'audit_links'];
  for (const table of tables) await sql().unsafe(`alter table gateway.${table} disable trigger user`);
  try {
    await sql().unsafe(statement);
  } finally {
    for (const table of tables) await sql().unsafe(`alter table gateway.${table} enable trigger user`);
  }
}

/** The statements that delete a batch with its entries. */
const deleteBatch = (batch: number, targetIds: readonly string[]): string => `
  delete from gateway.audit_links where batch = ${batch};
  delete from gateway.audit_entries
    where target_id in (${targetIds.map((target) => `'${target}'`).join(', ')});
  delete from gateway.audit_batches where batch = ${batch}`;

beforeEach(async () => {
  place = await testDatabase();
  log = audit({ store: store(), log: silentLog, clock: systemClock });
});
afterEach(() => place.close());

describe('an entry', () => {
  test('commits or rolls back with its change', async () => {
    await place.database.tx((tx) => log.record(tx, entry(1)));
    await expect(
      place.database.tx(async (tx) => {
        await log.record(tx, entry(2));
        throw new Error('undone');
      }),
    ).rejects.toThrow('undone');
    expect(await sql()`select target_id as id, diff from gateway.audit_entries`).toEqual([
      { id: 'b1', diff: { state: { from: 'active', to: 'paused' }, number: 1 } },
    ]);
  });

  test('is as immutable as the chain', async () => {
    await write(1, 3);
    for (const statement of [
      `update gateway.audit_entries set outcome = 'failed'`,
      `delete from gateway.audit_entries`,
      `truncate gateway.audit_entries cascade`,
      `update gateway.audit_batches set hash = previous`,
      `delete from gateway.audit_batches`,
      `update gateway.audit_links set position = position + 1`,
      `delete from gateway.audit_links`,
      `truncate gateway.audit_links`,
    ]) {
      await expect(sql().unsafe(statement), statement).rejects.toMatchObject({ code: '42501' });
    }
    expect(await log.verify()).toMatchObject({ ok: true, entries: 3 });
  });
});

describe('the chain', () => {
  test('contains each entry once when replicas append concurrently', async () => {
    const replicas = Array.from({ length: 3 }, () =>
      audit({ store: store(), log: silentLog, clock: systemClock, chainEveryMs: 5 }),
    );
    for (const replica of replicas) replica.start();
    await Promise.all(
      Array.from({ length: 60 }, (_, index) => (replicas[index % 3] as Audit).note(entry(index))),
    );
    for (const replica of replicas) await replica.close();
    const verdict = await log.verify();
    expect(verdict).toMatchObject({ ok: true, entries: 60, pending: 0, faults: [] });
    expect(verdict.batches).toBeGreaterThan(0);
  });

  test('counts pending entries', async () => {
    await write(1, 2);
    await log.note(entry(3));
    expect(await log.verify()).toMatchObject({ ok: true, entries: 2, pending: 1 });
  });

  test('is valid when empty', async () => {
    expect(await log.verify()).toEqual({
      ok: true,
      batches: 0,
      entries: 0,
      pending: 0,
      head: null,
      faults: [],
    });
  });
});

describe('verify', () => {
  const findFaults = async (head?: string) => (await log.verify(head)).faults.map(({ fault }) => fault);
  beforeEach(async () => {
    await write(1, 3);
    await write(4, 6);
    await write(7, 9);
  });

  test.each([
    [
      'a changed actor',
      `update gateway.audit_entries set actor_id = 'nobody' where target_id = 'b5'`,
      ['entry_altered'],
    ],
    [
      'a time changed by a microsecond',
      `update gateway.audit_entries set at = at + interval '1 microsecond' where target_id = 'b5'`,
      ['entry_altered'],
    ],
    [
      'a changed diff',
      `update gateway.audit_entries set diff = '{}' where target_id = 'b1'`,
      ['entry_altered'],
    ],
    ['a deleted entry', `delete from gateway.audit_entries where target_id = 'b9'`, ['entry_missing']],
    [
      'an entry deleted with its link',
      `with gone as (delete from gateway.audit_entries where target_id = 'b5' returning entry_id)
        delete from gateway.audit_links using gone where audit_links.entry_id = gone.entry_id`,
      ['batch_altered'],
    ],
    [
      'an inserted entry',
      `insert into gateway.audit_entries (entry_id, actor_kind, action, outcome)
        values ('log_forged', 'system', 'x', 'ok')`,
      ['entry_not_chained'],
    ],
    ['a deleted batch', deleteBatch(2, ['b4', 'b5', 'b6']), ['batch_missing']],
    ['a deleted first batch', deleteBatch(1, ['b1', 'b2', 'b3']), ['batch_missing']],
    [
      'a moved link',
      `update gateway.audit_links set position = position + 10 where batch = 2 and position = 1`,
      ['batch_altered'],
    ],
  ])('finds %s', async (_name, statement, mismatches) => {
    expect(await findFaults()).toEqual([]);
    await force(statement);
    expect(await findFaults()).toEqual(mismatches);
  });

  test('detects an entry altered together with its digest', async () => {
    await force(`update gateway.audit_entries set actor_id = 'nobody' where target_id = 'b5'`);
    await force(
      `update gateway.audit_links set digest = sha256('forged')
      where entry_id = (select entry_id from gateway.audit_entries where target_id = 'b5')`,
    );
    expect(await findFaults()).toEqual(['entry_altered', 'batch_altered']);
  });

  test('detects a forged batch by the hash of the next batch', async () => {
    await force(`update gateway.audit_entries set outcome = 'failed' where target_id = 'b1'`);
    const digests = (await store().listLinkedEntries(1n)).map(({ entry: text }) => entryDigest(text ?? []));
    const hash = batchHash(genesisHash, digests).toString('hex');
    await force(
      `update gateway.audit_links set digest = '\\x${digests[0]?.toString('hex')}'
        where batch = 1 and position = 1;
      update gateway.audit_batches set hash = '\\x${hash}' where batch = 1;
      update gateway.audit_batches set previous = '\\x${hash}' where batch = 2`,
    );
    expect((await log.verify()).faults).toEqual([{ fault: 'batch_altered', batch: '2', entryId: null }]);
  });

  test('detects a truncated chain by an earlier head', async () => {
    const { head } = await log.verify();
    await force(deleteBatch(3, ['b7', 'b8', 'b9']));
    expect(await findFaults()).toEqual([]);
    expect(await findFaults(head ?? '')).toEqual(['head_missing']);
    await write(10, 11);
    expect(await findFaults(head ?? '')).toEqual(['head_missing']);
  });
});

describe('deleteOldDays', () => {
  const age = (batch: number, days: number) =>
    force(`update gateway.audit_batches set day = day - ${days} where batch = ${batch}`);

  test('leaves a valid chain', async () => {
    await write(1, 3);
    await write(4, 5);
    await write(6, 7);
    await age(1, 402);
    await age(2, 401);
    await deleteOldDays(store(), 400, silentLog);
    await appendPending(store(), silentLog);
    expect(await log.verify()).toMatchObject({ ok: true, faults: [] });
    const remainingRows = await sql()`
      select coalesce(diff ->> 'number', action) as id from gateway.audit_entries order by entry_id`;
    expect(remainingRows).toEqual([{ id: '6' }, { id: '7' }, { id: 'audit.dropDays' }]);
    await deleteOldDays(store(), 400, silentLog);
    expect(await log.verify()).toMatchObject({ ok: true, entries: 3 });
  });

  test('does not make a concurrent verification fail', async () => {
    await write(1, 3);
    await write(4, 5);
    await age(1, 402);
    let hasDeleted = false;
    const verdict = await verifyChain({
      ...store(),
      async listLinkedEntries(batch) {
        if (!hasDeleted) await deleteOldDays(store(), 400, silentLog);
        hasDeleted = true;
        return store().listLinkedEntries(batch);
      },
    });
    expect(verdict).toMatchObject({ ok: true, batches: 1, entries: 2, faults: [] });
  });

  test('keeps the last batch at any age', async () => {
    await write(1, 2);
    await age(1, 500);
    await deleteOldDays(store(), 400, silentLog);
    expect(await log.verify()).toMatchObject({ ok: true, entries: 2 });
  });
});
