// The identity of a user token, and when the token is refused.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { accounts, localPerson } from '../../../src/gateway/accounts/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { createToken } from '../../../src/kernel/secrets/secret.ts';
import { startWorld, type World } from './world.ts';

let world: World;
let admin: string;
beforeAll(async () => {
  world = await startWorld({ canShiftClock: true });
  admin = await world.logInAdmin();
});
beforeEach(() => world.shiftClock('0'));
afterAll(() => world.close());

const issue = (ttlSeconds?: number) =>
  world.accounts.issueUserToken({
    bureauId: 'local',
    person: localPerson,
    name: 'shell',
    ...(ttlSeconds ? { ttlSeconds } : {}),
  });
const me = (token?: string) => world.call('GET', '/v1/accounts/me', token === undefined ? {} : { token });

describe('accounts.getMe', () => {
  test('reads the user, the Bureau and the token', async () => {
    const token = await issue();
    const { status, body } = await me(token.userToken);
    expect(status).toBe(200);
    expect(body).toEqual({
      user: {
        user_id: token.userId,
        email: null,
        display_name: 'Local user',
        avatar_url: null,
        metadata: {},
        created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      },
      bureau: { bureau_id: 'local', name: 'Local', state: 'active', server_url: world.url },
      token: { token_id: token.tokenId, name: 'shell', expires_at: token.expiresAt.toISOString() },
    });
  });

  test('answers 401 to a guest', async () => {
    const { status, headers, body } = await me();
    expect([status, body.error.code]).toEqual([401, 'authentication_required']);
    expect(headers['www-authenticate']).toBe('Bearer');
  });

  test('answers 403 to an administrator', async () => {
    const { status, body } = await me(admin);
    expect([status, body.error.code]).toEqual([403, 'forbidden_for_identity']);
  });

  test('refuses a query', async () => {
    const { userToken } = await issue();
    const { status, body } = await world.call('GET', '/v1/accounts/me?user_id=usr_1', { token: userToken });
    expect([status, body.error.param]).toEqual([400, 'user_id']);
  });

  test('derives the identity from the token only', async () => {
    const token = await issue();
    const headers = {
      'x-user-id': 'usr_somebody',
      'x-bureau-id': 'other',
      'x-user-token': createToken('usr'),
      'x-forwarded-for': '10.0.0.1',
    };
    const { body } = await world.call('GET', '/v1/accounts/me', { token: token.userToken, headers });
    expect([body.user.user_id, body.bureau.bureau_id]).toEqual([token.userId, 'local']);
  });

  test.each([
    ['garbage', () => 'garbage'],
    ['a token that was never issued', () => createToken('usr')],
    ['a session that was never opened', () => createToken('adm')],
    ['an agent’s token', () => createToken('agt')],
    ['a token with a typo', async () => replaceLastCharacter((await issue()).userToken)],
    [
      'a token of another kind with the same characters',
      async () => (await issue()).userToken.replace('th_usr_', 'th_adm_'),
    ],
  ])('refuses %s', async (_name, makeToken) => {
    const { status, headers, body } = await me(await makeToken());
    expect([status, body.error.code]).toEqual([401, 'invalid_token']);
    expect(headers['www-authenticate']).toContain('invalid_token');
  });

  test('refuses a revoked token at once', async () => {
    const { userToken, tokenId } = await issue();
    expect((await me(userToken)).status).toBe(200);
    await world.database.sql`
      update gateway.accounts_tokens set revoked_at = gateway.townhall_now() where token_id = ${tokenId}`;
    expect((await me(userToken)).status).toBe(401);
  });

  test('decides by the clock of the database whether a token has expired', async () => {
    const { userToken } = await issue(60);
    await world.shiftClock('40 seconds');
    expect((await me(userToken)).status).toBe(200);
    await world.shiftClock('60 seconds');
    expect((await me(userToken)).status).toBe(401);
  });

  test('refuses the token of a blocked user', async () => {
    const { userToken, userId } = await issue();
    await world.database.sql`update gateway.accounts_users set state = 'blocked' where user_id = ${userId}`;
    try {
      expect((await me(userToken)).status).toBe(401);
      await expect(issue()).rejects.toMatchObject({ code: 'conflict' });
    } finally {
      await world.database.sql`update gateway.accounts_users set state = 'active'`;
    }
  });

  test.each(['paused', 'archived'])('names the state of a Bureau that is %s', async (state) => {
    const { userToken } = await issue();
    const setState = (newState: string) => world.database.sql`
      update gateway.bureaus_records
      set state = ${newState},
        archived_at = case when ${newState} = 'archived' then gateway.townhall_now() end`;
    await setState(state);
    try {
      const { status, headers, body } = await me(userToken);
      expect([status, body.error.code]).toEqual([403, `bureau_${state}`]);
      expect(headers['www-authenticate']).toBeUndefined();
      await expect(issue()).rejects.toMatchObject({ code: `bureau_${state}` });
    } finally {
      await setState('active');
    }
  });

  test('records the last use of a token at most once a minute', async () => {
    const { userToken, tokenId } = await issue();
    const lastUse = async () => {
      const [row] = await world.database.sql<{ at: Date | null }[]>`
        select last_used_at as at from gateway.accounts_tokens where token_id = ${tokenId}`;
      return row?.at?.getTime() ?? null;
    };
    expect(await lastUse()).toBeNull();
    await me(userToken);
    await expect.poll(lastUse).not.toBeNull();
    const firstUse = await lastUse();
    await world.shiftClock('30 seconds');
    await me(userToken);
    await world.shiftClock('90 seconds');
    expect(await lastUse()).toBe(firstUse);
    await me(userToken);
    await expect.poll(lastUse).toBeGreaterThan((firstUse ?? 0) + 60_000);
  });
});

describe('identify', () => {
  test('does not query the database for a malformed token', async () => {
    const statements: string[] = [];
    const store = new Proxy({}, { get: (_target, name) => () => statements.push(String(name)) });
    const failIfCalled = () => {
      throw new Error('A malformed token must be refused without this call.');
    };
    const service = accounts({
      stores: { accounts: store, loginAttempts: store, oneTimeTokens: store, attemptLimits: store } as never,
      bureaus: world.bureaus,
      log: { debug() {}, info() {}, warn() {}, error() {}, child: () => ({}) as never },
      clock: systemClock,
      fetch: failIfCalled,
      credits: { openAccount: failIfCalled, openKey: failIfCalled, keys: failIfCalled },
      machines: { lockLive: failIfCalled },
      env: { get: () => undefined },
      mail: { isConfigured: () => false, send: failIfCalled },
      audit: { record: failIfCalled },
      changes: { bump: failIfCalled, generation: () => 0 },
      baseUrl: () => null,
      localLogin: () => false,
    });
    for (const text of ['', 'x'.repeat(200), `th_usr_${'0'.repeat(49)}`, createToken('adm')])
      expect(await service.identify(text)).toBeNull();
    expect(statements).toEqual([]);
  });
});

/** Replaces the last character with another of the alphabet, so that only the checksum is wrong. */
function replaceLastCharacter(token: string): string {
  return token.slice(0, -1) + (token.endsWith('0') ? '1' : '0');
}
