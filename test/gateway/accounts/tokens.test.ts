// Tokens that do not come from a login: tokens that administrators and products' backends issue, and the API
// keys of users.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { localPerson } from '../../../src/gateway/accounts/index.ts';
import { findSecrets } from '../stored-text.ts';
import { startWorld, type Json, type World } from './world.ts';

let world: World;
let admin: string;
let machine: string;
beforeAll(async () => {
  world = await startWorld({ canShiftClock: true });
  admin = await world.logInAdmin();
  await world.database.sql`
    insert into gateway.bureaus_records (bureau_id, name, server_url)
    values ('shop', 'Shop', 'https://shop.example'), ('other', 'Other', 'https://other.example')`;
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
let customerCount = 0;
const customer = () => `customer-${(customerCount += 1)}`;

describe('accounts.issueToken', () => {
  test('issues a token for seven days', async () => {
    const { status, headers, body } = await issue({ bureau_id: 'shop', external_id: customer() });
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
    expect((await me(body.user_token)).body).toMatchObject({
      user: { user_id: body.user_id },
      bureau: { bureau_id: 'shop' },
      token: { token_id: body.token_id },
    });
  });

  test('creates one user for an external_id of a Bureau', async () => {
    const externalId = customer();
    const { body: firstToken } = await issue({
      bureau_id: 'shop',
      external_id: externalId,
      metadata: { plan: 'pro' },
    });
    const { body: secondToken } = await issue({ bureau_id: 'shop', external_id: externalId });
    expect(secondToken.user_id).toBe(firstToken.user_id);
    expect(secondToken.token_id).not.toBe(firstToken.token_id);
    for (const { user_token } of [firstToken, secondToken])
      expect((await me(user_token)).body.user).toMatchObject({ metadata: { plan: 'pro' } });
    const { body: otherToken } = await issue({ bureau_id: 'other', external_id: externalId });
    expect(otherToken.user_id).not.toBe(firstToken.user_id);
  });

  test('finds a user by user_id', async () => {
    const { body: firstToken } = await issue({ bureau_id: 'shop', external_id: customer() });
    const { body: secondToken } = await issue({ bureau_id: 'shop', user_id: firstToken.user_id });
    expect(secondToken.user_id).toBe(firstToken.user_id);
  });

  test('issues a token with the requested lifetime', async () => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer(), ttl: 60 });
    expect((await me(body.user_token)).status).toBe(200);
    await world.shiftClock('61 seconds');
    expect((await me(body.user_token)).status).toBe(401);
  });

  test.each([0, -1, 1.5, 31_536_001, '60'])('refuses the lifetime %j', async (ttl) => {
    const { status, body } = await issue({ bureau_id: 'shop', external_id: customer(), ttl });
    expect([status, body.error.param]).toEqual([400, 'ttl']);
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
    ['an unknown user', { user_id: `usr_${'0'.repeat(26)}` }, 404, 'user_not_found'],
    ['an unknown Bureau', { bureau_id: 'nobody', external_id: 'x' }, 404, 'bureau_not_found'],
    ['an unknown member', { external_id: 'x', models: [] }, 400, 'invalid_request'],
    [
      'metadata beyond 16 KiB',
      { external_id: 'x', metadata: { note: 'x'.repeat(17_000) } },
      400,
      'invalid_request',
    ],
  ])('refuses %s', async (_name, part, status, code) => {
    const answer = await issue({ bureau_id: 'shop', ...part });
    expect([answer.status, answer.body.error.code]).toEqual([status, code]);
  });

  test.each([
    ['external_id', { external_id: 'a\0b' }],
    ['metadata', { external_id: 'x', metadata: { note: ['\0'] } }],
  ])('refuses a NUL character in %s', async (param, members) => {
    const { status, body } = await issue({ bureau_id: 'shop', ...members });
    expect([status, body.error.code, body.error.param]).toEqual([400, 'invalid_request', param]);
  });

  test('refuses a user of another Bureau', async () => {
    const { body } = await issue({ bureau_id: 'other', external_id: customer() });
    const answer = await issue({ bureau_id: 'shop', user_id: body.user_id });
    expect(answer.body.error.code).toBe('user_not_found');
  });

  test('refuses users and guests', async () => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer() });
    const request = { bureau_id: 'shop', external_id: 'x' };
    expect((await issue(request, body.user_token)).status).toBe(403);
    const guestAnswer = await world.call('POST', '/v1/accounts/tokens/issue', { body: request });
    expect(guestAnswer.status).toBe(401);
  });

  test('writes an audit entry without the token', async () => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer() }, machine);
    const entry = world.auditEntries.at(-1);
    expect(entry).toMatchObject({
      action: 'accounts.issueToken',
      actor: { kind: 'admin' },
      target: { kind: 'token', id: body.token_id },
      outcome: 'ok',
      diff: { user_id: body.user_id, bureau_id: 'shop' },
    });
    expect(findSecrets(JSON.stringify(entry), [body.user_token])).toEqual([]);
  });
});

describe('accounts.issueToken with a machine credential', () => {
  test('works only in its own Bureau', async () => {
    const { status, body } = await issue({ bureau_id: 'shop', external_id: customer() }, machine);
    expect(status).toBe(201);
    const refusal = await issue({ bureau_id: 'other', external_id: customer() }, machine);
    expect([refusal.status, refusal.body.error.code]).toEqual([404, 'bureau_not_found']);
    expect((await revoke({ token_id: body.token_id }, machine)).status).toBe(403);
    expect((await world.call('GET', '/v1/accounts/users', { token: machine })).status).toBe(403);
  });

  test('issues a token that expires with the credential', async () => {
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

  test.each(['email', 'https://login.example', 'local'])('finds no user of the issuer %s', async (issuer) => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer() });
    await world.database.sql`
        update gateway.accounts_identities set issuer = ${issuer} where user_id = ${body.user_id}`;
    const answer = await issue({ bureau_id: 'shop', user_id: body.user_id }, machine);
    expect([answer.status, answer.body.error.code]).toEqual([404, 'user_not_found']);
    expect((await issue({ bureau_id: 'shop', user_id: body.user_id })).status).toBe(201);
  });

  test('finds a user with an external_id', async () => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer() });
    expect((await issue({ bureau_id: 'shop', user_id: body.user_id }, machine)).status).toBe(201);
  });
});

describe('accounts.listTokens', () => {
  test('pages through the tokens of a user from the oldest', async () => {
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
  });

  test('filters by user and Bureau', async () => {
    const { body } = await issue({ bureau_id: 'shop', external_id: customer() });
    expect(items((await list(`?user_id=${body.user_id}&bureau_id=shop`)).body)).toMatchObject([
      {
        kind: 'issued',
        user_id: body.user_id,
        bureau_id: 'shop',
        name: null,
        models: null,
        revoked_at: null,
      },
    ]);
    expect(items((await list(`?user_id=${body.user_id}&bureau_id=other`)).body)).toEqual([]);
  });

  test.each([
    'garbage',
    Buffer.from('{"}').toString('base64url'),
    Buffer.from('["a","b"]').toString('base64url'),
  ])('refuses the cursor %s', async (cursor) => {
    const { status, body } = await list(`?cursor=${cursor}`);
    expect([status, body.error.param]).toEqual([400, 'cursor']);
  });
});

describe('accounts.revokeTokens', () => {
  const issueTo = async (externalId: string) =>
    (await issue({ bureau_id: 'other', external_id: externalId })).body;
  const statuses = (tokens: Json[]) =>
    Promise.all(tokens.map(async ({ user_token }) => (await me(user_token)).status));

  test('revokes one token once', async () => {
    const externalId = customer();
    const tokens = [await issueTo(externalId), await issueTo(externalId)];
    const request = { token_id: tokens[0]?.token_id };
    expect((await revoke(request)).body).toEqual({ revoked: 1 });
    expect(await statuses(tokens)).toEqual([401, 200]);
    expect((await revoke(request)).body).toEqual({ revoked: 0 });
  });

  test('revokes the tokens of a user', async () => {
    const externalId = customer();
    const tokens = [await issueTo(externalId), await issueTo(externalId), await issueTo(customer())];
    expect((await revoke({ user_id: tokens[0]?.user_id })).body).toEqual({ revoked: 2 });
    expect(await statuses(tokens)).toEqual([401, 401, 200]);
  });

  test('revokes the tokens of a Bureau', async () => {
    const tokens = [await issueTo(customer()), await issueTo(customer())];
    const { body: shopToken } = await issue({ bureau_id: 'shop', external_id: customer() });
    expect(Number((await revoke({ bureau_id: 'other' })).body.revoked)).toBeGreaterThanOrEqual(2);
    expect(await statuses([...tokens, shopToken])).toEqual([401, 401, 200]);
    expect(world.auditEntries.at(-1)).toMatchObject({
      action: 'accounts.revokeTokens',
      target: { kind: 'bureau', id: 'other' },
    });
  });

  test.each([
    ['nothing', {}, 400],
    ['a token and a user', { token_id: `tok_${'0'.repeat(26)}`, user_id: `usr_${'0'.repeat(26)}` }, 400],
    ['an unknown token', { token_id: `tok_${'0'.repeat(26)}` }, 404],
    ['an unknown user', { user_id: `usr_${'0'.repeat(26)}` }, 404],
    ['a malformed token_id', { token_id: 'tok_1' }, 400],
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

  test('live as long as requested when their creator lives longer', async () => {
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

  test('list only themselves', async () => {
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
    [{ name: 'a\0b' }, 'name'],
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
  const issuePair = async () => ({
    ownUser: (await issue({ bureau_id: 'shop', external_id: customer() })).body,
    otherUser: (await issue({ bureau_id: 'other', external_id: customer() })).body,
  });

  test('comes from no header but Authorization', async () => {
    const { ownUser, otherUser } = await issuePair();
    const headers = {
      'x-user-id': otherUser.user_id,
      'x-bureau-id': 'other',
      'x-user-token': otherUser.user_token,
      'x-forwarded-user': otherUser.user_id,
      'x-forwarded-for': '10.0.0.1',
      'x-forwarded-host': 'evil.example',
      cookie: `user_token=${otherUser.user_token}`,
      'proxy-authorization': `Bearer ${otherUser.user_token}`,
    };
    const { body } = await world.call('GET', '/v1/accounts/me', { token: ownUser.user_token, headers });
    expect([body.user.user_id, body.bureau.bureau_id]).toEqual([ownUser.user_id, 'shop']);
    const key = await world.call('POST', '/v1/accounts/keys/create', {
      token: ownUser.user_token,
      headers,
      body: { name: 'x' },
    });
    expect((await me(key.body.user_token)).body.user.user_id).toBe(ownUser.user_id);
    expect((await world.call('GET', '/v1/accounts/me', { headers })).status).toBe(401);
  });

  test.each(['user_id', 'bureau_id', 'access_token', 'token'])('does not come from ?%s=', async (name) => {
    const { ownUser, otherUser } = await issuePair();
    const { status, body } = await world.call('GET', `/v1/accounts/me?${name}=${otherUser.user_id}`, {
      token: ownUser.user_token,
    });
    expect([status, body.error.param]).toEqual([400, name]);
    const guestAnswer = await world.call('GET', `/v1/accounts/me?${name}=${otherUser.user_token}`);
    expect(guestAnswer.status).toBe(401);
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

  test('are not listed by an address with a NUL character', async () => {
    const { status, body } = await world.call('GET', '/v1/accounts/users?email=%00', { token: admin });
    expect([status, body.error.code, body.error.param]).toEqual([400, 'invalid_request', 'email']);
  });

  test('get no tokens while they are blocked', async () => {
    const externalId = customer();
    const { body } = await issue({ bureau_id: 'shop', external_id: externalId });
    expect((await users('block', { user_id: body.user_id })).body).toMatchObject({ state: 'blocked' });
    expect((await users('block', { user_id: body.user_id })).body).toMatchObject({ state: 'blocked' });
    expect((await me(body.user_token)).status).toBe(401);
    const answer = await issue({ bureau_id: 'shop', external_id: externalId });
    expect([answer.status, answer.body.error.code]).toEqual([409, 'user_blocked']);
    expect(world.auditEntries.filter(({ action }) => action === 'accounts.blockUser')).toHaveLength(1);
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
    const newUser = await world.accounts.issueUserToken({
      bureauId: 'local',
      person: { ...person, email: null, displayName: null },
    });
    expect(newUser.userId).not.toBe(userId);
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
  const storedText = (await world.dump()) + world.logLines.join('') + JSON.stringify(world.auditEntries);
  expect(findSecrets(storedText, [body.user_token, key.body.user_token, machine, admin])).toEqual([]);
});
