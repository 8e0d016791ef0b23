// A revocation applies at once on its own replica and within a second on all other replicas, although each
// replica caches the identities of tokens.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startReplicas, type GatewayWorld } from '../../support/gateway.ts';
import { makeUser, revoke } from '../bureaus/people.ts';
import { startMailbox, type Mailbox } from './mailbox.ts';
import { until } from '../../support/until.ts';

let replicas: Awaited<ReturnType<typeof startReplicas>>;
let firstReplica: GatewayWorld;
let otherReplica: GatewayWorld;
let mailbox: Mailbox;

beforeAll(async () => {
  mailbox = await startMailbox();
  const env = { SMTP_URL: mailbox.url, MAIL_FROM: 'Shop <login@shop.example>' };
  replicas = await startReplicas(env);
  ({ first: firstReplica, other: otherReplica } = replicas);
});
afterAll(async () => {
  await replicas?.close();
  await mailbox?.close();
});

interface Holder {
  userToken: string;
  tokenId: string;
  userId: string;
  bureauId: string;
}

async function makeHolder(): Promise<Holder> {
  const { bureau_id: bureauId } = await firstReplica.admin.bureaus.createBureau({
    server_url: 'https://shop.example',
  });
  const token = await firstReplica.admin.accounts.issueToken({ bureau_id: bureauId, external_id: 'holder' });
  return { userToken: token.user_token, tokenId: token.token_id, userId: token.user_id, bureauId };
}

async function makeKey(): Promise<Holder & { owner: string }> {
  const holder = await makeHolder();
  const key = await firstReplica.as(holder.userToken).accounts.createKey({ name: 'for a script' });
  return { ...holder, owner: holder.userToken, userToken: key.user_token, tokenId: key.token_id };
}

const password = 'a garden of forking paths';
let accountCount = 0;

async function makeAccount(): Promise<string> {
  const email = `person-${(accountCount += 1)}@shop.example`;
  const { verification_id } = await firstReplica.guest.accounts.register({
    bureau_id: 'local',
    email,
    password,
  });
  await firstReplica.guest.accounts.verifyEmail({
    verification_id,
    code: (await mailbox.letterTo(email)).code,
  });
  return email;
}

async function logIn(email: string): Promise<string> {
  const { login_id } = await firstReplica.guest.accounts.startLogin({
    provider: 'password',
    bureau_id: 'local',
  });
  await firstReplica.guest.accounts.continueLogin({ login_id, input: { email, password } });
  const result = await firstReplica.guest.accounts.getLoginResult({ login_id });
  if (result.status !== 'done') throw new Error(`The login of ${email} is ${result.status}.`);
  return result.user_token;
}

const statusAt = (world: GatewayWorld, token: string): Promise<number> =>
  world
    .as(token)
    .ai.listModels()
    .then(
      () => 200,
      (error: unknown) => (error as { status: number }).status,
    );

/** Whether the gateway answers from its cache, which it does not do shortly after a change of its own. */
async function answersFromCache(world: GatewayWorld): Promise<boolean> {
  const { userToken, tokenId } = await makeUser(firstReplica.sql, 'local');
  await statusAt(world, userToken);
  // Write directly into the table, so that no change notice is sent.
  await revoke(firstReplica.sql, tokenId);
  return (await statusAt(world, userToken)) === 200;
}

/** Waits until both replicas have the identity of the token cached. */
async function waitUntilCached({ userToken }: Pick<Holder, 'userToken'>): Promise<void> {
  for (const world of [firstReplica, otherReplica]) {
    await expect.poll(() => answersFromCache(world)).toBe(true);
    expect(await statusAt(world, userToken)).toBe(200);
  }
}

describe('a token that both replicas have cached', () => {
  test.each<[string, number, (holder: Holder) => Promise<unknown>]>([
    [
      'was revoked by its id',
      401,
      ({ tokenId }) => firstReplica.admin.accounts.revokeTokens({ token_id: tokenId }),
    ],
    [
      'was revoked with all of its user',
      401,
      ({ userId }) => firstReplica.admin.accounts.revokeTokens({ user_id: userId }),
    ],
    [
      'was revoked with all of its Bureau',
      401,
      ({ bureauId }) => firstReplica.admin.accounts.revokeTokens({ bureau_id: bureauId }),
    ],
    ['was logged out with', 401, ({ userToken }) => firstReplica.as(userToken).accounts.logout()],
    [
      'belongs to a user who was blocked',
      401,
      ({ userId }) => firstReplica.admin.accounts.blockUser({ user_id: userId }),
    ],
    [
      'belongs to a user who was removed',
      401,
      ({ userId }) => firstReplica.admin.accounts.removeUser({ user_id: userId }),
    ],
    [
      'belongs to a Bureau that was paused',
      403,
      ({ bureauId }) => firstReplica.admin.bureaus.pauseBureau({ bureau_id: bureauId }),
    ],
    [
      'belongs to a Bureau that was archived',
      403,
      ({ bureauId }) => firstReplica.admin.bureaus.archiveBureau({ bureau_id: bureauId }),
    ],
  ])('that %s is refused with %i', async (description, status, revokeAccess) => {
    const holder = await makeHolder();
    await waitUntilCached(holder);
    await revokeAccess(holder);
    expect(await statusAt(firstReplica, holder.userToken)).toBe(status);
    const delayMs = await until(
      async () => (await statusAt(otherReplica, holder.userToken)) === status,
      description,
    );
    // The promise is one second; the bound allows for a busy machine.
    expect(delayMs).toBeLessThan(6_000);
  });

  test('is refused after its user revoked the key', async () => {
    const key = await makeKey();
    await waitUntilCached(key);
    await firstReplica.as(key.owner).accounts.revokeKey({ token_id: key.tokenId });
    expect(await statusAt(firstReplica, key.userToken)).toBe(401);
    await until(async () => (await statusAt(otherReplica, key.userToken)) === 401, 'the key is refused');
    expect(await statusAt(otherReplica, key.owner)).toBe(200);
  });

  test('is refused after a password change by another login', async () => {
    const email = await makeAccount();
    const [currentToken, otherToken] = [await logIn(email), await logIn(email)];
    for (const userToken of [currentToken, otherToken]) await waitUntilCached({ userToken });
    await firstReplica
      .as(currentToken)
      .accounts.changePassword({ current_password: password, new_password: 'the library of babel' });
    expect(await statusAt(firstReplica, otherToken)).toBe(401);
    await until(async () => (await statusAt(otherReplica, otherToken)) === 401, 'the other login is refused');
    expect([await statusAt(firstReplica, currentToken), await statusAt(otherReplica, currentToken)]).toEqual([
      200, 200,
    ]);
  });

  test('is refused after a password reset', async () => {
    const email = await makeAccount();
    const userToken = await logIn(email);
    await waitUntilCached({ userToken });
    const { verification_id } = await firstReplica.guest.accounts.requestPasswordReset({
      bureau_id: 'local',
      email,
    });
    await firstReplica.guest.accounts.resetPassword({
      verification_id,
      code: (await mailbox.letterTo(email, 2)).code,
      password: 'the library of babel',
    });
    expect(await statusAt(firstReplica, userToken)).toBe(401);
    await until(async () => (await statusAt(otherReplica, userToken)) === 401, 'the login is refused');
  });

  test('is accepted again once its user and Bureau are active again', async () => {
    const holder = await makeHolder();
    await waitUntilCached(holder);
    await firstReplica.admin.accounts.blockUser({ user_id: holder.userId });
    await until(
      async () => (await statusAt(otherReplica, holder.userToken)) === 401,
      'the blocked user is refused',
    );
    await firstReplica.admin.accounts.unblockUser({ user_id: holder.userId });
    await firstReplica.admin.bureaus.pauseBureau({ bureau_id: holder.bureauId });
    await until(
      async () => (await statusAt(otherReplica, holder.userToken)) === 403,
      'the paused Bureau is refused',
    );
    await firstReplica.admin.bureaus.activateBureau({ bureau_id: holder.bureauId });
    await until(
      async () => (await statusAt(otherReplica, holder.userToken)) === 200,
      'the token is accepted again',
    );
    expect(await statusAt(firstReplica, holder.userToken)).toBe(200);
  });
});
