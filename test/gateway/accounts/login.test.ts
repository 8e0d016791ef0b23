// The local login from its start to its token, and the time for which its result can be read.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { findSecrets } from '../stored-text.ts';
import { startWorld, type World } from './world.ts';

let world: World;
beforeAll(async () => {
  world = await startWorld({ canShiftClock: true });
});
beforeEach(() => world.shiftClock('0'));
afterAll(() => world.close());

const localLogin = { provider: 'local', bureau_id: 'local' };

async function startLogin(): Promise<string> {
  const { status, body } = await world.call('POST', '/v1/accounts/login/start', { body: localLogin });
  expect(status).toBe(200);
  return body.login_id;
}
const readResult = (loginId: string) => world.call('GET', `/v1/accounts/login/result?login_id=${loginId}`);

async function setBureauState(state: 'active' | 'paused' | 'archived'): Promise<void> {
  await world.database.sql`
    update gateway.bureaus_records
    set state = ${state}, archived_at = case when ${state} = 'archived' then gateway.townhall_now() end
    where bureau_id = 'local'`;
}

describe('accounts.listProviders', () => {
  test('lists the local login to a caller on this machine', async () => {
    const { status, body } = await world.call('GET', '/v1/accounts/providers?bureau_id=local');
    expect(status).toBe(200);
    expect(body).toEqual({
      bureau: { bureau_id: 'local', name: 'Local', color: null },
      items: [{ id: 'local', label: 'This machine', kind: 'instant', inputs: [] }],
    });
  });

  test('lists nothing to a caller with the Host of another machine', async () => {
    const { body } = await world.call('GET', '/v1/accounts/providers?bureau_id=local', {
      headers: { host: 'rebound.example' },
    });
    expect(body.items).toEqual([]);
  });

  test.each([
    ['missing', ''],
    ['malformed', '?bureau_id=%2e%2e'],
  ])('names a %s bureau_id', async (_name, query) => {
    const { status, body } = await world.call('GET', `/v1/accounts/providers${query}`);
    expect([status, body.error.param]).toEqual([400, 'bureau_id']);
  });

  test('answers 404 for an unknown Bureau', async () => {
    const { status, body } = await world.call('GET', '/v1/accounts/providers?bureau_id=nobody');
    expect([status, body.error.code]).toEqual([404, 'bureau_not_found']);
  });

  test('refuses an unknown credential', async () => {
    const { status, body } = await world.call('GET', '/v1/accounts/providers?bureau_id=local', {
      token: 'nonsense',
    });
    expect([status, body.error.code]).toEqual([401, 'invalid_token']);
  });
});

describe('accounts.startLogin', () => {
  test('finishes at once with the local login', async () => {
    const { status, headers, body } = await world.call('POST', '/v1/accounts/login/start', {
      body: localLogin,
    });
    expect(status).toBe(200);
    expect(body).toEqual({
      login_id: expect.stringMatching(/^lgn_[0-9A-Za-z]{43}$/),
      provider: 'local',
      outcome: 'done',
    });
    expect(headers['cache-control']).toBe('no-store');
  });

  test.each([
    ['the Host of another machine', { host: 'rebound.example' }],
    ['a Host that only begins with the name of this machine', { host: 'localhost.example' }],
    ['an Origin', { origin: 'https://evil.example' }],
    ['the Origin of this machine', { origin: 'http://localhost:3000' }],
    ['the Origin null', { origin: 'null' }],
  ])('offers no local login to a caller with %s', async (_name, headers) => {
    const { status, body } = await world.call('POST', '/v1/accounts/login/start', {
      body: localLogin,
      headers,
    });
    expect([status, body.error.code, body.error.param]).toEqual([404, 'provider_not_found', 'provider']);
  });

  test.each(['localhost', 'LOCALHOST:80', '127.0.0.1:1', '[::1]:43127'])(
    'offers the local login under the Host %s',
    async (host) => {
      const { status } = await world.call('POST', '/v1/accounts/login/start', {
        body: localLogin,
        headers: { host },
      });
      expect(status).toBe(200);
    },
  );

  test('answers 404 for an unknown provider', async () => {
    const { status, body } = await world.call('POST', '/v1/accounts/login/start', {
      body: { ...localLogin, provider: 'github' },
    });
    expect([status, body.error.code]).toEqual([404, 'provider_not_found']);
  });

  test('answers 404 for an unknown Bureau', async () => {
    const { status, body } = await world.call('POST', '/v1/accounts/login/start', {
      body: { ...localLogin, bureau_id: 'nobody' },
    });
    expect([status, body.error.code]).toEqual([404, 'bureau_not_found']);
  });

  test.each([
    ['a missing', 'bureau_id', { provider: 'local' }],
    ['an unknown', 'user_id', { ...localLogin, user_id: 'usr_1' }],
  ])('names %s member: %s', async (_name, param, request) => {
    const { status, body } = await world.call('POST', '/v1/accounts/login/start', { body: request });
    expect([status, body.error.param]).toEqual([400, param]);
  });

  test.each(['paused', 'archived'] as const)('refuses a Bureau that is %s', async (state) => {
    await setBureauState(state);
    try {
      const { status, body } = await world.call('POST', '/v1/accounts/login/start', { body: localLogin });
      expect([status, body.error.code]).toEqual([403, `bureau_${state}`]);
    } finally {
      await setBureauState('active');
    }
  });

  test('gives every local login the same user', async () => {
    const ids = await Promise.all(
      [1, 2, 3].map(async () => (await readResult(await startLogin())).body.user.user_id),
    );
    expect(new Set(ids).size).toBe(1);
  });
});

describe('accounts.getLoginResult', () => {
  test('issues a working token for thirty days', async () => {
    const loginId = await startLogin();
    const { status, headers, body } = await readResult(loginId);
    expect(status).toBe(200);
    expect(body).toMatchObject({
      login_id: loginId,
      status: 'done',
      user: { email: null, display_name: 'Local user', metadata: {} },
    });
    expect(headers['cache-control']).toBe('no-store');
    const days = (Date.parse(body.expires_at) - Date.now()) / 86_400_000;
    expect(days).toBeGreaterThan(29.99);
    expect(days).toBeLessThan(30.01);
    const me = await world.call('GET', '/v1/accounts/me', { token: body.user_token });
    expect([me.status, me.body.user.user_id]).toEqual([200, body.user.user_id]);
  });

  test('returns the same token again within a minute', async () => {
    const loginId = await startLogin();
    const firstResult = await readResult(loginId);
    await world.shiftClock('40 seconds');
    const secondResult = await readResult(loginId);
    expect(secondResult.body).toEqual(firstResult.body);
  });

  test('issues one token to concurrent readers', async () => {
    const loginId = await startLogin();
    const answers = await Promise.all(Array.from({ length: 5 }, () => readResult(loginId)));
    expect([...new Set(answers.map(({ body }) => body.user_token))]).toEqual([
      expect.stringMatching(/^th_usr_/),
    ]);
  });

  test('drops the token a minute after the first read', async () => {
    const loginId = await startLogin();
    await readResult(loginId);
    await world.shiftClock('61 seconds');
    for (let read = 0; read < 2; read += 1) {
      const { status, body } = await readResult(loginId);
      expect([status, body.error.code]).toEqual([410, 'login_spent']);
    }
    const rows = await world.database.sql`
      select sealed_token as token from gateway.accounts_login_attempts
      where digest = sha256(${Buffer.from(loginId)})`;
    expect(rows).toEqual([{ token: null }]);
  });

  test('expires unread after ten minutes', async () => {
    const loginId = await startLogin();
    await world.shiftClock('601 seconds');
    const { status, body } = await readResult(loginId);
    expect([status, body]).toEqual([200, { login_id: loginId, status: 'expired' }]);
  });

  test('answers 404 for an unknown attempt', async () => {
    const { status, body } = await readResult(`lgn_${'0'.repeat(43)}`);
    expect([status, body.error.code]).toEqual([404, 'login_not_found']);
  });

  test('refuses a malformed login_id without repeating it', async () => {
    const { status, body } = await readResult('lgn_short');
    expect([status, body.error.param]).toEqual([400, 'login_id']);
    expect(JSON.stringify(body)).not.toContain('lgn_short');
  });

  test('reports a paused Bureau before a blocked user', async () => {
    const loginId = await startLogin();
    await world.database.sql`update gateway.accounts_users set state = 'blocked'`;
    try {
      expect((await readResult(loginId)).body).toEqual({ login_id: loginId, status: 'failed' });
      await setBureauState('paused');
      expect((await readResult(loginId)).status).toBe(403);
    } finally {
      await setBureauState('active');
      await world.database.sql`update gateway.accounts_users set state = 'active'`;
    }
  });

  test('deletes attempts a day after they expire', async () => {
    const loginId = await startLogin();
    await world.shiftClock('1 day 11 minutes');
    await startLogin();
    await expect.poll(async () => (await readResult(loginId)).status).toBe(404);
  });
});

test('the database and the log contain no token and no login_id', async () => {
  const loginId = await startLogin();
  const { body } = await readResult(loginId);
  await world.call('GET', '/v1/accounts/me', { token: body.user_token });
  const storedText = (await world.dump()) + world.logLines.join('');
  expect(storedText).toContain(body.user.user_id);
  expect(findSecrets(storedText, [loginId, body.user_token])).toEqual([]);
});
