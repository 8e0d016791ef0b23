// Limits on guessing passwords and codes for an e-mail address, by network: an unknown network must not lock
// out the owner.
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

let addressCount = 0;
const newAddress = () => `owner-${(addressCount += 1)}@shop.example`;
/** An address of the network with this number. */
const network = (index: number) => `10.${index >> 8}.${index & 255}.1`;
const networks = (count: number, start: number) =>
  Array.from({ length: count }, (_, index) => network(start + index));

type Kind = 'passwords' | 'wrongCodes' | 'sentCodes';

describe('attempts at one address', () => {
  let world: { database: Database; close(): Promise<void> };
  let limits: AttemptLimits;
  beforeAll(async () => {
    // Only one connection, because each connection has its own clock offset.
    world = await testDatabase({ limits: { maxConnections: 1, queueMs: 15_000 } });
    limits = createAttemptLimits(attemptLimitsStore(world.database));
  });
  afterAll(() => world?.close());

  const shiftClock = (interval: string) =>
    world.database.sql`select set_config('townhall.clock_shift', ${interval}, false)`;
  const attemptFrom = (email: string, remoteAddress: string) => ({ bureauId: 'shop', email, remoteAddress });
  /** Makes one attempt. Returns 0 when it was counted, or the seconds to wait when it was refused. */
  const secondsToWait = (kind: Kind, email: string, address: string): Promise<number> =>
    limits.count(kind, attemptFrom(email, address)).then(
      () => 0,
      (error: unknown) => Number((error as { headers: Record<string, string> }).headers['retry-after']),
    );
  const readWaits = async (kind: Kind, email: string, addresses: string[]): Promise<number[]> => {
    const seconds: number[] = [];
    for (const address of addresses) seconds.push(await secondsToWait(kind, email, address));
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
    expect(await secondsToWait(kind, email, network(1))).toBeGreaterThan(0);
    expect(await secondsToWait(kind, email, network(2))).toBe(0);
  });

  test.each([
    ['passwords', 30],
    ['wrongCodes', 30],
    ['sentCodes', 60],
  ] as const)(
    'of the kind %s from many networks first wait %i seconds at most',
    async (kind, firstSeconds) => {
      const email = newAddress();
      // All unknown networks together have 20 free attempts.
      const strangers = networks(20, 10);
      expect(await readWaits(kind, email, strangers)).toEqual(Array(20).fill(0));
      const earlyWait = await secondsToWait(kind, email, network(900));
      // The wait runs since the last of these attempts, and a busy machine takes its time.
      expect(earlyWait).toBeGreaterThan(firstSeconds - 15);
      expect(earlyWait).toBeLessThanOrEqual(firstSeconds);
      await shiftClock(`${firstSeconds} seconds`);
      expect(await secondsToWait(kind, email, network(900))).toBe(0);
      await shiftClock('0');
    },
  );

  test('wait at most 15 minutes for a code', async () => {
    const email = newAddress();
    const waits: number[] = [];
    let shiftSeconds = 0;
    for (const address of networks(60, 2_000)) {
      const seconds = await secondsToWait('sentCodes', email, address);
      waits.push(seconds);
      shiftSeconds += seconds;
      await shiftClock(`${shiftSeconds} seconds`);
    }
    await shiftClock('0');
    expect(Math.max(...waits)).toBe(900);
  });

  test('limit the e-mails that one network causes in a day', async () => {
    const email = newAddress();
    let sentCount = 0;
    for (let minute = 0; minute < 24 * 60; minute += 5) {
      await shiftClock(`${minute} minutes`);
      for (let attempt = 0; attempt < 2; attempt += 1)
        if ((await secondsToWait('sentCodes', email, network(3))) === 0) sentCount += 1;
    }
    await shiftClock('0');
    // Ten free e-mails, six after delays that double from 1 to 32 minutes, then one per hour: about 40.
    expect(sentCount).toBeGreaterThan(24);
    expect(sentCount).toBeLessThanOrEqual(45);
  });

  test('from a known network are not delayed by unknown networks', async () => {
    const email = newAddress();
    await limits.count('passwords', attemptFrom(email, network(5)));
    await limits.recordSuccess('passwords', attemptFrom(email, network(5)));
    await readWaits('passwords', email, networks(25, 100));
    expect(await secondsToWait('passwords', email, network(6))).toBeGreaterThan(0);
    expect(await readWaits('passwords', email, times(5, network(5)))).toEqual([0, 0, 0, 0, 0]);
  });

  test('that the shared limit refuses do not count for their network', async () => {
    const email = newAddress();
    await readWaits('passwords', email, networks(20, 200));
    for (const seconds of await readWaits('passwords', email, times(8, network(7))))
      expect(seconds).toBeLessThanOrEqual(30);
    await shiftClock('31 seconds');
    expect(await secondsToWait('passwords', email, network(7))).toBe(0);
    await shiftClock('0');
  });

  test('are counted exactly when they are concurrent', async () => {
    // 40 networks share 20 free attempts.
    const email = newAddress();
    const outcomes = await Promise.all(
      networks(40, 300).map((address) => secondsToWait('sentCodes', email, address)),
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
    async email_code(email: string, address: string) {
      const { login_id } = (await (
        await post('login/start', { provider: 'email_code', bureau_id: 'local' }, address)
      ).json()) as { login_id: string };
      return post('login/continue', { login_id, input: { email } }, address);
    },
  };

  test.each(Object.entries(requests))(
    'with %s does not block the owner’s registration',
    async (_name, request) => {
      const email = newAddress();
      for (let count = 0; count < 10; count += 1)
        expect((await request(email, '203.0.113.1')).status).toBeLessThan(300);
      const refusal = await request(email, '203.0.113.1');
      expect(refusal.status).toBe(429);
      const retrySeconds = Number(refusal.headers.get('retry-after'));
      expect(retrySeconds).toBeGreaterThan(0);
      expect(retrySeconds).toBeLessThanOrEqual(60);
      expect((await requests.register(email, '198.51.100.7')).status).toBe(202);
      expect((await requests.email_code(email, '198.51.100.7')).status).toBe(200);
    },
  );
});
