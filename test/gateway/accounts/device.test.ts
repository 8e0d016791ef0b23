// Device logins (RFC 8628): a program polls while a person confirms its code.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { localPerson } from '../../../src/gateway/accounts/index.ts';
import { findSecrets } from '../stored-text.ts';
import { startWorld, type Answer, type World } from './world.ts';

let world: World;
let admin: string;
beforeAll(async () => {
  world = await startWorld({ canShiftClock: true });
  admin = await world.logInAdmin();
  await world.database.sql`
    insert into gateway.bureaus_records (bureau_id, name, server_url)
    values ('other', 'Other', 'https://other.example')`;
});
beforeEach(async () => {
  await world.shiftClock('0');
  await world.database.sql`delete from gateway.accounts_device_logins`;
  await world.database.sql`delete from gateway.accounts_throttles`;
});
afterAll(() => world.close());

type Fields = Record<string, string> & { key?: object; models: string[] | null; credit_cap: number | null };
const fields = ({ body }: Answer): Fields => body as unknown as Fields;

async function post(path: string, body: object, token?: string): Promise<Answer> {
  return world.call('POST', `/v1/accounts/device/${path}`, { body, ...(token !== undefined && { token }) });
}
const start = async (body: object = {}) =>
  fields(await post('start', { bureau_id: 'local', name: 'a program', ...body }));
const poll = (login: Fields) => post('result', { device_code: login['device_code'] });
const decide = (login: Fields, decision: string, token: string) =>
  post('decide', { user_code: login['user_code'], decision }, token);
const find = (userCode: string | undefined, token: string) => post('get', { user_code: userCode }, token);
const refusal = ({ status, body }: Answer) => [status, body.error?.code];
const me = (token: string | undefined) => world.call('GET', '/v1/accounts/me', { token: token ?? '' });

async function logInPerson(options: { bureauId?: string; subject?: string; ttlSeconds?: number } = {}) {
  const { bureauId = 'local', subject = 'somebody', ttlSeconds = 3600 } = options;
  const { userToken } = await world.accounts.issueUserToken({
    bureauId,
    person: { ...localPerson, subject },
    ttlSeconds,
  });
  return userToken;
}

describe('accounts.startDeviceLogin', () => {
  test('returns the members of RFC 8628', async () => {
    const answer = await post('start', { bureau_id: 'local', name: 'a program' });
    expect(answer.status).toBe(200);
    expect(answer.headers['cache-control']).toBe('no-store');
    const login = fields(answer);
    expect(login).toMatchObject({
      verification_uri: `${world.url}/device`,
      verification_uri_complete: `${world.url}/device#${login['user_code']}`,
      expires_in: 600,
      interval: 5,
    });
    expect(login['user_code']).toMatch(/^[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}$/);
  });

  test('stores neither code', async () => {
    const login = await start();
    const rows = await world.dump();
    expect(rows).toContain('a program');
    const { device_code: deviceCode = '', user_code: userCode = '' } = login;
    expect(findSecrets(rows, [deviceCode, userCode])).toEqual([]);
    expect(rows).not.toContain(userCode.replace('-', ''));
  });

  test.each([
    ['a name with a line break', { name: 'a\nb' }, 400, 'invalid_request'],
    ['an unknown member', { token: 'x' }, 400, 'invalid_request'],
    ['a key for two years', { key: { ttl: 63_072_000 } }, 400, 'invalid_request'],
    ['an unknown Bureau', { bureau_id: 'nowhere' }, 404, 'bureau_not_found'],
  ])('refuses %s', async (_name, part, status, code) => {
    expect(refusal(await post('start', { bureau_id: 'local', name: 'x', ...part }))).toEqual([status, code]);
  });

  test('refuses a 21st pending login from one network', async () => {
    for (let count = 0; count < 20; count += 1) await start();
    const answer = await post('start', { bureau_id: 'local', name: 'x' });
    expect(refusal(answer)).toEqual([429, 'rate_limited']);
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
  });

  test('names the missing setting of a server without an address', async () => {
    const worldWithoutUrl = await startWorld({ baseUrl: null });
    const body = { bureau_id: 'local', name: 'x' };
    try {
      const answer = await worldWithoutUrl.call('POST', '/v1/accounts/device/start', { body });
      expect(refusal(answer)).toEqual([503, 'service_not_configured']);
      expect(answer.body.error.message).toContain('TOWNHALL_CITY_BASE_URL');
    } finally {
      await worldWithoutUrl.close();
    }
  });
});

describe('accounts.getDeviceLoginResult', () => {
  test('is pending until a person confirms', async () => {
    const login = await start();
    expect(refusal(await poll(login))).toEqual([400, 'authorization_pending']);
    await decide(login, 'confirm', await logInPerson());
    await world.shiftClock('6 seconds');
    const credential = fields(await poll(login));
    expect(credential).toMatchObject({ kind: 'user', name: 'a program', models: null, credit_cap: null });
    expect((await me(credential['user_token'])).body.token).toMatchObject({ name: 'a program' });
  });

  test('tells a program that polls too early to slow down', async () => {
    const login = await start();
    await poll(login);
    const earlyPoll = await poll(login);
    expect(refusal(earlyPoll)).toEqual([400, 'slow_down']);
    // The interval of 5 seconds grows by 5 seconds, so a poll 6 seconds later is too early as well.
    expect(earlyPoll.body.error.message).toContain('10 seconds');
    await world.shiftClock('6 seconds');
    expect(refusal(await poll(login))).toEqual([400, 'slow_down']);
  });

  test('issues one credential', async () => {
    const login = await start();
    await decide(login, 'confirm', await logInPerson());
    const answers = await Promise.all([poll(login), poll(login), poll(login)]);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 410, 410]);
    expect(refusal(await poll(login))).toEqual([410, 'login_spent']);
  });

  test('reports the refusal of the person', async () => {
    const login = await start();
    await decide(login, 'cancel', await logInPerson());
    expect(refusal(await poll(login))).toEqual([403, 'login_denied']);
  });

  test('expires after ten minutes', async () => {
    const login = await start();
    await world.shiftClock('601 seconds');
    expect(refusal(await poll(login))).toEqual([410, 'login_expired']);
    expect(refusal(await find(login['user_code'], await logInPerson()))).toEqual([404, 'login_not_found']);
  });

  test('refuses an unknown device code', async () => {
    expect(refusal(await post('result', { device_code: `lgd_${'0'.repeat(43)}` }))).toEqual([
      404,
      'login_not_found',
    ]);
  });

  test('creates the key with the limits that the program requested', async () => {
    const login = await start({ key: { models: ['local/echo'], credit_cap: 70, ttl: 60 } });
    const owner = await logInPerson();
    await decide(login, 'confirm', owner);
    const credential = fields(await poll(login));
    expect(credential).toMatchObject({ kind: 'key', models: ['local/echo'], credit_cap: 70 });
    const { body } = await world.call('GET', '/v1/accounts/keys/list', { token: owner });
    expect(body.items).toMatchObject([
      { token_id: credential['token_id'], name: 'a program', credit_cap: 70 },
    ]);
  });
});

describe('the credential of a device login', () => {
  const credentialKinds: [string, object][] = [
    ['a user token', {}],
    ['a key', { key: { ttl: 86_400 } }],
  ];

  test.each(credentialKinds)('expires as %s with the token that confirmed', async (_kind, options) => {
    const login = await start(options);
    await decide(login, 'confirm', await logInPerson({ ttlSeconds: 60 }));
    const credential = fields(await poll(login));
    const remainingMs = Date.parse(credential['expires_at'] ?? '') - Date.now();
    expect(remainingMs).toBeLessThanOrEqual(60_000);
  });

  test.each(credentialKinds)('is refused as %s after the logout of its owner', async (_kind, options) => {
    const login = await start(options);
    const owner = await logInPerson();
    await decide(login, 'confirm', owner);
    const credential = fields(await poll(login));
    expect((await me(credential['user_token'])).status).toBe(200);
    await world.call('POST', '/v1/accounts/logout', { token: owner });
    expect((await me(credential['user_token'])).status).toBe(401);
  });

  test('is refused when the confirming token was revoked before the poll', async () => {
    const login = await start();
    const owner = await logInPerson();
    await decide(login, 'confirm', owner);
    await world.call('POST', '/v1/accounts/logout', { token: owner });
    expect(refusal(await poll(login))).toEqual([403, 'login_denied']);
  });

  test('is in the audit log with its user and its token', async () => {
    const login = await start();
    await decide(login, 'confirm', await logInPerson());
    const credential = fields(await poll(login));
    expect(world.auditEntries.slice(-2)).toMatchObject([
      { action: 'accounts.decideDeviceLogin', actor: { kind: 'user' }, diff: { decision: 'confirm' } },
      { action: 'accounts.getDeviceLoginResult', target: { kind: 'token', id: credential['token_id'] } },
    ]);
    expect(JSON.stringify(world.auditEntries)).not.toContain(credential['user_token']);
  });
});

describe('accounts.getDeviceLogin', () => {
  test('finds a code in any letter case', async () => {
    const login = await start({ key: { credit_cap: 70 } });
    const typedCode = login['user_code']?.replace('-', '').toLowerCase();
    const { body } = await find(typedCode, await logInPerson());
    expect(body).toMatchObject({
      user_code: login['user_code'],
      name: 'a program',
      address: '127.0.0.1',
      key: { credit_cap: 70 },
    });
  });

  test('refuses a user of another Bureau', async () => {
    const login = await start();
    const stranger = await logInPerson({ bureauId: 'other' });
    expect(refusal(await find(login['user_code'], stranger))).toEqual([404, 'login_not_found']);
    expect(refusal(await decide(login, 'confirm', stranger))).toEqual([404, 'login_not_found']);
  });

  test('refuses a malformed code', async () => {
    expect(refusal(await find('WDJB-MJH', await logInPerson()))).toEqual([400, 'invalid_request']);
  });

  test('refuses guests and administrators', async () => {
    const login = await start();
    const body = { user_code: login['user_code'] };
    expect(refusal(await post('get', body))).toEqual([401, 'authentication_required']);
    expect(refusal(await find(login['user_code'], admin))).toEqual([403, 'forbidden_for_identity']);
  });

  test('refuses a user’s guesses after ten wrong codes', async () => {
    const owner = await logInPerson({ subject: 'a guesser' });
    for (let count = 0; count < 10; count += 1)
      expect(refusal(await find('BBBB-BBBB', owner))).toEqual([404, 'login_not_found']);
    const login = await start();
    expect(refusal(await find(login['user_code'], owner))).toEqual([429, 'rate_limited']);
    expect(refusal(await decide(login, 'confirm', owner))).toEqual([429, 'rate_limited']);
  });
});

describe('accounts.decideDeviceLogin', () => {
  test('decides a login once', async () => {
    const login = await start();
    const owner = await logInPerson();
    await decide(login, 'cancel', owner);
    expect(refusal(await decide(login, 'confirm', owner))).toEqual([404, 'login_not_found']);
    expect(refusal(await poll(login))).toEqual([403, 'login_denied']);
  });

  test('refuses an API key', async () => {
    const login = await start();
    const body = { name: 'ci' };
    const key = await world.call('POST', '/v1/accounts/keys/create', { token: await logInPerson(), body });
    expect(refusal(await decide(login, 'confirm', key.body.user_token))).toEqual([
      403,
      'forbidden_for_identity',
    ]);
  });

  test('refuses an unknown decision', async () => {
    const login = await start();
    expect(refusal(await decide(login, 'maybe', await logInPerson()))).toEqual([400, 'invalid_request']);
  });
});
