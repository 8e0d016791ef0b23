// E-mail accounts from registration to password change, with a real mail server. No answer may reveal to a
// caller without access to the mailbox whether an address has an account (user enumeration).
import { hash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { accountsStore } from '../../../src/gateway/accounts/core/store.ts';
import { createPasswords } from '../../../src/gateway/accounts/providers/passwords.ts';
import { createConcurrencyLimit } from '../../../src/kernel/secrets/concurrency-limit.ts';
import { waitForBlockedStatement } from '../../support/locks.ts';
import { startMailbox, type Mailbox } from './mailbox.ts';
import { findSecrets } from '../stored-text.ts';
import { startWorld, type World } from './world.ts';

let world: World;
let mailbox: Mailbox;
const password = 'CANARY a garden of forking paths';
const newPassword = 'CANARY the library of babel';

beforeAll(async () => {
  mailbox = await startMailbox();
  world = await startWorld({ env: { SMTP_URL: mailbox.url, MAIL_FROM: 'Shop <login@shop.example>' } });
});
afterAll(async () => {
  await world?.close();
  await mailbox?.close();
});

const post = (path: string, body: object, token?: string) =>
  world.call('POST', `/v1/accounts/${path}`, { body, ...(token === undefined ? {} : { token }) });
const register = (email: string, secret = password, extraMembers: object = {}) =>
  post('register', { bureau_id: 'local', email, password: secret, ...extraMembers });
const requestReset = (email: string) => post('password/forgot', { bureau_id: 'local', email });
/** Requests a code with which the password can be replaced. */
async function createReset(email: string): Promise<{ verification_id: string; code: string }> {
  const { status, body } = await requestReset(email);
  expect(status).toBe(202);
  // The first e-mail was for the registration.
  const { code } = await mailbox.letterTo(email, 2);
  return { verification_id: body.verification_id, code };
}
const resetPassword = async (email: string) =>
  post('password/reset', { ...(await createReset(email)), password: newPassword });
const newAddress = () => `user-${randomBytes(6).toString('hex')}@example.com`;

async function registerAccount(email = newAddress(), secret = password): Promise<string> {
  const { status, body } = await register(email, secret);
  expect(status).toBe(202);
  const { code } = await mailbox.letterTo(email);
  expect((await post('verify', { verification_id: body.verification_id, code })).body).toEqual({
    verified: true,
  });
  return email;
}

async function tryLogin(email: string, secret = password) {
  const login = await post('login/start', { provider: 'password', bureau_id: 'local' });
  const loginId = login.body.login_id;
  const next = await post('login/continue', { login_id: loginId, input: { email, password: secret } });
  return { loginId, next };
}

async function logIn(email: string, secret = password): Promise<string> {
  const { loginId, next } = await tryLogin(email, secret);
  expect([next.status, next.body.outcome]).toEqual([200, 'done']);
  return (await world.call('GET', `/v1/accounts/login/result?login_id=${loginId}`)).body.user_token;
}

const me = (token: string) => world.call('GET', '/v1/accounts/me', { token });

describe('accounts.register and accounts.verifyEmail', () => {
  test('create an account only after the address is verified', async () => {
    const email = newAddress();
    const { status, headers, body } = await register(email.toUpperCase(), password, { display_name: 'Ada' });
    expect(status).toBe(202);
    expect(body).toEqual({
      verification_id: expect.stringMatching(/^lgv_[0-9A-Za-z]{43}$/),
      expires_at: expect.any(String),
    });
    expect(headers['cache-control']).toBe('no-store');
    expect((await tryLogin(email)).next.status).toBe(401);

    const letter = await mailbox.letterTo(email);
    expect(letter.subject).toContain('Local');
    const codeWithSpaces = `${letter.code.slice(0, 4)}-${letter.code.slice(4)} `;
    expect(
      (await post('verify', { verification_id: body.verification_id, code: codeWithSpaces })).status,
    ).toBe(200);
    const user = (await me(await logIn(email))).body.user;
    expect(user).toMatchObject({ email, display_name: 'Ada' });
  });

  test('refuse the code of another registration', async () => {
    const [email, otherEmail] = [newAddress(), newAddress()];
    await register(email);
    const { verification_id } = (await register(otherEmail)).body;
    const { code } = await mailbox.letterTo(email);
    expect((await post('verify', { verification_id, code })).status).toBe(401);
  });

  test('refuse a used code', async () => {
    const email = newAddress();
    const { verification_id } = (await register(email)).body;
    const { code } = await mailbox.letterTo(email);
    expect((await post('verify', { verification_id, code })).status).toBe(200);
    const secondAnswer = await post('verify', { verification_id, code });
    expect([secondAnswer.status, secondAnswer.body.error.code]).toEqual([401, 'invalid_credentials']);
  });

  test('allow five wrong codes for a registration', async () => {
    const email = newAddress();
    const { verification_id } = (await register(email)).body;
    const { code } = await mailbox.letterTo(email);
    const wrongCode = code === '00000000' ? '11111111' : '00000000';
    for (let attempt = 0; attempt < 5; attempt += 1)
      expect((await post('verify', { verification_id, code: wrongCode })).status).toBe(401);
    expect((await post('verify', { verification_id, code })).status).toBe(401);
  });

  test.each([
    ['too short', 'abcdefghijk'],
    ['common', 'password1234'],
    ['the address itself', 'person@example.com'],
  ])('refuse a password that is %s', async (_name, secret) => {
    const { status, body } = await register('person@example.com', secret);
    expect([status, body.error.param]).toEqual([400, 'password']);
  });

  test.each([
    'no address',
    'a@b',
    'two@example.com,three@example.com',
    'a@example.com\r\nbcc: b@example.com',
    'ada@exämple.com',
    '"a b"@example.com',
  ])('refuse %j as an address', async (email) => {
    const { status, body } = await register(email);
    expect([status, body.error.param]).toEqual([400, 'email']);
  });

  test('answer the same for an address with an account', async () => {
    const email = await registerAccount();
    const newEmail = newAddress();
    const [existingAnswer, unknownAnswer] = [
      await register(email, newPassword),
      await register(newEmail, newPassword),
    ];
    expect([
      existingAnswer.status,
      Object.keys(existingAnswer.body),
      Object.keys(existingAnswer.headers),
    ]).toEqual([unknownAnswer.status, Object.keys(unknownAnswer.body), Object.keys(unknownAnswer.headers)]);
    const letter = await mailbox.letterTo(email, 2);
    expect(letter.code).toBe('');
    expect(letter.text).toContain('already has an account');
    // The stranger got no code, and the account keeps its password.
    const verification = await post('verify', {
      verification_id: existingAnswer.body.verification_id,
      code: '00000000',
    });
    expect([verification.status, verification.body.error.code]).toEqual([401, 'invalid_credentials']);
    await logIn(email, password);
  });

  test('do not set a password on the address of another person', async () => {
    const victim = newAddress();
    const attack = await register(victim, newPassword);
    // The owner of the mailbox logs in with a code; the attacker's password was never set.
    const login = await post('login/start', { provider: 'email_code', bureau_id: 'local' });
    await post('login/continue', { login_id: login.body.login_id, input: { email: victim } });
    const { code } = await mailbox.letterTo(victim, 2);
    expect(
      (await post('login/continue', { login_id: login.body.login_id, input: { code } })).body.outcome,
    ).toBe('done');
    expect((await tryLogin(victim, newPassword)).next.status).toBe(401);
    expect((await post('verify', { verification_id: attack.body.verification_id, code })).status).toBe(401);
  });

  test('do not exist without a mail server', async () => {
    const { SMTP_URL: url } = world.env;
    world.env['SMTP_URL'] = undefined;
    try {
      for (const { status, body } of [await register(newAddress()), await requestReset(newAddress())])
        expect([status, body.error.code]).toEqual([404, 'provider_not_found']);
      const { body } = await world.call('GET', '/v1/accounts/providers?bureau_id=local');
      expect((body.items as unknown as { id: string }[]).map(({ id }) => id)).toEqual(['local']);
    } finally {
      world.env['SMTP_URL'] = url;
    }
  });

  test('answer 502 when the mail server refuses the message', async () => {
    const { SMTP_URL: url } = world.env;
    world.env['SMTP_URL'] = 'smtp://127.0.0.1:1';
    try {
      const { status, body } = await register(newAddress());
      expect([status, body.error.code]).toEqual([502, 'upstream_failed']);
    } finally {
      world.env['SMTP_URL'] = url;
    }
  });
});

describe('the login with a password', () => {
  test('answers a wrong password and an unknown address alike', async () => {
    const email = await registerAccount();
    const wrongPassword = (await tryLogin(email, newPassword)).next;
    const unknownAccount = (await tryLogin(newAddress(), newPassword)).next;
    const [error, unknownError] = [wrongPassword, unknownAccount].map(({ status, body }) => ({
      status,
      ...(body.error as unknown as object),
      request_id: '',
    }));
    expect(error).toMatchObject({ status: 401, code: 'invalid_credentials' });
    expect(unknownError).toEqual(error);
  });

  test('allows five inputs per attempt', async () => {
    // Each guess is at another address, so that the limit of one address does not apply first.
    const { body } = await post('login/start', { provider: 'password', bureau_id: 'local' });
    const guess = () =>
      post('login/continue', {
        login_id: body.login_id,
        input: { email: newAddress(), password: newPassword },
      });
    for (let attempt = 0; attempt < 5; attempt += 1) expect((await guess()).status).toBe(401);
    const refusal = await guess();
    expect([refusal.status, refusal.body.error.code]).toEqual([410, 'login_spent']);
    expect(
      (await world.call('GET', `/v1/accounts/login/result?login_id=${body.login_id}`)).body,
    ).toMatchObject({ status: 'failed', error: 'too_many_tries' });
  });

  test('checks five concurrent wrong passwords per address and hour', async () => {
    const email = await registerAccount();
    const attempts = await Promise.all(Array.from({ length: 14 }, () => tryLogin(email, newPassword)));
    const statuses = attempts.map(({ next }) => next.status).toSorted((a, b) => a - b);
    expect(statuses).toEqual([...Array(5).fill(401), ...Array(9).fill(429)]);
    const lateAnswer = (await tryLogin(email, newPassword)).next;
    // The limit of one network is five an hour, 3,600 seconds.
    expect(Number(lateAnswer.headers['retry-after'])).toBeGreaterThan(3_000);
  });

  test('has a separate limit for a known network', async () => {
    const email = await registerAccount();
    await logIn(email);
    // Unknown networks have used up the shared limit.
    const sharedLimitKey = hash('sha256', JSON.stringify(['pace', 'passwords', 'local', email]), 'buffer');
    await world.database.sql`
      insert into gateway.accounts_throttles (key, used, opened_at, ends_at)
      values (${sharedLimitKey}, 500, gateway.townhall_now(), gateway.townhall_now() + interval '1 hour')
      on conflict (key) do update set used = 500`;
    expect((await tryLogin(email)).next.body.outcome).toBe('done');
  });

  test.each([
    ['no password', { email: 'a@example.com' }, 'input.password'],
    ['an empty password', { email: 'a@example.com', password: '' }, 'input.password'],
    ['an input that was not requested', { email: 'a@example.com', password: 'x', code: '1' }, 'input.code'],
    ['an input with an unusual name', { email: 'a@example.com', password: 'x', 'a b': '1' }, 'input'],
  ])('refuses %s without counting it', async (_name, input, param) => {
    const { body } = await post('login/start', { provider: 'password', bureau_id: 'local' });
    for (let attempt = 0; attempt < 6; attempt += 1) {
      const next = await post('login/continue', { login_id: body.login_id, input });
      expect([next.status, next.body.error.param]).toEqual([400, param]);
    }
  });

  test('answers 404 for an unknown attempt', async () => {
    const refusal = await post('login/continue', { login_id: `lgn_${'0'.repeat(43)}`, input: {} });
    expect([refusal.status, refusal.body.error.code]).toEqual([404, 'login_not_found']);
  });

  test('answers 410 for a finished attempt', async () => {
    const login = await post('login/start', { provider: 'local', bureau_id: 'local' });
    const lateAnswer = await post('login/continue', { login_id: login.body.login_id, input: {} });
    expect([lateAnswer.status, lateAnswer.body.error.code]).toEqual([410, 'login_spent']);
  });

  test('refuses a blocked user with the right password', async () => {
    const email = await registerAccount();
    await world.database.sql`update gateway.accounts_users set state = 'blocked' where email = ${email}`;
    const { next } = await tryLogin(email);
    expect([next.status, next.body.error.code]).toEqual([403, 'user_blocked']);
  });

  test('succeeds twice at once although a digest with too few rounds is replaced', async () => {
    const email = await registerAccount();
    const store = accountsStore(world.database, world.bureaus);
    const passwords = createPasswords({
      store,
      attemptLimits: { count: async () => {}, recordSuccess: async () => {} },
      concurrencyLimit: createConcurrencyLimit({ running: 2, waiting: 0 }),
      // More than those of the stored digest.
      rounds: 700_000,
    });
    const source = { bureauId: 'local', email, remoteAddress: '127.0.0.1' };
    const accounts = await Promise.all([
      passwords.check(source, password),
      passwords.check(source, password),
    ]);
    const storedDigest = (await store.findEmailAccount('local', email))?.passwordDigest;
    expect(storedDigest).toMatch(/i=700000\$/);
    // A login finishes only with the digest that is stored.
    expect(accounts.map((account) => account?.passwordDigest)).toEqual([storedDigest, storedDigest]);
  });
});

describe('a password reset', () => {
  test('refuses a login with the old password that finishes after the reset', async () => {
    const email = await registerAccount();
    const { pendingLogin } = await world.database.tx(async (tx) => {
      await tx`select 1 from gateway.accounts_users where email = ${email} for update`;
      const login = tryLogin(email);
      // The login has checked the password and waits for the lock on the user's row.
      await waitForBlockedStatement(world.database.sql);
      await tx`
        update gateway.accounts_passwords set password_digest = 'replaced'
        where user_id = (select user_id from gateway.accounts_users where email = ${email})`;
      // In an object: the transaction would await a bare promise, which resolves only after the transaction.
      return { pendingLogin: login };
    });
    const { next } = await pendingLogin;
    expect([next.status, next.body.error?.code]).toEqual([401, 'invalid_credentials']);
  });

  test('replaces the password and revokes earlier tokens', async () => {
    const email = await registerAccount();
    const token = await logIn(email);
    const reset = await resetPassword(email);
    expect([reset.status, reset.body]).toEqual([200, { changed: true }]);
    expect((await me(token)).status).toBe(401);
    expect((await tryLogin(email, password)).next.status).toBe(401);
    await logIn(email, newPassword);
    expect(world.auditEntries.at(-1)).toMatchObject({
      action: 'accounts.resetPassword',
      outcome: 'ok',
      target: { kind: 'user' },
    });
  });

  test('lifts the limit on wrong passwords', async () => {
    const email = await registerAccount();
    for (let count = 0; count < 5; count += 1) await tryLogin(email, 'a wrong password');
    expect((await tryLogin(email)).next.status).toBe(429);
    expect((await resetPassword(email)).status).toBe(200);
    expect((await tryLogin(email, newPassword)).next.status).toBe(200);
  });

  test('revokes the API keys and issued tokens of its user', async () => {
    const email = await registerAccount();
    const token = await logIn(email);
    const { user_id: userId } = (await me(token)).body.user;
    const key = (await post('keys/create', { name: 'ci' }, token)).body.user_token;
    // A token without a creator, such as a token from an administrator or a key of an earlier release.
    const orphanKey = (await post('keys/create', { name: 'orphan' }, token)).body.user_token;
    await world.database.sql`
      update gateway.accounts_tokens set maker_id = null, kind = 'issued'
      where name = 'orphan' and user_id = ${userId}`;
    expect((await resetPassword(email)).status).toBe(200);
    for (const endedKey of [key, orphanKey]) expect((await me(endedKey)).status).toBe(401);
  });

  test('discards a login whose result was not read yet', async () => {
    const email = await registerAccount();
    await logIn(email);
    const { loginId, next } = await tryLogin(email);
    expect(next.body.outcome).toBe('done');
    expect((await resetPassword(email)).status).toBe(200);
    expect((await world.call('GET', `/v1/accounts/login/result?login_id=${loginId}`)).status).toBe(404);
  });

  test('answers the same for an unknown address and sends no e-mail', async () => {
    const [existingAnswer, unknownAnswer] = [
      await requestReset(await registerAccount()),
      await requestReset('nobody@example.com'),
    ];
    expect([
      existingAnswer.status,
      Object.keys(existingAnswer.body),
      Object.keys(existingAnswer.headers),
    ]).toEqual([unknownAnswer.status, Object.keys(unknownAnswer.body), Object.keys(unknownAnswer.headers)]);
    const reset = await post('password/reset', {
      verification_id: unknownAnswer.body.verification_id,
      // The server compares the input with the text 'no code fits' when no code was sent. It removes the
      // spaces of inputs, so this is the closest that an input can come.
      code: 'nocodefits',
      password: newPassword,
    });
    expect([reset.status, reset.body.error.code]).toEqual([401, 'invalid_credentials']);
    expect(mailbox.letters.some(({ to }) => to === 'nobody@example.com')).toBe(false);
  });

  test('sends ten codes to one address before it delays a network', async () => {
    const email = newAddress();
    const answers = await Promise.all(Array.from({ length: 13 }, () => requestReset(email)));
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
      ...Array(10).fill(202),
      ...Array(3).fill(429),
    ]);
    expect((await register(email)).status).toBe(429);
  });

  test('does not spend the code on an unacceptable password', async () => {
    const email = await registerAccount();
    const reset = await createReset(email);
    for (const unacceptable of ['short', email]) {
      const refusal = await post('password/reset', { ...reset, password: unacceptable });
      expect([unacceptable, refusal.status, refusal.body.error.param]).toEqual([
        unacceptable,
        400,
        'password',
      ]);
    }
    expect((await post('password/reset', { ...reset, password: newPassword })).status).toBe(200);
  });

  test('refuses the code of a registration', async () => {
    const email = newAddress();
    const { verification_id } = (await register(email)).body;
    const { code } = await mailbox.letterTo(email);
    const answer = await post('password/reset', { verification_id, code, password: newPassword });
    expect(answer.status).toBe(401);
  });
});

describe('accounts.changePassword', () => {
  const change = { current_password: password, new_password: newPassword };

  test('refuses a wrong current password', async () => {
    const token = await logIn(await registerAccount());
    const refusal = await post('password/change', { ...change, current_password: newPassword }, token);
    expect([refusal.status, refusal.body.error.code]).toEqual([401, 'invalid_credentials']);
  });

  test('revokes the tokens of other logins only', async () => {
    const email = await registerAccount();
    const [token, otherToken] = [await logIn(email), await logIn(email)];
    expect((await post('password/change', change, token)).body).toEqual({ changed: true });
    expect([(await me(token)).status, (await me(otherToken)).status]).toEqual([200, 401]);
    await logIn(email, newPassword);
  });

  test('is in the audit log without the passwords', async () => {
    const token = await logIn(await registerAccount());
    await post('password/change', change, token);
    const entry = world.auditEntries.at(-1);
    expect(entry).toMatchObject({
      action: 'accounts.changePassword',
      actor: { kind: 'user' },
      outcome: 'ok',
    });
    expect(JSON.stringify(entry)).not.toContain('CANARY');
  });

  test('revokes the API keys of the user', async () => {
    const token = await logIn(await registerAccount());
    const key = (await post('keys/create', { name: 'ci' }, token)).body.user_token;
    await post('password/change', change, token);
    expect([(await me(token)).status, (await me(key)).status]).toEqual([200, 401]);
  });

  test('refuses a user without a password', async () => {
    const { body: login } = await post('login/start', { provider: 'local', bureau_id: 'local' });
    const result = await world.call('GET', `/v1/accounts/login/result?login_id=${login.login_id}`);
    const answer = await post('password/change', change, result.body.user_token);
    expect(answer.body.error.code).toBe('conflict');
  });

  test('refuses guests', async () => {
    expect((await post('password/change', change)).status).toBe(401);
  });

  test('refuses API keys', async () => {
    const key = await post('keys/create', { name: 'ci' }, await logIn(await registerAccount()));
    const answer = await post('password/change', change, key.body.user_token);
    expect(answer.body.error.code).toBe('forbidden_for_identity');
  });
});

test('the database and the log contain no password, code or verification id', async () => {
  const email = newAddress();
  const { body } = await register(email);
  const { code } = await mailbox.letterTo(email);
  const dumpBefore = await world.dump();
  await post('verify', { verification_id: body.verification_id, code });
  const token = await logIn(email);
  const wrongPassword = 'CANARY a wrong password';
  await tryLogin(email, wrongPassword);
  const storedText = dumpBefore + (await world.dump()) + world.logLines.join('');
  expect(
    findSecrets(storedText, [
      password,
      wrongPassword,
      body.verification_id,
      token,
      `${code.slice(0, 4)} ${code.slice(4)}`,
    ]),
  ).toEqual([]);
  expect(storedText).not.toContain('CANARY');
  // Eight digits may occur by chance within a digest or a time, but not as a whole word.
  expect(storedText).not.toMatch(new RegExp(`(?<![0-9a-f])${code}(?![0-9a-f])`));
});
