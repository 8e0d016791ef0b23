// After repeated reports of impossible usage, a user's paid calls are stopped for an hour.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { AlarmStore, StoredAlarm } from '../../../../src/gateway/ai/billing/alarm-store.ts';
import { createUsageAlarms, type UsageAlarms } from '../../../../src/gateway/ai/billing/usage-alarms.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { adminToken, errorOf, startAi, type World } from '../world.ts';

describe('repeated usage alarms', () => {
  const minuteMs = 60_000;
  let nowMs: number;
  let alarms: UsageAlarms;
  beforeEach(() => {
    nowMs = 0;
    alarms = createUsageAlarms({ clock: { monotonicMs: () => nowMs } });
  });
  function report(userId: string, ...minutes: number[]): void {
    for (const minute of minutes) {
      nowMs = minute * minuteMs;
      alarms.report(userId);
    }
  }

  test('stop a user after three within an hour', () => {
    report('usr_a', 0, 20);
    expect(() => alarms.requireFew('usr_a')).not.toThrow();
    report('usr_a', 40);
    expect(() => alarms.requireFew('usr_a')).toThrow(
      expect.objectContaining({
        code: 'paid_calls_stopped',
        status: 403,
        // The first alarm expires in 20 minutes.
        headers: { 'retry-after': '1200' },
      }),
    );
    expect(alarms.counts()).toEqual({ alarms: 3, stoppedUsers: 1 });
  });

  test('stop no other user', () => {
    report('usr_a', 0, 20, 40);
    expect(() => alarms.requireFew('usr_b')).not.toThrow();
  });

  test('are forgotten after an hour', () => {
    report('usr_a', 0, 20, 40);
    nowMs = 61 * minuteMs;
    expect(() => alarms.requireFew('usr_a')).not.toThrow();
    expect(alarms.counts()).toEqual({ alarms: 3, stoppedUsers: 0 });
  });

  test('are kept for a bounded number of users', () => {
    report('usr_first', 0, 0, 0);
    expect(() => alarms.requireFew('usr_first')).toThrow('stopped');
    for (let index = 0; index < 10_000; index += 1) report(`usr_${index}`, 0);
    expect(() => alarms.requireFew('usr_first')).not.toThrow();
  });
});

describe('usage alarms with a store', () => {
  function storeOf(alarms: StoredAlarm[]): AlarmStore {
    return {
      add: async (userId) => void alarms.push({ userId, ageMs: 0 }),
      list: async () => alarms,
      stopEnds: async () => new Map(),
      remove: async () => true,
    };
  }
  const clock = { monotonicMs: () => 10_000_000 };

  test('stop a user whose alarms another replica has stored', async () => {
    const alarms = createUsageAlarms({
      clock,
      store: storeOf([30, 20, 10].map((minutes) => ({ userId: 'usr_a', ageMs: minutes * 60_000 }))),
    });
    await alarms.refresh();
    expect(() => alarms.requireFew('usr_a')).toThrow(
      // The oldest alarm expires in 30 minutes.
      expect.objectContaining({ code: 'paid_calls_stopped', headers: { 'retry-after': '1800' } }),
    );
  });

  test('allow paid calls again once they are deleted', async () => {
    const storedAlarms: StoredAlarm[] = [];
    const alarms = createUsageAlarms({ clock, store: storeOf(storedAlarms) });
    for (let count = 0; count < 3; count += 1) alarms.report('usr_a');
    await alarms.untilSettled();
    expect(storedAlarms).toHaveLength(3);
    await alarms.refresh();
    expect(() => alarms.requireFew('usr_a')).toThrow('stopped');
    storedAlarms.length = 0;
    await alarms.refresh();
    expect(() => alarms.requireFew('usr_a')).not.toThrow();
  });

  test('are those of the later of two overlapping refreshes', async () => {
    const lists = [Promise.withResolvers<StoredAlarm[]>(), Promise.withResolvers<StoredAlarm[]>()];
    let reads = 0;
    const list = () => lists[reads++]?.promise ?? Promise.reject(new Error('not expected'));
    const alarms = createUsageAlarms({ clock, store: { ...storeOf([]), list } });
    const refreshes = [alarms.refresh(), alarms.refresh()];
    // The database sends the newer list, with the alarms that a replica has stored meanwhile, first.
    lists[1]?.resolve(Array.from({ length: 3 }, () => ({ userId: 'usr_a', ageMs: 0 })));
    lists[0]?.resolve([]);
    await Promise.all(refreshes);
    expect(reads).toBe(2);
    expect(() => alarms.requireFew('usr_a')).toThrow('stopped');
  });

  test('stay in force while the database is unavailable', async () => {
    const fail = async () => {
      throw new Error('unavailable');
    };
    const alarms = createUsageAlarms({ clock, store: { ...storeOf([]), add: fail, list: fail } });
    for (let count = 0; count < 3; count += 1) alarms.report('usr_a');
    await alarms.untilSettled();
    await alarms.refresh();
    expect(() => alarms.requireFew('usr_a')).toThrow('stopped');
  });

  test('are stored after an outage of the database', async () => {
    const storedAlarms: StoredAlarm[] = [];
    const store = storeOf(storedAlarms);
    let isAway = true;
    const add: AlarmStore['add'] = (userId) =>
      isAway ? Promise.reject(new Error('unavailable')) : store.add(userId);
    const alarms = createUsageAlarms({ clock, store: { ...store, add } });
    for (let count = 0; count < 3; count += 1) alarms.report('usr_a');
    await alarms.untilSettled();
    isAway = false;
    await alarms.refresh();
    expect(() => alarms.requireFew('usr_a')).toThrow('stopped');
    await alarms.untilSettled();
    expect(storedAlarms).toHaveLength(3);
  });
});

describe('a stopped user', () => {
  let provider: ScriptedProvider;
  let world: World;
  const rates = { input: 1_000_000, output: 2_000_000 };
  beforeAll(async () => {
    provider = await startProvider();
    world = await startAi({
      models: provider.modelsFile(
        { ok: 'ok', absurd: 'usage-absurd', negative: 'usage-negative' },
        {
          provider: { output_limit_member: 'max_tokens' },
          model: { rates, max_output_tokens: 100 },
          models: [{ id: 'acme/free', provider: 'acme', upstream_model: 'ok', rates: null }],
        },
      ),
      env: { ACME_API_KEY: 'x' },
      alarmsToStop: 3,
    });
  });
  afterAll(async () => {
    await world.close();
    await provider.close();
  });
  const ask = (model: string, options: Parameters<World['post']>[2] = {}) =>
    world.post('/v1/ai/text', { model, prompt: 'hi' }, options);

  test('gets 403 for a paid call', async () => {
    // Invalid counts raise alarms, but do not stop paid calls: they show nothing about the request.
    for (let index = 0; index < 4; index += 1) expect((await ask('acme/negative')).status).toBe(200);
    for (let index = 0; index < 3; index += 1) expect((await ask('acme/absurd')).status).toBe(200);
    provider.reset();
    const refusal = await ask('acme/ok');
    expect([refusal.status, await errorOf(refusal)]).toMatchObject([403, { code: 'paid_calls_stopped' }]);
    expect(Number(refusal.headers.get('retry-after'))).toBeGreaterThan(3_500);
    expect(provider.calls).toEqual([]);
    expect(world.ledger.held()).toBe(0n);
  });

  // This test and the next one depend on the alarms of the test above.
  test('gets answers from free models', async () => {
    expect((await ask('acme/free')).status).toBe(200);
  });

  test('does not affect an administrator', async () => {
    expect((await ask('acme/ok', { token: adminToken })).status).toBe(200);
  });
});
