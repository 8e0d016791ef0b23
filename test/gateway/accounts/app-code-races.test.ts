// Logins whose result is read, and API keys that are created, while an administrator revokes the user's tokens,
// removes the user, or the user resets the password. These races need PostgreSQL: the embedded engine runs only one transaction at a time.
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { id } from '../../../src/kernel/ids.ts';
import { createToken } from '../../../src/kernel/secrets/secret.ts';
import { waitForBlockedStatement } from '../../support/locks.ts';
import { createProof, startWorld, type World } from './world.ts';

const redirectUri = 'https://shop.example/welcome';
let world: World;
let admin: string;
beforeAll(async () => {
  world = await startWorld();
  const { sql } = world.database;
  await sql`update gateway.bureaus_records set redirect_uris = ${[redirectUri]}::text[]`;
  admin = await world.logInAdmin();
});
afterAll(() => world?.close());

const revokeTokens = (userId: string) =>
  world.call('POST', '/v1/accounts/tokens/revoke', { body: { user_id: userId }, token: admin });

/** A finished login with a code for the app. */
async function createCode() {
  const { verifier, challenge } = createProof();
  const { body } = await world.call('POST', '/v1/accounts/login/start', {
    body: { provider: 'local', bureau_id: 'local' },
  });
  const answer = await world.call('POST', '/v1/accounts/login/code', {
    body: {
      login_id: body.login_id,
      redirect_uri: redirectUri,
      code_challenge: challenge,
      state: 's',
    },
  });
  const digest = createHash('sha256').update(body.login_id).digest();
  const [attempt] = await world.database.sql<{ userId: string }[]>`
    select user_id as "userId" from gateway.accounts_login_attempts where digest = ${digest}`;
  const code = new URL(answer.body.url).searchParams.get('code') ?? '';
  return { loginId: body.login_id, code, verifier, digest, userId: attempt?.userId ?? '' };
}

const exchange = ({ code, verifier }: { code: string; verifier: string }) =>
  world.call('POST', '/v1/accounts/login/token', {
    body: { code, code_verifier: verifier, redirect_uri: redirectUri },
  });

test('a revocation of the user’s tokens also invalidates the code of a login', async () => {
  const login = await createCode();
  expect((await revokeTokens(login.userId)).status).toBe(200);
  expect((await exchange(login)).status).toBe(401);
});

describe('a login whose result is being read', () => {
  test('leaves no valid token after a revocation', async () => {
    const { digest, userId } = await createCode();
    const userToken = createToken('usr');
    const { revocation } = await world.database.tx(async (tx) => {
      // Lock the attempt, then store the token, as a reader of the login does.
      await tx`select 1 from gateway.accounts_login_attempts where digest = ${digest} for update`;
      await tx`
        insert into gateway.accounts_tokens (token_id, user_id, kind, digest, last4, expires_at)
        values (${id('tok')}, ${userId}, 'user', sha256(${Buffer.from(userToken)}), ${userToken.slice(-4)},
          now() + interval '1 hour')`;
      const revocation = revokeTokens(userId);
      await waitForBlockedStatement(world.database.sql);
      // In an object: the transaction would await a bare promise, which resolves only after the transaction.
      return { revocation };
    });
    expect((await revocation).status).toBe(200);
    expect((await world.call('GET', '/v1/accounts/me', { token: userToken })).status).toBe(401);
  });

  type Login = Awaited<ReturnType<typeof createCode>>;
  test.each<[string, (login: Login) => ReturnType<World['call']>, number]>([
    ['by its code', exchange, 401],
    ['by its id', ({ loginId }) => world.call('GET', `/v1/accounts/login/result?login_id=${loginId}`), 404],
  ])('does not deadlock with a password reset when it is read %s', async (_name, read, status) => {
    const login = await createCode();
    const { reading } = await world.database.tx(async (tx) => {
      // Lock the user, then delete the attempts, as a reset does.
      await tx`select 1 from gateway.accounts_users where user_id = ${login.userId} for update`;
      const reading = read(login);
      await waitForBlockedStatement(world.database.sql);
      await tx`delete from gateway.accounts_login_attempts where user_id = ${login.userId}`;
      return { reading };
    });
    expect((await reading).status).toBe(status);
  });
});

test('the creation of an API key does not deadlock with a password reset', async () => {
  const { loginId, userId } = await createCode();
  const result = await world.call('GET', `/v1/accounts/login/result?login_id=${loginId}`);
  const { creation } = await world.database.tx(async (tx) => {
    // Lock the user, then revoke the tokens, as a reset does.
    await tx`select 1 from gateway.accounts_users where user_id = ${userId} for update`;
    const creation = world.call('POST', '/v1/accounts/keys/create', {
      token: result.body.user_token,
      body: { name: 'late' },
    });
    await waitForBlockedStatement(world.database.sql);
    await tx`update gateway.accounts_tokens set revoked_at = gateway.townhall_now() where user_id = ${userId}`;
    return { creation };
  });
  expect((await creation).status).toBe(401);
});

test('the read of a login that is finished meanwhile does not deadlock with a password reset', async () => {
  const { loginId, digest, userId } = await createCode();
  const { sql } = world.database;
  await sql`update gateway.accounts_login_attempts set state = 'pending', user_id = null where digest = ${digest}`;
  const { reading, reset } = await world.database.tx(async (browser) => {
    // Lock the attempt, then finish it, as the person's browser does.
    await browser`select 1 from gateway.accounts_login_attempts where digest = ${digest} for update`;
    const reading = world.call('GET', `/v1/accounts/login/result?login_id=${loginId}`);
    await waitForBlockedStatement(sql);
    await browser`
      update gateway.accounts_login_attempts set state = 'done', user_id = ${userId} where digest = ${digest}`;
    const reset = world.database.tx(async (tx) => {
      await tx`select 1 from gateway.accounts_users where user_id = ${userId} for update`;
      await tx`delete from gateway.accounts_login_attempts where user_id = ${userId}`;
    });
    // Both wait for this transaction: the read for the attempt, the reset for the user that the attempt refers to.
    await waitForBlockedStatement(sql, 2);
    return { reading, reset };
  });
  await reset;
  expect((await reading).status).toBe(404);
});

test('the poll of a device login does not deadlock with the removal of its user', async () => {
  const { loginId, userId } = await createCode();
  const { body: result } = await world.call('GET', `/v1/accounts/login/result?login_id=${loginId}`);
  const start = await world.call('POST', '/v1/accounts/device/start', {
    body: { bureau_id: 'local', name: 'a program' },
  });
  const { device_code: deviceCode, user_code: userCode } = JSON.parse(start.text) as Record<string, string>;
  const decision = await world.call('POST', '/v1/accounts/device/decide', {
    token: result.user_token,
    body: { user_code: userCode, decision: 'confirm' },
  });
  expect(decision.status).toBe(200);
  const { polling } = await world.database.tx(async (tx) => {
    // Lock the user, then delete the tokens, as a removal does.
    await tx`select 1 from gateway.accounts_users where user_id = ${userId} for update`;
    const polling = world.call('POST', '/v1/accounts/device/result', { body: { device_code: deviceCode } });
    await waitForBlockedStatement(world.database.sql);
    await tx`delete from gateway.accounts_tokens where user_id = ${userId}`;
    return { polling };
  });
  // The deletion of the token that confirmed has deleted the login.
  expect((await polling).status).toBe(404);
});
