// Two gateways on one PostgreSQL database: each uses the values that the other stores.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testDatabase, type TestDatabase } from '../../support/databases.ts';
import { waitForBlockedStatement } from '../../support/locks.ts';
import { modelIds, startEnvWorld, type EnvWorld } from './world.ts';
import { until } from '../../support/until.ts';

describe('two gateways on one database', () => {
  let place: TestDatabase;
  let firstWorld: EnvWorld;
  let otherWorld: EnvWorld;
  beforeAll(async () => {
    place = await testDatabase();
    firstWorld = await startEnvWorld({ place });
    otherWorld = await startEnvWorld({ place });
  });
  afterAll(async () => {
    await otherWorld?.close();
    await firstWorld?.close();
    await place?.close();
  });
  /** The values in the audit log before and after each change of the variable. */
  async function listDiffs(key: string) {
    const entries = await firstWorld.sql<{ diff: { before: string | null; after: string | null } }[]>`
      select diff from gateway.audit_entries where target_id = ${key} order by entry_id`;
    return entries.map(({ diff }) => diff);
  }
  const hasModel = async (world: EnvWorld) => (await modelIds(world)).includes('acme/fast');

  test('a change through either gateway reaches the other', async () => {
    const delaysMs: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      await firstWorld.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: `CANARY-round-${round}` });
      delaysMs.push(await until(() => hasModel(otherWorld), 'the other gateway has the model'));
      await otherWorld.user.ai.generateText({ model: 'acme/fast', prompt: 'x' });
      expect(otherWorld.keysSent().at(-1)).toBe(`CANARY-round-${round}`);
      await otherWorld.admin.env.removeVariable({ key: 'ACME_API_KEY' });
      delaysMs.push(
        await until(async () => !(await hasModel(firstWorld)), 'the first gateway no longer has the model'),
      );
    }
    // A change is promised to arrive within a second. On a busy machine, some of the ten changes take longer,
    // so the fifth fastest counts, with two seconds.
    expect(delaysMs.toSorted((a, b) => a - b)[4]).toBeLessThan(2_000);
  });

  test('a running call completes after the removal of its key', async () => {
    await firstWorld.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: 'CANARY-running-call' });
    await until(() => hasModel(otherWorld), 'the other gateway has the model');
    const callCount = otherWorld.provider.calls.length;
    const call = otherWorld.user.ai.generateText({ model: 'acme/fast', prompt: 'x' });
    await otherWorld.provider.until((calls) => calls.length > callCount);
    await firstWorld.admin.env.removeVariable({ key: 'ACME_API_KEY' });
    await expect(call).resolves.toMatchObject({ role: 'assistant' });
    await until(async () => !(await hasModel(otherWorld)), 'the model is gone');
  });

  test('a write names the value of the other gateway as the one before it', async () => {
    // The second write comes before the other gateway's poll for changes.
    await firstWorld.admin.env.upsertVariable({ key: 'SHARED', value: 'CANARY-first' });
    await otherWorld.admin.env.upsertVariable({ key: 'SHARED', value: 'CANARY-second' });
    await firstWorld.admin.env.removeVariable({ key: 'SHARED' });
    const [first, second, removal] = await listDiffs('SHARED');
    expect(first).toEqual({ before: null, after: expect.any(String) });
    expect(second).toEqual({ before: first?.after, after: expect.any(String) });
    expect(removal).toEqual({ before: second?.after, after: null });
  });

  test('only one of two first writes at once names no value before it', async () => {
    const write = (world: EnvWorld, value: string) => world.admin.env.upsertVariable({ key: 'NEW', value });
    const { writes } = await place.database.tx(async (tx) => {
      // Readers of the table pass this lock; both writes stop at the latest before they store their value.
      await tx`lock table gateway.env_variables in share mode`;
      const pendingWrites = Promise.all([write(firstWorld, 'CANARY-a'), write(otherWorld, 'CANARY-b')]);
      await waitForBlockedStatement(firstWorld.sql, 2);
      // Wrapped in an object: the transaction would await the promise, which needs its commit.
      return { writes: pendingWrites };
    });
    await writes;
    const [first, second] = await listDiffs('NEW');
    expect(first).toEqual({ before: null, after: expect.any(String) });
    expect(second).toEqual({ before: first?.after, after: expect.any(String) });
    await firstWorld.admin.env.removeVariable({ key: 'NEW' });
  });
});
