// Rate limits over HTTP: their headers, the answer 429, the address that is counted, and the value `off`.
import { afterEach, describe, expect, inject, test, vi } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { connect } from '../../src/kernel/data/database.ts';
import { createSharedRateLimiter } from '../../src/kernel/http/shared-rate-limiter.ts';
import { silentLog, testDatabase } from '../support/databases.ts';
import { startGateway, testAdministrator, type GatewayWorld } from '../support/gateway.ts';

let world: GatewayWorld | undefined;
afterEach(async () => {
  await world?.close();
  world = undefined;
});

/** Starts a gateway whose limits are off unless `env` sets them. */
async function start(env: Record<string, string>, withAdmin = false): Promise<GatewayWorld> {
  world = await startGateway({ withAdmin, env });
  return world;
}

const get = (url: string, path: string, headers: Record<string, string> = {}) =>
  fetch(url + path, { headers });
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

/** The number of answers with each status. */
async function countStatuses(answers: Promise<Response>[]): Promise<Record<number, number>> {
  const counts: Record<number, number> = {};
  for (const { status } of await Promise.all(answers)) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** Sends requests until one is refused and resolves to its response. */
async function exhaustLimit({ url, userToken }: GatewayWorld): Promise<Response> {
  return vi.waitFor(
    async () => {
      const response = await get(url, '/v1/accounts/me', bearer(userToken));
      expect(response.status).toBe(429);
      return response;
    },
    { timeout: 30_000, interval: 1 },
  );
}

describe('the limit of requests', () => {
  test('of a user is in the headers of each answer', async () => {
    const { url, userToken } = await start({ RATE_LIMIT_USER: '20' });
    const { headers } = await get(url, '/v1/accounts/me', bearer(userToken));
    expect(headers.get('ratelimit-policy')).toBe('"user";q=20;w=60');
    expect(headers.get('ratelimit')).toMatch(/^"user";r=19;t=\d+$/);
  });

  test('of a user allows its number of requests at once', async () => {
    const { url, userToken } = await start({ RATE_LIMIT_USER: '20' });
    const counts = await countStatuses(
      Array.from({ length: 30 }, () => get(url, '/v1/accounts/me', bearer(userToken))),
    );
    expect(counts[200]).toBeGreaterThanOrEqual(20);
    // One more request is allowed every three seconds, which makes a difference on a busy machine.
    expect(counts[200]).toBeLessThanOrEqual(24);
    expect(counts[429]).toBe(30 - (counts[200] ?? 0));
  });

  test('of a user answers 429 with Retry-After', async () => {
    const response = await exhaustLimit(await start({ RATE_LIMIT_USER: '20' }));
    expect(await response.json()).toMatchObject({
      error: { type: 'rate_limit_error', code: 'rate_limited' },
    });
    const { headers } = response;
    const [, resetSeconds] = /;r=0;t=(\d+)$/.exec(headers.get('ratelimit') ?? '') ?? [];
    expect(Number(headers.get('retry-after'))).toBeGreaterThanOrEqual(Number(resetSeconds));
    expect(headers.get('x-should-retry')).toBeNull();
  });

  test('of a user affects neither health nor guests', async () => {
    const gateway = await start({ RATE_LIMIT_USER: '20' });
    await exhaustLimit(gateway);
    expect((await get(gateway.url, '/health')).status).toBe(200);
    expect((await get(gateway.url, '/ready')).headers.get('ratelimit')).toBeNull();
    expect((await get(gateway.url, '/v1/accounts/providers')).status).toBe(400);
  });

  test('of a user counts all of their tokens together', async () => {
    const { url, userToken, as: clientOf } = await start({ RATE_LIMIT_USER: '12' });
    const { user_token: key } = await clientOf(userToken).accounts.createKey({ name: 'another' });
    const readRemaining = async (token: string) =>
      Number(
        /;r=(\d+);/.exec(
          (await get(url, '/v1/accounts/me', bearer(token))).headers.get('ratelimit') ?? '',
        )?.[1],
      );
    // One more request is allowed every five seconds, for which the bounds leave room on a busy machine.
    expect(await readRemaining(userToken)).toBeLessThan(12);
    const remainingBefore = await readRemaining(key);
    expect(remainingBefore).toBeLessThan(11);
    for (let call = 0; call < 5; call += 1) await readRemaining(userToken);
    expect(await readRemaining(key)).toBeLessThan(remainingBefore - 2);
  });

  test('counts an unknown credential as a guest of its address', async () => {
    const { url } = await start({ RATE_LIMIT_GUEST: '5' });
    const counts = await countStatuses(
      Array.from({ length: 12 }, () => get(url, '/v1/accounts/me', bearer('nonsense'))),
    );
    expect(counts).toEqual({ 401: 5, 429: 7 });
    expect((await get(url, '/v1/accounts/me')).status).toBe(429);
  });

  test('of a guest is separate from the limit of media links', async () => {
    const { url } = await start({ RATE_LIMIT_GUEST: '5', RATE_LIMIT_USER: '40' });
    const link = '/v1/ai/media/med_00000000000000000000000000?expires=1&signature=x';
    expect((await get(url, link)).headers.get('ratelimit-policy')).toBe('"media";q=40;w=60');
    expect(await countStatuses(Array.from({ length: 30 }, () => get(url, link)))).toEqual({ 404: 30 });
    expect(await countStatuses(Array.from({ length: 8 }, () => get(url, '/v1/accounts/me')))).toEqual({
      401: 5,
      429: 3,
    });
    // 31 of the 40 are used, so 21 of these 30 are refused, or fewer on a busy machine.
    expect((await countStatuses(Array.from({ length: 30 }, () => get(url, link))))[429]).toBeGreaterThan(15);
  });

  test('of a Bureau applies to each of its users', async () => {
    const { url, userToken, admin } = await start({ RATE_LIMIT_USER: '600' }, true);
    await admin.bureaus.updateBureau({ bureau_id: 'local', limits: { requests_per_minute: 3 } });
    const readMine = () => get(url, '/v1/accounts/me', bearer(userToken));
    await expect.poll(async () => (await readMine()).headers.get('ratelimit-policy')).toBe('"user";q=3;w=60');
    const counts = await countStatuses(Array.from({ length: 8 }, readMine));
    expect(counts[429]).toBeGreaterThanOrEqual(5);
  });

  test('of logins is ten a minute per address', async () => {
    const { url } = await start({ RATE_LIMIT_LOGIN: '10', RATE_LIMIT_GUEST: 'off' });
    const login = () =>
      fetch(`${url}/v1/accounts/login/start`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{}',
      });
    expect(await countStatuses(Array.from({ length: 15 }, login))).toEqual({ 400: 10, 429: 5 });
  });

  test('can be off', async () => {
    const { url, userToken } = await start({});
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => get(url, '/v1/accounts/me', bearer(userToken))),
    );
    expect(answers.every(({ status, headers }) => status === 200 && headers.get('ratelimit') === null)).toBe(
      true,
    );
  });

  test('remains in force for password attempts while it is off', async () => {
    const { guest } = await start({}, true);
    const { adminId } = testAdministrator;
    const codes = await Promise.all(
      Array.from({ length: 40 }, () =>
        guest.admin.login({ admin_id: adminId, password: 'a wrong password, surely' }).then(
          () => 'admitted',
          (error: unknown) => (error as { code: string }).code,
        ),
      ),
    );
    expect(new Set(codes)).toEqual(new Set(['invalid_credentials', 'rate_limited']));
    expect(codes.filter((code) => code === 'invalid_credentials').length).toBeLessThanOrEqual(10);
  });
});

describe('the address of a client', () => {
  test('is the address that a trusted proxy forwards', async () => {
    const { url } = await start({ RATE_LIMIT_GUEST: '3', TRUSTED_PROXIES: '127.0.0.0/8, ::1' });
    const answerFrom = (client: string) =>
      get(url, '/v1/accounts/providers', { 'x-forwarded-for': `6.6.6.6, ${client}` });
    expect(await countStatuses(Array.from({ length: 5 }, () => answerFrom('198.51.100.1')))).toEqual({
      400: 3,
      429: 2,
    });
    expect((await answerFrom('198.51.100.2')).status).toBe(400);
  });

  test('is that of its connection without a trusted proxy', async () => {
    const { url } = await start({ RATE_LIMIT_GUEST: '3' });
    const counts = await countStatuses(
      Array.from({ length: 6 }, (_, index) =>
        get(url, '/v1/accounts/providers', { 'x-forwarded-for': `198.51.100.${index}` }),
      ),
    );
    expect(counts).toEqual({ 400: 3, 429: 3 });
  });

  test('can have a hundred requests open at once behind a proxy', async () => {
    const { url } = await start({
      TRUSTED_PROXIES: '127.0.0.1',
      RATE_LIMIT_GUEST: '100000',
      RATE_LIMIT_USER: '100000',
    });
    // Each request stays open, since its body never ends.
    const openStreams = Array.from({ length: 100 }, () => {
      const gate = new AbortController();
      const body = new ReadableStream({ start: (controller) => controller.enqueue(Buffer.from('{')) });
      const call = fetch(`${url}/v1/accounts/login/start`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-forwarded-for': '198.51.100.9' },
        body,
        duplex: 'half',
        signal: gate.signal,
      } as RequestInit);
      return { gate, call };
    });
    const statusFor = async (address: string) =>
      (await get(url, '/nothing', { 'x-forwarded-for': address })).status;
    await expect.poll(() => statusFor('198.51.100.9')).toBe(429);
    expect(await statusFor('198.51.100.10')).toBe(404);
    for (const { gate } of openStreams) gate.abort();
    await Promise.allSettled(openStreams.map(({ call }) => call));
    await expect.poll(() => statusFor('198.51.100.9')).toBe(404);
  });
});

describe.runIf(inject('databaseSource')?.engine === 'postgres')('the limit of two replicas', () => {
  test('allows at most 5 % more than the limit of one', async () => {
    const place = await testDatabase();
    const secondConnection = await connect(place.options, { log: silentLog });
    try {
      const replicas = [place.database, secondConnection].map((database) =>
        createSharedRateLimiter({ database, schema: 'gateway', clock: systemClock, log: silentLog }),
      );
      const policy = { name: 'user', perMinute: 600 };
      const startedMs = performance.now();
      const results = await Promise.all(
        Array.from({ length: 2_000 }, async (_, index) =>
          (replicas[index % 2] as (typeof replicas)[number]).take('somebody', policy),
        ),
      );
      const allowedCount = results.filter(({ isAllowed }) => isAllowed).length;
      const refilledTokens = ((performance.now() - startedMs) / 60_000) * policy.perMinute;
      expect(allowedCount).toBeGreaterThanOrEqual(policy.perMinute);
      expect(allowedCount).toBeLessThanOrEqual(policy.perMinute * 1.05 + refilledTokens + 1);
    } finally {
      await secondConnection.close();
      await place.close();
    }
  });
});
