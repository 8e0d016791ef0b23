// Usage reports of a user and of an administrator, and the deletion of old records.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { usage, usageStore } from '../../../src/gateway/usage/index.ts';
import { nextTurn } from '../../../src/kernel/async.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { id } from '../../../src/kernel/ids.ts';
import { silentLog } from '../../support/databases.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { insertRecord, sampleTokenId, type SampleRecord } from './records.ts';

let world: GatewayWorld;
let userId: string;
const otherUserId = id('usr');
const march = { from: '2026-03-01T00:00:00Z', to: '2026-04-01T00:00:00Z' };

/** Inserts a record, of the user `userId` unless `members` names another. */
const record = (members: Partial<SampleRecord> & { outcome?: string } = {}) => {
  const { outcome = 'completed', ...others } = members;
  return insertRecord(world.sql, {
    userId,
    facts: {
      units: { image: 2, videoSecond: 1.5 },
      outcome,
      failureCode: 'upstream_timeout',
      attempts: 3,
    },
    ...others,
  });
};

beforeAll(async () => {
  world = await startGateway({ withAdmin: true });
  userId = (await world.user.credits.getBalance()).user_id;
  await record({ at: '2026-03-10T23:59:59.999Z', credits: 1 });
  await record({ at: '2026-03-11T00:00:00Z', credits: 2, model: 'acme/deep' });
  await record({ at: '2026-03-11T10:00:00Z', credits: 4, outcome: 'client_closed' });
  await record({ at: '2026-04-01T00:00:00Z', credits: 8 });
  await record({ at: '2026-03-12T10:00:00Z', credits: 16, userId: otherUserId, bureauId: 'shop' });
  await record({ at: '2026-03-12T11:00:00Z', credits: 0, userId: null, bureauId: null, model: null });
});
afterAll(() => world?.close());

describe('usage.getUsage', () => {
  test('totals the caller’s calls by day, excluding the end of the range', async () => {
    const { total, items, group_by, from, to } = await world.user.usage.getUsage(march);
    expect({ group_by, from, to }).toEqual({
      group_by: 'day',
      from: '2026-03-01T00:00:00.000Z',
      to: '2026-04-01T00:00:00.000Z',
    });
    expect(total).toEqual({
      calls: 3,
      credits: 7,
      tokens: { input: 15, cached_input: 3, cache_write: 6, output: 9, reasoning: 12 },
    });
    expect(items.map(({ group, calls, credits }) => [group, calls, credits])).toEqual([
      ['2026-03-10', 1, 1],
      ['2026-03-11', 2, 6],
    ]);
  });

  test('groups by model, the most expensive first', async () => {
    const { items } = await world.user.usage.getUsage({ ...march, group_by: 'model' });
    expect(items.map(({ group, credits }) => [group, credits])).toEqual([
      ['acme/fast', 5],
      ['acme/deep', 2],
    ]);
  });

  test('covers the last thirty days by default', async () => {
    const { from, to, items, total } = await world.user.usage.getUsage();
    expect(Date.parse(to) - Date.parse(from)).toBe(30 * 86_400_000);
    expect([items, total.calls]).toEqual([[], 0]);
  });

  test.each([
    [{ from: march.to, to: march.from }, 'from'],
    [{ from: 'yesterday' }, 'from'],
    [{ to: '2026-12-31T23:59:60Z' }, 'to'],
    [{ from: '0000-01-01T00:00:00Z' }, 'from'],
    [{ to: '9999-12-31T23:00:00-14:00' }, 'to'],
    [{ group_by: 'hour' as never }, 'group_by'],
  ])('refuses %j', async (query, param) => {
    await expect(world.user.usage.getUsage(query)).rejects.toMatchObject({ status: 400, param });
  });

  test('refuses callers other than users', async () => {
    await expect(world.admin.usage.getUsage()).rejects.toMatchObject({ status: 403 });
  });
});

describe('usage.listRecords', () => {
  test('shows a user only its own calls', async () => {
    const { items } = await world.user.usage.listRecords({ user_id: otherUserId, bureau_id: 'shop' });
    expect(items.map(({ credits }) => credits)).toEqual([8, 4, 2, 1]);
    expect(items[1]).toMatchObject({
      user_id: userId,
      bureau_id: 'local',
      token_id: sampleTokenId,
      action: 'text',
      model: 'acme/fast',
      provider: 'acme',
      tokens: { input: 5, cached_input: 1, cache_write: 2, output: 3, reasoning: 4 },
      units: { image: 2, video_second: 1.5 },
      credits: 4,
      outcome: 'client_closed',
      failure_code: 'upstream_timeout',
      attempts: 3,
      estimated: false,
      ttft_ms: 7,
      duration_ms: 70,
      created_at: '2026-03-11T10:00:00.000Z',
    });
  });

  test('applies an administrator’s filters', async () => {
    const credits = async (query: object) =>
      (await world.admin.usage.listRecords({ ...march, ...query })).items.map((item) => item.credits);
    expect(await credits({})).toEqual([0, 16, 4, 2, 1]);
    expect(await credits({ user_id: otherUserId })).toEqual([16]);
    expect(await credits({ bureau_id: 'local' })).toEqual([4, 2, 1]);
    expect(await credits({ model: 'acme/deep' })).toEqual([2]);
  });

  test('finds a call by its request id', async () => {
    const requestId = id('req');
    await record({ requestId, credits: 3, at: '2026-05-01T00:00:00Z' });
    for (const client of [world.admin, world.user])
      expect((await client.usage.listRecords({ request_id: requestId })).items).toMatchObject([
        { request_id: requestId, credits: 3 },
      ]);
  });

  test('pages without gaps through records of the same instant', async () => {
    const insertedIds: string[] = [];
    for (let count = 0; count < 7; count += 1)
      insertedIds.push(
        await record({ userId: otherUserId, bureauId: 'paged', at: '2026-06-01T00:00:00.123456Z' }),
      );
    const listedIds: string[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof world.admin.usage.listRecords>> =
        await world.admin.usage.listRecords({
          bureau_id: 'paged',
          limit: 3,
          ...(cursor === null ? {} : { cursor }),
        });
      listedIds.push(...page.items.map(({ usage_id }) => usage_id));
      cursor = page.next_cursor;
    } while (cursor !== null);
    expect(listedIds).toEqual(insertedIds.toSorted().toReversed());
  });

  test.each([
    'nonsense',
    Buffer.from('["2026-02-31T00:00:00.000000Z","use_x"]').toString('base64url'),
    Buffer.from('["0000-01-01T00:00:00.000000Z","use_x"]').toString('base64url'),
    Buffer.from('["x"]').toString('base64url'),
  ])('refuses the cursor %s', async (cursor) => {
    await expect(world.user.usage.listRecords({ cursor })).rejects.toMatchObject({
      status: 400,
      param: 'cursor',
    });
  });
});

describe('usage.getOverview', () => {
  test('totals all calls and groups them in four ways', async () => {
    const overview = await world.admin.usage.getOverview(march);
    expect(overview).toMatchObject({ users: 2, total: { calls: 5, credits: 23 } });
    const pairs = (groups: { group: string | null; credits: number }[]) =>
      groups.map(({ group, credits }) => [group, credits]);
    expect(pairs(overview.by_day)).toEqual([
      ['2026-03-10', 1],
      ['2026-03-11', 6],
      ['2026-03-12', 16],
    ]);
    expect(pairs(overview.by_model)).toEqual([
      ['acme/fast', 21],
      ['acme/deep', 2],
      [null, 0],
    ]);
    expect(pairs(overview.by_bureau)).toEqual([
      ['shop', 16],
      ['local', 7],
      [null, 0],
    ]);
    expect(pairs(overview.by_outcome)).toEqual([
      ['completed', 19],
      ['client_closed', 4],
    ]);
    expect((await world.admin.usage.getOverview({ ...march, bureau_id: 'shop' })).total).toMatchObject({
      calls: 1,
      credits: 16,
    });
  });

  test('refuses callers other than administrators', async () => {
    await expect(world.user.usage.getOverview()).rejects.toMatchObject({ status: 403 });
  });
});

test('records past their retention are deleted in batches', async () => {
  const store = usageStore(world.database);
  for (let count = 0; count < 5; count += 1) await record({ userId: 'usr_old', at: '2020-01-01T00:00:00Z' });
  const [{ days } = { days: 0 }] = await world.sql<{ days: number }[]>`
    select (gateway.townhall_now()::date - '2020-06-01'::date) as days`;
  expect([
    await store.deleteOld(days, 3),
    await store.deleteOld(days, 3),
    await store.deleteOld(days, 3),
  ]).toEqual([3, 2, 0]);
  expect((await world.admin.usage.listRecords({ user_id: userId })).items.length).toBeGreaterThan(3);
});

test('close does not wait until all old records are deleted', async () => {
  let batches = 0;
  const service = usage({
    // A table with so many old records that their deletion does not end.
    store: {
      ...usageStore(world.database),
      async deleteOld(_days, limit) {
        await nextTurn();
        batches += 1;
        return limit;
      },
    },
    log: silentLog,
    clock: { ...systemClock, sleep: nextTurn },
    retentionDays: 1,
    reportCharges: async () => {},
  });
  service.start();
  await expect.poll(() => batches).toBeGreaterThan(1);
  await service.close();
});
