// Guessing an administrator's password: how many guesses are checked, and who can log in meanwhile.
import { afterEach, describe, expect, test, vi } from 'vitest';
import {
  defaultAttemptLimits,
  decideAttempt,
  type Counters,
} from '../../../src/gateway/admin/attempt-limits.ts';
import { adminStore } from '../../../src/gateway/admin/index.ts';
import { createConcurrencyLimit } from '../../../src/kernel/secrets/concurrency-limit.ts';
import { startWorld, type Answer, type Json, type World, type WorldOptions } from '../accounts/world.ts';

const password = 'a rather long secret';
// A password check is slow by design, and slower on a busy machine. The delays here are so long that they do
// not end during a test.
vi.setConfig({ testTimeout: 120_000 });
const slowDelay = { firstDelaySeconds: 600 };

let world: World | undefined;
afterEach(async () => {
  await world?.close();
  world = undefined;
});
async function begin(options: WorldOptions = {}): Promise<World> {
  world = await startWorld(options);
  await world.admin.setup('admin', password);
  return world;
}
const login = (gateway: World, secret: string, adminId = 'admin') =>
  gateway.call('POST', '/v1/admin/login', { body: { admin_id: adminId, password: secret } });
/** The error without its request id, which always differs. */
const errorBody = (body: Json | undefined) => ({ ...(body?.error as unknown as object), request_id: '' });

describe('admin.login', () => {
  test('checks five of fifty concurrent wrong passwords', async () => {
    const gateway = await begin({ admin: { attemptLimits: slowDelay } });
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, index) => login(gateway, `wrong secret ${index}`)),
    );
    const unauthorizedAnswers = answers.filter(({ status }) => status === 401);
    const rejections = answers.filter(({ status }) => status === 429);
    expect(unauthorizedAnswers.length + rejections.length).toBe(50);
    expect(unauthorizedAnswers).toHaveLength(5);
    for (const { headers, body } of rejections) {
      expect(Number(headers['retry-after'])).toBeGreaterThanOrEqual(1);
      expect(errorBody(body)).toEqual(errorBody(rejections[0]?.body));
    }
  });

  test('counts five of forty concurrent attempts on many connections', async () => {
    const gateway = await begin();
    const store = adminStore(gateway.database);
    const outcomes = await Promise.all(
      Array.from({ length: 40 }, () =>
        store.countAttempt(
          { adminId: 'admin', network: '10.0.0.1' },
          { ...defaultAttemptLimits, ...slowDelay },
        ),
      ),
    );
    expect(outcomes.filter((outcome) => outcome === 'counted')).toHaveLength(5);
  });

  test('accepts the right password only after the delay', async () => {
    const gateway = await begin({
      canShiftClock: true,
      admin: { attemptLimits: { ...slowDelay, freeTries: 2 } },
    });
    for (let guess = 0; guess < 2; guess += 1)
      expect((await login(gateway, 'wrong secret')).status).toBe(401);
    const earlyLogin = await login(gateway, password);
    expect(earlyLogin.status).toBe(429);
    expect(Number(earlyLogin.headers['retry-after'])).toBeGreaterThan(500);
    await gateway.shiftClock('10 minutes');
    expect((await login(gateway, 'wrong secret')).status).toBe(401);
    expect((await login(gateway, password)).status).toBe(429);
    // The second delay is 15 minutes, the maximum, and not twice the first.
    await gateway.shiftClock('25 minutes');
    expect((await login(gateway, password)).status).toBe(200);
    // The successful login has reset the earlier failures.
    for (let guess = 0; guess < 2; guess += 1)
      expect((await login(gateway, 'wrong secret')).status).toBe(401);
    expect((await login(gateway, 'wrong secret')).status).toBe(429);
  });

  test('answers the same for an ID that does not exist', async () => {
    const gateway = await begin({ admin: { attemptLimits: { ...slowDelay, freeTries: 2 } } });
    const existingAnswers: Answer[] = [];
    const unknownAnswers: Answer[] = [];
    for (let guess = 0; guess < 3; guess += 1) {
      existingAnswers.push(await login(gateway, 'wrong secret'));
      unknownAnswers.push(await login(gateway, 'wrong secret', 'nobody'));
    }
    expect(existingAnswers.map(({ status }) => status)).toEqual([401, 401, 429]);
    expect(unknownAnswers.map(({ status }) => status)).toEqual(existingAnswers.map(({ status }) => status));
    for (const index of [0, 2])
      expect(errorBody(unknownAnswers[index]?.body)).toEqual(errorBody(existingAnswers[index]?.body));
  });

  test('limits the IDs that one network may try', async () => {
    const gateway = await begin({
      admin: { attemptLimits: { addressTries: 4, addressWindowSeconds: 6_000 } },
    });
    const answers: Answer[] = [];
    for (let guess = 0; guess < 6; guess += 1)
      answers.push(await login(gateway, 'wrong secret', `nobody-${guess}`));
    expect(answers.map(({ status }) => status)).toEqual([401, 401, 401, 401, 429, 429]);
    expect(Number(answers[4]?.headers['retry-after'])).toBeGreaterThan(5_000);
  });

  test('does not count a successful login against its network', async () => {
    const gateway = await begin({ admin: { attemptLimits: { addressTries: 3, unknownNetworkTries: 3 } } });
    for (let count = 0; count < 6; count += 1) expect((await login(gateway, password)).status).toBe(200);
  });

  test('does not let unknown networks lock out a known network', async () => {
    const gateway = await begin({ canShiftClock: true });
    expect((await login(gateway, password)).status).toBe(200);
    const store = adminStore(gateway.database);
    const slowLimits = { ...defaultAttemptLimits, unknownNetworkIntervalSeconds: 600 };
    const outcomes: unknown[] = [];
    for (let network = 0; network < 22; network += 1) {
      outcomes.push(await store.countAttempt({ adminId: 'admin', network: `10.0.0.${network}` }, slowLimits));
    }
    expect(outcomes.slice(0, 20).every((outcome) => outcome === 'counted')).toBe(true);
    expect(outcomes[20]).toEqual({ retryAfterSeconds: expect.any(Number) });
    expect((await login(gateway, password)).status).toBe(200);
    // Unknown networks share one attempt per interval.
    await gateway.shiftClock('10 minutes');
    expect(await store.countAttempt({ adminId: 'admin', network: '10.0.1.1' }, slowLimits)).toBe('counted');
    expect(await store.countAttempt({ adminId: 'admin', network: '10.0.1.2' }, slowLimits)).not.toBe(
      'counted',
    );
  });

  test('stores attempts in the database for a day', async () => {
    const gateway = await begin({
      canShiftClock: true,
      admin: { attemptLimits: { ...slowDelay, freeTries: 2 } },
    });
    for (let guess = 0; guess < 2; guess += 1) await login(gateway, 'wrong secret');
    // Another replica, or this replica after a restart, has a new store.
    const otherStore = adminStore(gateway.database);
    const slowLimits = { ...defaultAttemptLimits, ...slowDelay, freeTries: 2 };
    expect(await otherStore.countAttempt({ adminId: 'admin', network: '127.0.0.1' }, slowLimits)).not.toBe(
      'counted',
    );
    await gateway.shiftClock('25 hours');
    for (let guess = 0; guess < 2; guess += 1)
      expect((await login(gateway, 'wrong secret')).status).toBe(401);
    expect((await login(gateway, 'wrong secret')).status).toBe(429);
    await gateway.shiftClock('50 hours');
    await otherStore.deleteOldCounters(slowLimits.forgetSeconds);
    expect(await gateway.database.sql`select 1 from gateway.admin_guesses`).toHaveLength(0);
  });

  test('answers 429 at once while all slots are taken', async () => {
    const gateway = await begin({
      admin: {
        concurrencyLimit: createConcurrencyLimit({ running: 1, waiting: 1 }),
        attemptLimits: { freeTries: 100 },
      },
    });
    const answers = await Promise.all(Array.from({ length: 8 }, () => login(gateway, password)));
    const statuses = answers.map(({ status }) => status);
    expect(statuses.filter((status) => status === 200).length).toBeGreaterThanOrEqual(1);
    expect(statuses.filter((status) => status === 429).length).toBeGreaterThanOrEqual(1);
    // The slots are free again.
    expect((await login(gateway, password)).status).toBe(200);
  });
});

describe('decideAttempt', () => {
  const noAttempts = { tries: 0, ageSeconds: 0, idleSeconds: 0, hasSucceeded: false };
  const countersWith = (part: Partial<Counters>): Counters => ({
    address: noAttempts,
    id: noAttempts,
    pair: noAttempts,
    ...part,
  });

  test('doubles the delay with each attempt up to 15 minutes', () => {
    const waitTimes = [4, 5, 6, 7, 14, 15, 40].map((tries) => {
      const verdict = decideAttempt(countersWith({ pair: { ...noAttempts, tries } }), defaultAttemptLimits);
      return verdict.isAllowed ? 0 : verdict.retryAfterSeconds;
    });
    expect(waitTimes).toEqual([0, 1, 2, 4, 512, 900, 900]);
  });

  test('allows at most ten attempts in the first minute', () => {
    // Five free attempts, then one each after 1, 2, 4, 8 and 16 s; the next delay of 32 s exceeds the minute.
    let tries = 0;
    let lastTrySecond = 0;
    let allowedCount = 0;
    for (let elapsedSeconds = 0; elapsedSeconds < 60; elapsedSeconds += 1) {
      for (let attempt = 0; attempt < 20; attempt += 1) {
        const verdict = decideAttempt(
          countersWith({ pair: { ...noAttempts, tries, idleSeconds: elapsedSeconds - lastTrySecond } }),
          defaultAttemptLimits,
        );
        if (!verdict.isAllowed) continue;
        tries = verdict.tries.pair;
        lastTrySecond = elapsedSeconds;
        allowedCount += 1;
      }
    }
    expect(allowedCount).toBe(10);
  });

  test('does not count a known network among the unknown networks', () => {
    const verdict = decideAttempt(
      countersWith({ id: { ...noAttempts, tries: 20 }, pair: { ...noAttempts, hasSucceeded: true } }),
      defaultAttemptLimits,
    );
    expect(verdict).toMatchObject({ isAllowed: true, tries: { id: 20, pair: 1 } });
  });

  test('starts a new window for a network after ten minutes', () => {
    const fullCounter = { ...noAttempts, tries: 30 };
    expect(
      decideAttempt(countersWith({ address: { ...fullCounter, ageSeconds: 100.2 } }), defaultAttemptLimits),
    ).toEqual({
      isAllowed: false,
      retryAfterSeconds: 500,
    });
    expect(
      decideAttempt(countersWith({ address: { ...fullCounter, ageSeconds: 600 } }), defaultAttemptLimits),
    ).toMatchObject({
      isAllowed: true,
      startsWindow: true,
      tries: { address: 1 },
    });
  });
});

describe('the concurrency limit', () => {
  test('rejects attempts beyond two running and sixteen queued', async () => {
    const limit = createConcurrencyLimit({ running: 2, waiting: 16 });
    const slots = Array.from({ length: 18 }, () => limit.tryAcquire()).filter((slot) => slot !== null);
    expect(slots).toHaveLength(18);
    expect(limit.tryAcquire()).toBeNull();
    const order: number[] = [];
    const turns = slots.map((slot, index) => slot.start().then(() => order.push(index)));
    await Promise.all(turns.slice(0, 2));
    expect(order).toEqual([0, 1]);
    slots[1]?.release();
    slots[1]?.release();
    await turns[2];
    expect(order).toEqual([0, 1, 2]);
    expect(limit.tryAcquire()).not.toBeNull();
    expect(limit.tryAcquire()).toBeNull();
  });
});
