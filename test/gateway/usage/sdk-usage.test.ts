// Credits, the data of one call and the spending report, read with both versions of the AI SDK's
// gateway provider.
import { createGateway as createGateway3 } from 'ai-gateway3';
import { createGateway as createGateway4 } from 'ai-gateway4';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { id } from '../../../src/kernel/ids.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { insertRecord, type SampleRecord } from './records.ts';

const otherUserId = id('usr');
const requestId = id('req');
/** A request that no model ran. */
const modelessId = id('req');
/** A request of another user. */
const othersRequestId = id('req');

let world: GatewayWorld;
let userId: string;

const record = (members: Partial<SampleRecord>) =>
  insertRecord(world.sql, { userId, action: 'stream', ...members });

beforeAll(async () => {
  world = await startGateway({ withAdmin: true, env: { STARTING_CREDITS: '1234567' } });
  userId = (await world.user.credits.getBalance()).user_id;
  await record({ requestId, credits: 420 });
  await record({ at: '2026-03-10T23:59:59.999Z', credits: 30, model: 'beta/deep', provider: 'beta' });
  await record({ at: '2026-03-11T10:00:00Z', credits: 4 });
  await record({ requestId: modelessId, at: '2026-03-12T10:00:00Z', credits: 0, model: null });
  await record({ requestId: othersRequestId, at: '2026-03-12T10:00:00Z', userId: otherUserId, credits: 16 });
});
afterAll(() => world?.close());

const settings = (token = world.userToken) => ({ baseURL: `${world.url}/v1/ai`, apiKey: token });
const versions: [string, () => ReturnType<typeof createGateway4>][] = [
  ['@ai-sdk/gateway 4', () => createGateway4(settings())],
  ['@ai-sdk/gateway 3', () => createGateway3(settings()) as unknown as ReturnType<typeof createGateway4>],
];
const period = { start_date: '2026-03-10', end_date: '2026-03-12' };

describe.each(versions)('%s', (_name, gateway) => {
  test('shows the credits', async () => {
    expect(await gateway().getCredits()).toEqual({ balance: '1.234567', totalUsed: '0.000454' });
  });

  test('shows a call', async () => {
    expect(await gateway().getGenerationInfo({ id: requestId })).toMatchObject({
      id: requestId,
      totalCost: 0.00042,
      model: 'acme/fast',
      providerName: 'acme',
      streamed: true,
      latency: 7,
      generationTime: 70,
      promptTokens: 8,
      completionTokens: 7,
      reasoningTokens: 4,
      cachedTokens: 1,
      cacheCreationTokens: 2,
      finishReason: 'completed',
    });
  });

  test('reports spending by day', async () => {
    const { results } = await gateway().getSpendReport({ startDate: '2026-03-10', endDate: '2026-03-12' });
    expect(results).toMatchObject([
      { day: '2026-03-10', totalCost: 0.00045, requestCount: 2, inputTokens: 16, outputTokens: 14 },
      { day: '2026-03-11', totalCost: 0.000004, requestCount: 1 },
      { day: '2026-03-12', totalCost: 0, requestCount: 1 },
    ]);
  });
});

describe('credits.getSdkCredits', () => {
  test('refuses callers other than users', async () => {
    await expect(world.guest.credits.getSdkCredits()).rejects.toMatchObject({ status: 401 });
    await expect(world.admin.credits.getSdkCredits()).rejects.toMatchObject({ status: 403 });
  });
});

describe('usage.getSdkGeneration', () => {
  test.each([
    ['an unknown request', id('req')],
    ['a call that no model ran', modelessId],
    ["another user's call", othersRequestId],
  ])('is 404 for %s', async (_name, unknownId) => {
    await expect(world.user.usage.getSdkGeneration({ id: unknownId })).rejects.toMatchObject({
      status: 404,
      code: 'generation_not_found',
      param: 'id',
    });
  });

  test('shows an administrator the calls of all users', async () => {
    const { data } = await world.admin.usage.getSdkGeneration({ id: othersRequestId });
    expect(data.total_cost).toBe(0.000016);
  });

  test('refuses an id in another format', async () => {
    await expect(world.user.usage.getSdkGeneration({ id: 'gen_1' })).rejects.toMatchObject({ status: 400 });
  });
});

describe('usage.getSdkReport', () => {
  const rows = async (query: object) =>
    (await world.user.usage.getSdkReport({ ...period, ...query })).results;

  test('groups by hour', async () => {
    const hours = await rows({ date_part: 'hour' });
    expect(hours.map(({ hour }) => hour)).toEqual([
      '2026-03-10T12:00:00Z',
      '2026-03-10T23:00:00Z',
      '2026-03-11T10:00:00Z',
      '2026-03-12T10:00:00Z',
    ]);
  });

  test.each([
    ['model', ['acme/fast', 'beta/deep', undefined]],
    ['provider', ['acme', 'beta', undefined]],
    ['credential_type', ['system']],
  ] as const)('groups by %s', async (group, names) => {
    expect((await rows({ group_by: group })).map((row) => row[group])).toEqual(names);
  });

  test('groups by user for an administrator', async () => {
    const { results } = await world.admin.usage.getSdkReport({ ...period, group_by: 'user' });
    expect(results.map(({ user, total_cost: cost }) => [user, cost])).toEqual([
      [userId, 0.000454],
      [otherUserId, 0.000016],
    ]);
  });

  test.each([
    [{ model: 'beta/deep' }, 1],
    [{ provider: 'acme' }, 2],
    [{ credential_type: 'byok' }, 0],
    [{ credential_type: 'system' }, 3],
    [{ user_id: otherUserId }, 0],
  ])('filters by %j', async (filter, days) => {
    expect(await rows(filter)).toHaveLength(days);
  });

  test.each([
    [{ start_date: '2026-02-30' }, 'start_date'],
    [{ start_date: '2026-03-13' }, 'end_date'],
    [{ start_date: '2025-01-01' }, 'end_date'],
    [{ start_date: '2026-02-01', date_part: 'hour' }, 'end_date'],
    [{ group_by: 'tag' }, 'group_by'],
  ])('refuses %j', async (query, param) => {
    await expect(rows(query)).rejects.toMatchObject({ status: 400, param });
  });

  test('refuses tags', async () => {
    const report = createGateway4(settings()).getSpendReport({
      startDate: '2026-03-10',
      endDate: '2026-03-12',
      tags: ['a'],
    });
    await expect(report).rejects.toMatchObject({ statusCode: 400 });
  });
});
