// The administrator's session from login to logout, and its credentials.
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { localPerson } from '../../../src/gateway/accounts/index.ts';
import { findSecrets } from '../stored-text.ts';
import { startWorld, type Json, type World } from '../accounts/world.ts';

const adminId = 'Ada.Admin@example-1';
const password = 'CANARY pass phrase 7f3';

// A password check is slow by design, and slower on a busy machine.
vi.setConfig({ testTimeout: 120_000 });

let world: World;
beforeAll(async () => {
  world = await startWorld({
    canShiftClock: true,
    admin: { attemptLimits: { freeTries: 1_000, addressTries: 1_000, unknownNetworkTries: 1_000 } },
  });
  await world.admin.setup(adminId, password);
});
beforeEach(() => world.shiftClock('0'));
afterAll(() => world.close());

const login = (body: unknown = { admin_id: adminId, password }) =>
  world.call('POST', '/v1/admin/login', { body });
/** The error without its request id, which always differs. */
const errorBody = (body: Json | undefined) => ({ ...(body?.error as unknown as object), request_id: '' });
const session = (token?: string) =>
  world.call('GET', '/v1/admin/session', token === undefined ? {} : { token });
async function readDigest({ database }: World): Promise<string> {
  const [row] = await database.sql<{ digest: string }[]>`
    select password_digest as digest from gateway.admin_administrators`;
  return row?.digest ?? '';
}
async function openSession(): Promise<string> {
  const { status, body } = await login();
  expect(status).toBe(200);
  return body.session_token;
}

describe('admin.login', () => {
  test('opens a session of twelve hours', async () => {
    const { status, headers, body } = await login();
    expect(status).toBe(200);
    expect(body).toEqual({
      admin_id: adminId,
      session_token: expect.stringMatching(/^th_adm_[0-9A-Za-z]{49}$/),
      expires_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    });
    expect(Math.abs(Date.parse(body.expires_at) - Date.now() - 12 * 3_600_000)).toBeLessThan(60_000);
    expect(headers['cache-control']).toBe('no-store');
  });

  test('answers a wrong ID and a wrong password alike', async () => {
    const answers = [
      await login({ admin_id: adminId, password: 'not the password' }),
      await login({ admin_id: 'nobody', password: 'not the password' }),
      await login({ admin_id: adminId.toLowerCase(), password }),
    ];
    for (const { status, headers, body } of answers) {
      expect([status, body.error.code, body.error.param]).toEqual([401, 'invalid_credentials', null]);
      expect(errorBody(body)).toEqual(errorBody(answers[0]?.body));
      expect(Object.keys(headers)).toEqual(Object.keys(answers[0]?.headers ?? {}));
    }
  });

  test.each<[string, object]>([
    ['password', { password: undefined }],
    ['admin_id', { admin_id: 'two words' }],
    ['password', { password: 'x'.repeat(1_025) }],
    ['password', { password: 7 }],
    ['role', { role: 'owner' }],
  ])('names the invalid member %s', async (param, members) => {
    const answer = await login({ admin_id: adminId, password, ...members });
    expect([answer.status, answer.body.error.param]).toEqual([400, param]);
    expect(JSON.stringify(answer.body)).not.toContain(password);
  });

  test('revokes the oldest of more than five sessions', async () => {
    const tokens: string[] = [];
    for (let count = 0; count < 7; count += 1) tokens.push(await openSession());
    const statuses = await Promise.all(tokens.map(async (token) => (await session(token)).status));
    expect(statuses).toEqual([401, 401, 200, 200, 200, 200, 200]);
  });

  test('replaces a digest with fewer rounds', async () => {
    const strongerWorld = await startWorld({ admin: { passwordRounds: 700_000 } });
    try {
      const strongerLogin = async () => {
        const request = { body: { admin_id: 'admin', password } };
        return (await strongerWorld.call('POST', '/v1/admin/login', request)).status;
      };
      await strongerWorld.admin.setup('admin', password);
      expect(await readDigest(strongerWorld)).toMatch(/^\$pbkdf2-sha256\$i=700000\$/);
      const olderDigest = await readDigest(world);
      expect(olderDigest).toMatch(/^\$pbkdf2-sha256\$i=600000\$/);
      await strongerWorld.database.sql`
        update gateway.admin_administrators set password_digest = ${olderDigest}`;
      expect(await strongerLogin()).toBe(200);
      expect(await readDigest(strongerWorld)).toMatch(/^\$pbkdf2-sha256\$i=700000\$/);
      expect(await strongerLogin()).toBe(200);

      // Only one of two concurrent logins can replace the digest.
      await strongerWorld.database.sql`
        update gateway.admin_administrators set password_digest = ${olderDigest}`;
      expect(await Promise.all([strongerLogin(), strongerLogin()])).toEqual([200, 200]);
    } finally {
      await strongerWorld.close();
    }
  });
});

describe('admin.getSession', () => {
  test('reads the session in use', async () => {
    const loginAnswer = await login();
    const { status, body } = await session(loginAnswer.body.session_token);
    expect(status).toBe(200);
    expect(body).toEqual({
      admin_id: adminId,
      expires_at: loginAnswer.body.expires_at,
      created_at: expect.stringMatching(/\.\d{3}Z$/),
    });
  });

  test('answers 401 to a guest', async () => {
    const { status, body } = await session();
    expect([status, body.error.code]).toEqual([401, 'authentication_required']);
  });

  test('answers 403 to a user', async () => {
    const { userToken } = await world.accounts.issueUserToken({ bureauId: 'local', person: localPerson });
    const { status, body } = await session(userToken);
    expect([status, body.error.code]).toEqual([403, 'forbidden_for_identity']);
  });

  test('refuses a query', async () => {
    const { status, body } = await world.call('GET', '/v1/admin/session?admin_id=x', {
      token: await openSession(),
    });
    expect([status, body.error.param]).toEqual([400, 'admin_id']);
  });

  test('ends after two hours without use', async () => {
    const token = await openSession();
    await world.shiftClock('1 hour 59 minutes');
    expect((await session(token)).status).toBe(200);
    // The idle time counts from the use that was just recorded.
    const isUseRecorded = async () => {
      const [row] = await world.database.sql<{ isRecorded: boolean }[]>`
        select max(last_used_at) > gateway.townhall_now() - interval '1 minute' as "isRecorded"
        from gateway.admin_sessions`;
      return row?.isRecorded;
    };
    await expect.poll(isUseRecorded).toBe(true);
    await world.shiftClock('3 hours 58 minutes');
    expect((await session(token)).status).toBe(200);
    await world.shiftClock('7 hours');
    const { status, body } = await session(token);
    expect([status, body.error.code]).toEqual([401, 'invalid_token']);
  });

  test('ends after twelve hours even if it is in use', async () => {
    const token = await openSession();
    await world.database.sql`
      update gateway.admin_sessions
      set last_used_at = gateway.townhall_now() + interval '11 hours 59 minutes'`;
    await world.shiftClock('11 hours 59 minutes');
    expect((await session(token)).status).toBe(200);
    await world.shiftClock('12 hours');
    expect((await session(token)).status).toBe(401);
  });
});

describe('admin.logout', () => {
  test('ends the session in use and no other', async () => {
    const [firstLogin, secondLogin] = [await openSession(), await openSession()];
    const { status, body } = await world.call('POST', '/v1/admin/logout', { token: firstLogin });
    expect([status, body]).toEqual([200, { revoked: true }]);
    expect((await session(firstLogin)).status).toBe(401);
    expect((await session(secondLogin)).status).toBe(200);
    expect((await world.call('POST', '/v1/admin/logout', { token: firstLogin })).status).toBe(401);
  });

  test('answers 401 to a guest', async () => {
    expect((await world.call('POST', '/v1/admin/logout')).status).toBe(401);
  });

  test('refuses a query', async () => {
    const token = await openSession();
    const { status } = await world.call('POST', '/v1/admin/logout?all=true', { token });
    expect(status).toBe(400);
    expect((await session(token)).status).toBe(200);
  });
});

test('the database and the log contain no password and no session token', async () => {
  const wrongPassword = 'CANARY wrong guess 9c1';
  await login({ admin_id: adminId, password: wrongPassword });
  const passwordAsId = 'CANARYtypedintothewrongfield';
  await login({ admin_id: passwordAsId, password: wrongPassword });
  const token = await openSession();
  await session(token);
  const storedText = (await world.dump()) + world.logLines.join('');
  expect(storedText).toContain(adminId);
  expect(findSecrets(storedText, [password, wrongPassword, token, passwordAsId])).toEqual([]);
});
