// Limits on guessing the secrets of an e-mail address, by network: an unknown network must not
// lock out the owner.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  createAttemptLimits,
  type AttemptLimits,
} from '../../../src/gateway/accounts/core/attempt-limits.ts';
import { attemptLimitsStore } from '../../../src/gateway/accounts/core/attempt-limits-store.ts';
import type { Database } from '../../../src/kernel/data/database.ts';
import { testDatabase } from '../../support/databases.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { startMailbox, type Mailbox } from './mailbox.ts';

let addresses = 0;
const newAddress = () => `owner-${(addresses += 1)}@shop.example`;
const network = (n: number) => `10.${n >> 8}.${n & 255}.1`;

describe('attempts at one address', () => {
  let place: { database: Database; close(): Promise<void> };
  let limits: AttemptLimits;
  beforeAll(async () => {
    // One connection, since the clock offset is a connection's own.
    place = await testDatabase({ limits: { maxConnections: 1, queueMs: 15_000 } });
    limits = createAttemptLimits(attemptLimitsStore(place.database));
  });
  afterAll(() => place?.close());

  const shiftClock = (interval: string) =>
    place.database.sql`select set_config('townhall.clock_shift', ${interval}, false)`;
  const attemptFrom = (email: string, remoteAddress: string) => ({ bureauId: 'shop', email, remoteAddress });
  /** Seconds to wait; 0 for a counted attempt. */
  const wait = (
    kind: 'passwords' | 'wrongCodes' | 'sentCodes',
    email: string,
    from: string,
  ): Promise<number> =>
    limits.count(kind, attemptFrom(email, from)).then(
      () => 0,
      (error: unknown) => Number((error as { headers: Record<string, string> }).headers['retry-after']),
    );
  const readWaits = async (
    kind: 'passwords' | 'wrongCodes' | 'sentCodes',
    email: string,
    networks: string[],
  ): Promise<number[]> => {
    const seconds: number[] = [];
    for (const address of networks) seconds.push(await wait(kind, email, address));
    return seconds;
  };
  const times = (count: number, address: string) => Array<string>(count).fill(address);

  test.each([
    ['passwords', 5],
    ['wrongCodes', 5],
    ['sentCodes', 10],
  ] as const)('of the kind %s do not limit other networks', async (kind, ownLimit) => {
    const email = newAddress();
    expect(await readWaits(kind, email, times(ownLimit, network(1)))).toEqual(Array(ownLimit).fill(0));
    expect(await wait(kind, email, network(1))).toBeGreaterThan(0);
    expect(await wait(kind, email, network(2))).toBe(0);
  });

  test.each([
    ['passwords', 30],
    ['wrongCodes', 30],
    ['sentCodes', 60],
  ] as const)('of the kind %s from many networks wait minutes at most', async (kind, firstSeconds) => {
    const email = newAddress();
    const strangers = Array.from({ length: 20 }, (_, n) => network(n + 10));
    expect(await readWaits(kind, email, strangers)).toEqual(Array(20).fill(0));
    const earlyWait = await wait(kind, email, network(900));
    expect(earlyWait).toBeGreaterThan(firstSeconds - 15);
    expect(earlyWait).toBeLessThanOrEqual(firstSeconds);
    await shiftClock(`${firstSeconds} seconds`);
    expect(await wait(kind, email, network(900))).toBe(0);
    await shiftClock('0');
  });

  test('wait at most 15 minutes for a code', async () => {
    const email = newAddress();
    let shiftSeconds = 0;
    for (let n = 0; n < 60; n += 1) {
      const seconds = await wait('sentCodes', email, network(n + 2_000));
      expect(seconds).toBeLessThanOrEqual(900);
      shiftSeconds += seconds;
      await shiftClock(`${shiftSeconds} seconds`);
    }
    await shiftClock('0');
  });

  test('limit the e-mails that one network causes in a day', async () => {
    const email = newAddress();
    let sentCount = 0;
    for (let minute = 0; minute < 24 * 60; minute += 5) {
      await shiftClock(`${minute} minutes`);
      for (let attempt = 0; attempt < 2; attempt += 1)
        if ((await wait('sentCodes', email, network(3))) === 0) sentCount += 1;
    }
    await shiftClock('0');
    expect(sentCount).toBeLessThanOrEqual(45);
  });

  test('from a known network are not delayed by unknown ones', async () => {
    const email = newAddress();
    await limits.count('passwords', attemptFrom(email, network(5)));
    await limits.recordSuccess('passwords', attemptFrom(email, network(5)));
    await readWaits(
      'passwords',
      email,
      Array.from({ length: 25 }, (_, n) => network(n + 100)),
    );
    expect(await wait('passwords', email, network(6))).toBeGreaterThan(0);
    expect(await readWaits('passwords', email, times(5, network(5)))).toEqual([0, 0, 0, 0, 0]);
  });

  test('that the shared limit delays do not count for their network', async () => {
    const email = newAddress();
    await readWaits(
      'passwords',
      email,
      Array.from({ length: 20 }, (_, n) => network(n + 200)),
    );
    for (const seconds of await readWaits('passwords', email, times(8, network(7))))
      expect(seconds).toBeLessThanOrEqual(30);
    await shiftClock('31 seconds');
    expect(await wait('passwords', email, network(7))).toBe(0);
    await shiftClock('0');
  });

  test('are counted exactly when they are concurrent', async () => {
    const email = newAddress();
    const outcomes = await Promise.all(
      Array.from({ length: 40 }, (_, n) => wait('sentCodes', email, network(n + 300))),
    );
    expect(outcomes.filter((seconds) => seconds === 0)).toHaveLength(20);
  });
});

describe('a stranger who requests codes', () => {
  let world: GatewayWorld;
  let mailbox: Mailbox;
  beforeAll(async () => {
    mailbox = await startMailbox();
    world = await startGateway({
      env: { SMTP_URL: mailbox.url, MAIL_FROM: 'login@shop.example', TRUSTED_PROXIES: '127.0.0.1,::1' },
    });
  });
  afterAll(async () => {
    await world?.close();
    await mailbox?.close();
  });

  const post = (path: string, body: object, address: string) =>
    fetch(`${world.url}/v1/accounts/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-forwarded-for': address },
      body: JSON.stringify(body),
    });
  const requests = {
    register: (email: string, address: string) =>
      post('register', { bureau_id: 'local', email, password: 'a garden of forking paths' }, address),
    'password/forgot': (email: string, address: string) =>
      post('password/forgot', { bureau_id: 'local', email }, address),
    async email_code(email: string, from: string) {
      const { login_id } = (await (
        await post('login/start', { provider: 'email_code', bureau_id: 'local' }, from)
      ).json()) as { login_id: string };
      return post('login/continue', { login_id, input: { email } }, from);
    },
  };

  test.each(Object.entries(requests))(
    'with %s does not block the owner’s registration',
    async (_name, request) => {
      const email = newAddress();
      for (let n = 0; n < 10; n += 1) expect((await request(email, '203.0.113.1')).status).toBeLessThan(300);
      const refusal = await request(email, '203.0.113.1');
      expect([refusal.status, Number(refusal.headers.get('retry-after')) <= 60]).toEqual([429, true]);
      expect((await requests.register(email, '198.51.100.7')).status).toBe(202);
      expect((await requests.email_code(email, '198.51.100.7')).status).toBe(200);
    },
  );
});
