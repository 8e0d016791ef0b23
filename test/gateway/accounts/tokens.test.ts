// Tokens of other origins than a login: those that administrators and products' backends issue, and
// the API keys of users.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { localPerson } from '../../../src/gateway/accounts/index.ts';
import { startWorld, type Json, type World } from './world.ts';

let world: World;
let admin: string;
let machine: string;
beforeAll(async () => {
  world = await startWorld({ maxConnections: 1 });
  await world.admin.setup('admin', 'a rather long secret');
  admin = (
    await world.call('POST', '/v1/admin/login', {
      body: { admin_id: 'admin', password: 'a rather long secret' },
    })
  ).body.session_token;
  await world.database
    .sql`insert into gateway.bureaus_records (bureau_id, name, server_url) values ('shop', 'Shop', 'https://shop.example'), ('other', 'Other', 'https://other.example')`;
  ({ credential: machine } = await world.admin.machines.create({
    scopes: ['tokens.issue'],
    bureauId: 'shop',
  }));
});
beforeEach(() => world.shiftClock('0'));
afterAll(() => world.close());

const issue = (body: object, token = admin) =>
  world.call('POST', '/v1/accounts/tokens/issue', { body, token });
const revoke = (body: object, token = admin) =>
  world.call('POST', '/v1/accounts/tokens/revoke', { body, token });
const list = (query = '') => world.call('GET', `/v1/accounts/tokens/list${query}`, { token: admin });
const me = (token: string) => world.call('GET', '/v1/accounts/me', { token });
const items = (body: Json) => body.items as unknown as Record<string, unknown>[];
let customers = 0;
const customer = () => `customer-${(customers += 1)}`;

describe('accounts.issueToken', () => {
  test('creates one user for an external_id', async () => {
    const externalId = customer();
    const { status, headers, body } = await issue({
      bureau_id: 'shop',
      external_id: externalId,
      metadata: { plan: 'pro' },
    });
    expect(status).toBe(201);
    expect(headers['cache-control']).toBe('no-store');
    expect(Object.keys(body).toSorted()).toEqual([
      'bureau_id',
      'expires_at',
      'token_id',
      'user_id',
      'user_token',
    ]);
    const days = (Date.parse(body.expires_at) - Date.now()) / 86_400_000;
    expect(days).toBeGreaterThan(6.99);
    expect(days).toBeLessThan(7.01);
    const user = (await me(body.user_token)).body;
    expect(user).toMatchObject({
      user: { user_id: body.user_id, metadata: { plan: 'pro' } },
      bureau: { bureau_id: 'shop' },
      token: { token_id: body.token_id },
    });

    const secondToken = (await issue({ bureau_id: 'shop', external_id: externalId })).body;
    expect([secondToken.user_id, secondToken.token_id === body.token_id]).toEqual([body.user_id, false]);
    expect((await me(secondToken.user_token)).body.user).toMatchObject({ metadata: { plan: 'pro' } });
    expect((await issue({ bureau_id: 'other', external_id: externalId })).body.user_id).not.toBe(
      body.user_id,
    );
    expect((await issue({ bureau_id: 'shop', user_id: body.user_id })).body.user_id).toBe(body.user_id);
  });

  test('gives the requested lifetime, up to a year', async () => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer(), ttl: 60 });
    await world.shiftClock('61 seconds');
    expect((await me(body.user_token)).status).toBe(401);
    await world.shiftClock('0');
    for (const ttl of [0, -1, 1.5, 31_536_001, '60']) {
      const { status, body: error } = await issue({ bureau_id: 'shop', external_id: customer(), ttl });
      expect([status, error.error.param]).toEqual([400, 'ttl']);
    }
  });

  test('creates one user for twenty concurrent first issues', async () => {
    const externalId = customer();
    const tokens = await Promise.all(
      Array.from({ length: 20 }, () => issue({ bureau_id: 'shop', external_id: externalId })),
    );
    expect(new Set(tokens.map(({ body }) => body.user_id)).size).toBe(1);
    expect(new Set(tokens.map(({ body }) => body.user_token)).size).toBe(20);
  });

  test.each([
    ['neither user', {}, 400, 'invalid_request'],
    ['both users', { user_id: `usr_${'0'.repeat(26)}`, external_id: 'x' }, 400, 'invalid_request'],
    ['a user that is not there', { user_id: `usr_${'0'.repeat(26)}` }, 404, 'user_not_found'],
    ['an unknown Bureau', { bureau_id: 'nobody', external_id: 'x' }, 404, 'bureau_not_found'],
    ['an unknown member', { external_id: 'x', models: [] }, 400, 'invalid_request'],
    [
      'metadata beyond measure',
      { external_id: 'x', metadata: { note: 'x'.repeat(17_000) } },
      400,
      'invalid_request',
    ],
  ])('refuses %s', async (_name, part, status, code) => {
    const answer = await issue({ bureau_id: 'shop', ...part });
    expect([answer.status, answer.body.error.code]).toEqual([status, code]);
  });

  test('names the member that contains a NUL character', async () => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer() });
    const answers = [
      [await issue({ bureau_id: 'shop', external_id: 'a\0b' }), 'external_id'],
      [await issue({ bureau_id: 'shop', external_id: 'x', metadata: { note: ['\0'] } }), 'metadata'],
      [
        await world.call('POST', '/v1/accounts/keys/create', {
          token: body.user_token,
          body: { name: 'a\0b' },
        }),
        'name',
      ],
      [await world.call('GET', '/v1/accounts/users?email=%00', { token: admin }), 'email'],
    ] as const;
    for (const [answer, param] of answers)
      expect([answer.status, answer.body.error.code, answer.body.error.param]).toEqual([
        400,
        'invalid_request',
        param,
      ]);
  });

  test('refuses a user of another Bureau', async () => {
    const { body } = await issue({ bureau_id: 'other', external_id: customer() });
    expect((await issue({ bureau_id: 'shop', user_id: body.user_id })).body.error.code).toBe(
      'user_not_found',
    );
  });

  test('is for administrators', async () => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer() });
    expect((await issue({ bureau_id: 'shop', external_id: 'x' }, body.user_token)).status).toBe(403);
    expect(
      (
        await world.call('POST', '/v1/accounts/tokens/issue', {
          body: { bureau_id: 'shop', external_id: 'x' },
        })
      ).status,
    ).toBe(401);
  });

  test('by a machine credential works only in its own Bureau', async () => {
    const { status, body } = await issue({ bureau_id: 'shop', external_id: customer() }, machine);
    expect(status).toBe(201);
    const refusal = await issue({ bureau_id: 'other', external_id: customer() }, machine);
    expect([refusal.status, refusal.body.error.code]).toEqual([404, 'bureau_not_found']);
    expect((await revoke({ token_id: body.token_id }, machine)).status).toBe(403);
    expect((await world.call('GET', '/v1/accounts/users', { token: machine })).status).toBe(403);
  });

  test('by a machine credential ends with that credential', async () => {
    const shortMachine = await world.admin.machines.create({
      scopes: ['tokens.issue'],
      bureauId: 'shop',
      ttlSeconds: 600,
    });
    const { body } = await issue(
      { bureau_id: 'shop', external_id: customer(), ttl: 31_536_000 },
      shortMachine.credential,
    );
    expect(Date.parse(body.expires_at)).toBeLessThanOrEqual(shortMachine.expiresAt.getTime());
  });

  test.each(['email', 'https://login.example', 'local'])(
    'by a machine credential finds no user of the issuer %s',
    async (issuer) => {
      const { body } = await issue({ bureau_id: 'shop', external_id: customer() });
      await world.database
        .sql`update gateway.accounts_identities set issuer = ${issuer} where user_id = ${body.user_id}`;
      const answer = await issue({ bureau_id: 'shop', user_id: body.user_id }, machine);
      expect([answer.status, answer.body.error.code]).toEqual([404, 'user_not_found']);
      expect((await issue({ bureau_id: 'shop', user_id: body.user_id })).status).toBe(201);
    },
  );

  test('by a machine credential finds a user with an external_id', async () => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer() });
    expect((await issue({ bureau_id: 'shop', user_id: body.user_id }, machine)).status).toBe(201);
  });

  test('is recorded without the token', async () => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer() }, machine);
    const row = world.audited.at(-1);
    expect(row).toMatchObject({
      action: 'accounts.issueToken',
      actor: { kind: 'admin' },
      target: { kind: 'token', id: body.token_id },
      outcome: 'ok',
      diff: { user_id: body.user_id, bureau_id: 'shop' },
    });
    expect(JSON.stringify(row)).not.toContain(String(body.user_token).slice(7, 40));
  });
});

describe('accounts.listTokens', () => {
  test('pages through the tokens of a user, the oldest first', async () => {
    const externalId = customer();
    const ids: string[] = [];
    let userId = '';
    for (let index = 0; index < 5; index += 1) {
      const { body } = await issue({ bureau_id: 'shop', external_id: externalId });
      ids.push(body.token_id);
      userId = body.user_id;
    }
    const listedIds: unknown[] = [];
    let cursor = '';
    do {
      const { body } = await list(`?user_id=${userId}&limit=2${cursor}`);
      expect(items(body).length).toBeLessThanOrEqual(2);
      listedIds.push(...items(body).map((item) => item['token_id']));
      cursor = body.next_cursor === null ? '' : `&cursor=${body.next_cursor}`;
    } while (cursor !== '');
    expect(listedIds).toEqual(ids);
    const [firstItem] = items((await list(`?user_id=${userId}&bureau_id=shop&limit=1`)).body);
    expect(firstItem).toMatchObject({
      kind: 'issued',
      user_id: userId,
      bureau_id: 'shop',
      name: null,
      models: null,
      revoked_at: null,
    });
    expect(items((await list(`?user_id=${userId}&bureau_id=other`)).body)).toEqual([]);
  });

  test.each(['garbage', 'eyJ9', Buffer.from('["a","b"]').toString('base64url')])(
    'refuses the cursor %s',
    async (cursor) => {
      const { status, body } = await list(`?cursor=${cursor}`);
      expect([status, body.error.param]).toEqual([400, 'cursor']);
    },
  );
});

describe('accounts.revokeTokens', () => {
  test('revokes one token, those of a user or those of a Bureau', async () => {
    const [firstCustomer, secondCustomer] = [customer(), customer()];
    const [a, b, c] = [
      (await issue({ bureau_id: 'other', external_id: firstCustomer })).body,
      (await issue({ bureau_id: 'other', external_id: firstCustomer })).body,
      (await issue({ bureau_id: 'other', external_id: secondCustomer })).body,
    ];
    expect((await revoke({ token_id: a.token_id })).body).toEqual({ revoked: 1 });
    expect([(await me(a.user_token)).status, (await me(b.user_token)).status]).toEqual([401, 200]);
    expect((await revoke({ token_id: a.token_id })).body).toEqual({ revoked: 0 });
    expect((await revoke({ user_id: b.user_id })).body).toEqual({ revoked: 1 });
    expect([(await me(b.user_token)).status, (await me(c.user_token)).status]).toEqual([401, 200]);
    expect(Number((await revoke({ bureau_id: 'other' })).body.revoked)).toBeGreaterThanOrEqual(1);
    expect((await me(c.user_token)).status).toBe(401);
    expect(world.audited.at(-1)).toMatchObject({
      action: 'accounts.revokeTokens',
      target: { kind: 'bureau', id: 'other' },
    });
  });

  test.each([
    ['nothing', {}, 400],
    ['two things', { token_id: `tok_${'0'.repeat(26)}`, user_id: `usr_${'0'.repeat(26)}` }, 400],
    ['a token that is not there', { token_id: `tok_${'0'.repeat(26)}` }, 404],
    ['a user that is not there', { user_id: `usr_${'0'.repeat(26)}` }, 404],
    ['a token that cannot be', { token_id: 'tok_1' }, 400],
  ])('refuses %s', async (_name, body, status) => {
    expect((await revoke(body)).status).toBe(status);
  });
});

describe('API keys', () => {
  const user = async () => (await issue({ bureau_id: 'shop', external_id: customer() })).body.user_token;
  const keys = (action: string, token: string, body?: object) =>
    world.call(body ? 'POST' : 'GET', `/v1/accounts/keys/${action}`, { token, ...(body && { body }) });

  test('are listed and revoked by their user', async () => {
    const token = await user();
    const { status, body } = await keys('create', token, { name: 'ci', models: ['local/echo'], ttl: 3600 });
    expect(status).toBe(201);
    expect(body).toMatchObject({ name: 'ci', models: ['local/echo'] });
    expect((await me(body.user_token)).body).toMatchObject({
      user: (await me(token)).body.user,
      token: { token_id: body.token_id, name: 'ci' },
    });
    expect(items((await keys('list', token)).body)).toEqual([
      {
        token_id: body.token_id,
        name: 'ci',
        last4: String(body.user_token).slice(-4),
        models: ['local/echo'],
        credit_cap: null,
        credits_spent: 0,
        created_at: expect.any(String),
        expires_at: body.expires_at,
        last_used_at: expect.anything(),
      },
    ]);
    expect((await keys('revoke', token, { token_id: body.token_id })).body).toEqual({ revoked: true });
    expect((await me(body.user_token)).status).toBe(401);
    expect(items((await keys('list', token)).body)).toEqual([]);
    expect((await keys('revoke', token, { token_id: body.token_id })).body).toEqual({ revoked: false });
  });

  test('carry their models into the identity', async () => {
    const token = await user();
    const limitedToken = (
      await keys('create', token, { name: 'limited', models: ['local/echo', 'local/guide'] })
    ).body.user_token;
    const openToken = (await keys('create', token, { name: 'open' })).body.user_token;
    expect(await world.accounts.identify(limitedToken)).toMatchObject({
      kind: 'user',
      models: ['local/echo', 'local/guide'],
    });
    for (const unlimitedToken of [openToken, token])
      expect(await world.accounts.identify(unlimitedToken)).not.toHaveProperty('models');
  });

  test('cannot create or revoke keys', async () => {
    const key = (await keys('create', await user(), { name: 'limited', models: ['local/echo'] })).body;
    for (const answer of [
      await keys('create', key.user_token, { name: 'more' }),
      await keys('revoke', key.user_token, { token_id: key.token_id }),
    ]) {
      expect([answer.status, answer.body.error.code]).toEqual([403, 'forbidden_for_identity']);
    }
  });

  test('expire no later than the token that creates them', async () => {
    const token = (await issue({ bureau_id: 'shop', external_id: customer(), ttl: 60 })).body;
    for (const ttl of [undefined, 31_536_000]) {
      const { body } = await keys('create', token.user_token, {
        name: 'long',
        ...(ttl !== undefined && { ttl }),
      });
      expect(Date.parse(body.expires_at)).toBeLessThanOrEqual(Date.parse(token.expires_at));
    }
  });

  test('live as long as requested when their creator does', async () => {
    const token = (await issue({ bureau_id: 'shop', external_id: customer(), ttl: 31_536_000 })).body;
    const { body } = await keys('create', token.user_token, { name: 'long', ttl: 30_000_000 });
    expect(Date.parse(body.expires_at) - Date.now()).toBeGreaterThan(29_000_000_000);
  });

  test('are revoked with the token that created them', async () => {
    const token = (await issue({ bureau_id: 'shop', external_id: customer() })).body;
    const key = (await keys('create', token.user_token, { name: 'child' })).body;
    expect((await revoke({ token_id: token.token_id })).body).toEqual({ revoked: 2 });
    expect((await me(key.user_token)).status).toBe(401);
  });

  test('are revoked when their creator logs out', async () => {
    const token = await user();
    const key = (await keys('create', token, { name: 'child' })).body;
    await world.call('POST', '/v1/accounts/logout', { token });
    expect((await me(key.user_token)).status).toBe(401);
  });

  test('created during their creator’s revocation are revoked too', async () => {
    for (let round = 0; round < 10; round += 1) {
      const token = (await issue({ bureau_id: 'shop', external_id: customer() })).body;
      const [key] = await Promise.all([
        keys('create', token.user_token, { name: 'late' }),
        revoke({ token_id: token.token_id }),
      ]);
      if (key.status === 201) expect((await me(key.body.user_token)).status).toBe(401);
      else expect(key.status).toBe(401);
    }
  });

  test('see themselves and no other key', async () => {
    const token = await user();
    const [firstToken] = [
      (await keys('create', token, { name: 'one' })).body,
      (await keys('create', token, { name: 'two' })).body,
    ];
    expect(items((await keys('list', firstToken.user_token)).body).map((key) => key['name'])).toEqual([
      'one',
    ]);
    expect(items((await keys('list', token)).body).map((key) => key['name'])).toEqual(['one', 'two']);
  });

  test('of another user and other tokens are not found', async () => {
    const [firstUser, secondUser] = [await user(), await user()];
    const key = (await keys('create', firstUser, { name: 'mine' })).body;
    const login = (await me(secondUser)).body.token.token_id;
    for (const tokenId of [key.token_id, login, `tok_${'0'.repeat(26)}`]) {
      const answer = await keys('revoke', secondUser, { token_id: tokenId });
      expect([answer.status, answer.body.error.code]).toEqual([404, 'token_not_found']);
    }
    expect((await me(key.user_token)).status).toBe(200);
  });

  test.each([
    [{}, 'name'],
    [{ name: '' }, 'name'],
    [{ name: 'x', models: [] }, 'models'],
    [{ name: 'x', ttl: 31_536_001 }, 'ttl'],
    [{ name: 'x', user_id: 'usr_1' }, 'user_id'],
  ])('refuse %j', async (body, param) => {
    const { status, body: error } = await keys('create', await user(), body);
    expect([status, error.error.param]).toEqual([400, param]);
  });
});

describe('accounts.logout', () => {
  test('revokes the token in use and no other', async () => {
    const externalId = customer();
    const [usedToken, otherToken] = [
      (await issue({ bureau_id: 'shop', external_id: externalId })).body.user_token,
      (await issue({ bureau_id: 'shop', external_id: externalId })).body.user_token,
    ];
    expect((await world.call('POST', '/v1/accounts/logout', { token: usedToken })).body).toEqual({
      revoked: true,
    });
    expect([(await me(usedToken)).status, (await me(otherToken)).status]).toEqual([401, 200]);
    expect((await world.call('POST', '/v1/accounts/logout')).status).toBe(401);
  });
});

describe('the identity of a call', () => {
  test('comes from the bearer token alone', async () => {
    const ownUser = (await issue({ bureau_id: 'shop', external_id: customer() })).body;
    const foreignUser = (await issue({ bureau_id: 'other', external_id: customer() })).body;
    const headers = {
      'x-user-id': foreignUser.user_id,
      'x-bureau-id': 'other',
      'x-user-token': foreignUser.user_token,
      'x-forwarded-user': foreignUser.user_id,
      'x-forwarded-for': '10.0.0.1',
      'x-forwarded-host': 'evil.example',
      cookie: `user_token=${foreignUser.user_token}`,
      'proxy-authorization': `Bearer ${foreignUser.user_token}`,
    };
    const { body } = await world.call('GET', '/v1/accounts/me', { token: ownUser.user_token, headers });
    expect([body.user.user_id, body.bureau.bureau_id]).toEqual([ownUser.user_id, 'shop']);
    for (const name of ['user_id', 'bureau_id', 'access_token', 'token']) {
      const answer = await world.call('GET', `/v1/accounts/me?${name}=${foreignUser.user_id}`, {
        token: ownUser.user_token,
      });
      expect([answer.status, answer.body.error.param]).toEqual([400, name]);
      expect((await world.call('GET', `/v1/accounts/me?${name}=${foreignUser.user_token}`)).status).toBe(401);
    }
    const key = await world.call('POST', '/v1/accounts/keys/create', {
      token: ownUser.user_token,
      headers,
      body: { name: 'x' },
    });
    expect((await me(key.body.user_token)).body.user.user_id).toBe(ownUser.user_id);
    expect((await world.call('GET', '/v1/accounts/me', { headers })).status).toBe(401);
  });
});

describe('users', () => {
  const users = (action: string, body: object, token = admin) =>
    world.call('POST', `/v1/accounts/users/${action}`, { body, token });
  const listUsers = async (query: string) =>
    items((await world.call('GET', `/v1/accounts/users${query}`, { token: admin })).body);

  test('are listed by Bureau and by e-mail address', async () => {
    const person = { issuer: 'test', subject: 'one', email: 'Ada@Example.com', displayName: 'Ada' };
    const { userId } = await world.accounts.issueUserToken({ bureauId: 'local', person });
    expect(await listUsers('?email=ada@example.COM')).toEqual([
      {
        user_id: userId,
        bureau_id: 'local',
        state: 'active',
        paid_calls_stopped_until: null,
        email: 'Ada@Example.com',
        display_name: 'Ada',
        avatar_url: null,
        metadata: {},
        created_at: expect.any(String),
      },
    ]);
    expect(await listUsers('?email=ada@example.com&bureau_id=shop')).toEqual([]);
    expect(
      (await listUsers('?bureau_id=local&limit=500')).every((user) => user['bureau_id'] === 'local'),
    ).toBe(true);
    expect(await listUsers(`?email=${encodeURIComponent("'or'1'='1@example.com")}`)).toEqual([]);
  });

  test('get no tokens while they are blocked', async () => {
    const externalId = customer();
    const { body } = await issue({ bureau_id: 'shop', external_id: externalId });
    expect((await users('block', { user_id: body.user_id })).body).toMatchObject({ state: 'blocked' });
    expect((await users('block', { user_id: body.user_id })).body).toMatchObject({ state: 'blocked' });
    expect((await me(body.user_token)).status).toBe(401);
    const answer = await issue({ bureau_id: 'shop', external_id: externalId });
    expect([answer.status, answer.body.error.code]).toEqual([409, 'user_blocked']);
    expect(world.audited.filter(({ action }) => action === 'accounts.blockUser')).toHaveLength(1);
    expect((await users('unblock', { user_id: body.user_id })).body).toMatchObject({ state: 'active' });
    expect((await me(body.user_token)).status).toBe(200);
  });

  test('leave a row without personal data when removed', async () => {
    const person = {
      issuer: 'test',
      subject: 'CANARY-subject',
      email: 'canary@example.com',
      displayName: 'CANARY name',
    };
    const { userId, userToken } = await world.accounts.issueUserToken({ bureauId: 'local', person });
    await world.call('POST', '/v1/accounts/keys/create', { token: userToken, body: { name: 'CANARY key' } });
    expect((await users('remove', { user_id: userId })).body).toEqual({ removed: true });
    expect((await me(userToken)).status).toBe(401);
    expect(await world.dump()).not.toMatch(/CANARY|canary@/);
    expect(
      await world.database.sql`select state from gateway.accounts_users where user_id = ${userId}`,
    ).toMatchObject([{ state: 'removed' }]);
    for (const action of ['remove', 'block', 'unblock'])
      expect((await users(action, { user_id: userId })).body.error.code).toBe('user_not_found');
    expect((await issue({ bureau_id: 'local', user_id: userId })).body.error.code).toBe('user_not_found');
    expect(await listUsers('?email=canary@example.com')).toEqual([]);
    expect(
      (
        await world.accounts.issueUserToken({
          bureauId: 'local',
          person: { ...person, email: null, displayName: null },
        })
      ).userId,
    ).not.toBe(userId);
  });

  test('are managed by administrators only', async () => {
    const { userId, userToken } = await world.accounts.issueUserToken({
      bureauId: 'local',
      person: localPerson,
    });
    for (const action of ['block', 'unblock', 'remove']) {
      expect((await users(action, { user_id: userId }, userToken)).status).toBe(403);
      expect((await users(action, { user_id: `usr_${'0'.repeat(26)}` })).status).toBe(404);
      expect((await users(action, { user_id: 'me' })).status).toBe(400);
    }
    expect((await world.call('GET', '/v1/accounts/users', { token: userToken })).status).toBe(403);
  });
});

test('the database and the log contain no issued token and no key', async () => {
  const { body } = await issue({ bureau_id: 'shop', external_id: customer() });
  const key = await world.call('POST', '/v1/accounts/keys/create', {
    token: body.user_token,
    body: { name: 'x' },
  });
  const storedText = (await world.dump()) + world.logLines.join('') + JSON.stringify(world.audited);
  for (const secret of [body.user_token, key.body.user_token, machine, admin]) {
    const payload = String(secret).slice(7);
    for (const form of [
      payload,
      Buffer.from(payload).toString('hex'),
      Buffer.from(payload).toString('base64'),
    ])
      expect(storedText.includes(form)).toBe(false);
  }
});
