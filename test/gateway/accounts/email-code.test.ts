// The login with a code sent by e-mail.
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { waitForBlockedStatement } from '../../support/locks.ts';
import { startMailbox, type Mailbox } from './mailbox.ts';
import { startWorld, type World } from './world.ts';

let world: World;
let mailbox: Mailbox;
beforeAll(async () => {
  mailbox = await startMailbox();
  world = await startWorld({ env: { SMTP_URL: mailbox.url, MAIL_FROM: 'login@shop.example' } });
});
afterAll(async () => {
  await world?.close();
  await mailbox?.close();
});

const post = (path: string, body: object) => world.call('POST', `/v1/accounts/${path}`, { body });
const newAddress = () => `user-${randomBytes(6).toString('hex')}@example.com`;
const result = (loginId: string) => world.call('GET', `/v1/accounts/login/result?login_id=${loginId}`);

async function start(): Promise<string> {
  const { body } = await post('login/start', { provider: 'email_code', bureau_id: 'local' });
  expect(body).toMatchObject({
    outcome: 'input',
    inputs: [{ name: 'email', type: 'email', required: true }],
  });
  return body.login_id;
}

const send = (loginId: string, email: string) =>
  post('login/continue', { login_id: loginId, input: { email } });
const enter = (loginId: string, code: string) =>
  post('login/continue', { login_id: loginId, input: { code } });
const wrongCodeFor = (code: string) => (code === '00000000' ? '11111111' : '00000000');

describe('the login with an e-mail code', () => {
  test('creates a user once the code is entered', async () => {
    const email = newAddress();
    const loginId = await start();
    const answer = await send(loginId, ` ${email.toUpperCase()} `);
    expect([answer.status, answer.body]).toEqual([
      200,
      {
        login_id: loginId,
        provider: 'email_code',
        outcome: 'input',
        inputs: [{ name: 'code', type: 'code', label: 'Code from the e-mail', required: true }],
      },
    ]);
    expect((await result(loginId)).body.status).toBe('pending');
    const { code, text } = await mailbox.letterTo(email);
    expect(text).toContain('Local');
    expect((await enter(loginId, `${code.slice(0, 4)} ${code.slice(4)}`)).body.outcome).toBe('done');
    expect((await result(loginId)).body.user).toMatchObject({ email });
  });

  test('leads to the same user at each login with an address', async () => {
    const email = newAddress();
    const ids = [];
    for (let login = 1; login <= 2; login += 1) {
      const loginId = await start();
      await send(loginId, email);
      await enter(loginId, (await mailbox.letterTo(email, login)).code);
      ids.push((await result(loginId)).body.user.user_id);
    }
    expect(new Set(ids).size).toBe(1);
  });

  test('accepts the right code after a wrong code', async () => {
    const email = newAddress();
    const loginId = await start();
    await send(loginId, email);
    const { code } = await mailbox.letterTo(email);
    const refusal = await enter(loginId, wrongCodeFor(code));
    expect([refusal.status, refusal.body.error.code]).toEqual([401, 'invalid_credentials']);
    expect((await enter(loginId, code)).body.outcome).toBe('done');
  });

  test('ends an attempt with its fifth input', async () => {
    const email = newAddress();
    const loginId = await start();
    // The address is the first input, so the fourth wrong code is the fifth.
    await send(loginId, email);
    const { code } = await mailbox.letterTo(email);
    for (let attempt = 0; attempt < 4; attempt += 1)
      expect((await enter(loginId, wrongCodeFor(code))).status).toBe(401);
    expect((await enter(loginId, code)).status).toBe(410);
    expect((await result(loginId)).body).toMatchObject({ status: 'failed', error: 'too_many_tries' });
  });

  test('allows five wrong codes for an address over all attempts', async () => {
    const email = newAddress();
    const statuses: number[] = [];
    for (let attempt = 1; attempt <= 2; attempt += 1) {
      const loginId = await start();
      await send(loginId, email);
      const { code } = await mailbox.letterTo(email, attempt);
      for (let guess = 0; guess < 4; guess += 1)
        statuses.push((await enter(loginId, wrongCodeFor(code))).status);
    }
    expect(statuses).toEqual([401, 401, 401, 401, 401, 429, 429, 429]);
  });

  test('creates one user and one token for twenty concurrent right codes', async () => {
    const email = newAddress();
    const loginId = await start();
    await send(loginId, email);
    const { code } = await mailbox.letterTo(email);
    await Promise.all(Array.from({ length: 20 }, () => enter(loginId, code)));
    const reads = await Promise.all(Array.from({ length: 5 }, () => result(loginId)));
    expect([...new Set(reads.map(({ body }) => body.user_token))]).toEqual([
      expect.stringMatching(/^th_usr_/),
    ]);
    expect(
      await world.database.sql`select 1 from gateway.accounts_users where email = ${email}`,
    ).toHaveLength(1);
  });

  test('refuses the code of another attempt', async () => {
    const email = newAddress();
    const [firstLogin, secondLogin] = [await start(), await start()];
    await send(firstLogin, email);
    const { code } = await mailbox.letterTo(email);
    await send(secondLogin, email);
    await mailbox.letterTo(email, 2);
    expect((await enter(secondLogin, code)).status).toBe(401);
  });

  test('refuses a malformed address', async () => {
    const loginId = await start();
    const refusal = await send(loginId, 'nobody');
    expect([refusal.status, refusal.body.error.param]).toEqual([400, 'input.email']);
  });

  test('refuses an address when a code is expected', async () => {
    const loginId = await start();
    const email = newAddress();
    await send(loginId, email);
    const secondAnswer = await send(loginId, email);
    expect([secondAnswer.status, secondAnswer.body.error.param]).toEqual([400, 'input.code']);
  });
});

test('a reader that waits for the lock of an unfinished attempt gets the token', async () => {
  const loginId = await start();
  const loginIdBytes = Buffer.from(loginId);
  const userId = 'usr_01jd6zv0c5e9fsr8m2w4x1k7qa';
  const { resultPromise } = await world.database.tx(async (tx) => {
    await tx`
      select 1 from gateway.accounts_login_attempts where digest = sha256(${loginIdBytes}) for update`;
    const reading = result(loginId);
    await waitForBlockedStatement(world.database.sql);
    await tx`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')`;
    await tx`
      update gateway.accounts_login_attempts set state = 'done', user_id = ${userId}
      where digest = sha256(${loginIdBytes})`;
    // In an object: the transaction would await a bare promise, which resolves only after the transaction.
    return { resultPromise: reading };
  });
  expect((await resultPromise).body).toMatchObject({ status: 'done', user: { user_id: userId } });
});

test('accounts.continueLogin names an unknown member', async () => {
  const unknownMember = await post('login/continue', {
    login_id: await start(),
    input: {},
    user_id: 'usr_1',
  });
  expect([unknownMember.status, unknownMember.body.error.param]).toEqual([400, 'user_id']);
});

test('a login without a redirect ignores redirect_to', async () => {
  const login = await post('login/start', {
    provider: 'email_code',
    bureau_id: 'local',
    redirect_to: `${world.url}/x`,
    code_challenge: 'A'.repeat(43),
  });
  const email = newAddress();
  await send(login.body.login_id, email);
  await enter(login.body.login_id, (await mailbox.letterTo(email)).code);
  expect((await result(login.body.login_id)).body.status).toBe('done');
});
