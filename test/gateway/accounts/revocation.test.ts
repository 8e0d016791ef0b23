// A revocation applies at once on its own replica and within a second on every other, although each
// replica caches the identity of tokens.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startReplicas, type GatewayWorld } from '../../support/gateway.ts';
import { makeUser, revoke, until } from '../bureaus/people.ts';
import { startMailbox, type Mailbox } from './mailbox.ts';

let replicas: Awaited<ReturnType<typeof startReplicas>>;
let one: GatewayWorld;
let other: GatewayWorld;
let mailbox: Mailbox;

beforeAll(async () => {
  mailbox = await startMailbox();
  const env = { SMTP_URL: mailbox.url, MAIL_FROM: 'Shop <login@shop.example>' };
  replicas = await startReplicas(env);
  ({ one, other } = replicas);
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
  const { bureau_id: bureauId } = await one.admin.bureaus.createBureau({
    server_url: 'https://shop.example',
  });
  const issued = await one.admin.accounts.issueToken({ bureau_id: bureauId, external_id: 'holder' });
  return { userToken: issued.user_token, tokenId: issued.token_id, userId: issued.user_id, bureauId };
}

async function makeKey(): Promise<Holder & { owner: string }> {
  const holder = await makeHolder();
  const key = await one.as(holder.userToken).accounts.createKey({ name: 'for a script' });
  return { ...holder, owner: holder.userToken, userToken: key.user_token, tokenId: key.token_id };
}

const password = 'a garden of forking paths';
let addresses = 0;

async function makeAccount(): Promise<string> {
  const email = `person-${++addresses}@shop.example`;
  const { verification_id } = await one.guest.accounts.register({ bureau_id: 'local', email, password });
  await one.guest.accounts.verifyEmail({ verification_id, code: (await mailbox.letterTo(email)).code });
  return email;
}

async function logIn(email: string): Promise<string> {
  const { login_id } = await one.guest.accounts.startLogin({ provider: 'password', bureau_id: 'local' });
  await one.guest.accounts.continueLogin({ login_id, input: { email, password } });
  const result = await one.guest.accounts.getLoginResult({ login_id });
  return result.status === 'done' ? result.user_token : '';
}

const statusAt = (world: GatewayWorld, token: string): Promise<number> =>
  world
    .as(token)
    .ai.listModels()
    .then(
      () => 200,
      (error: unknown) => (error as { status: number }).status,
    );

/** Whether the gateway answers from its cache; shortly after its own change it does not. */
async function keepsWhatItRead(world: GatewayWorld): Promise<boolean> {
  const { userToken, tokenId } = await makeUser(one.sql, 'local');
  await statusAt(world, userToken);
  // Written directly into the table, so that no change notice is sent.
  await revoke(one.sql, tokenId);
  return (await statusAt(world, userToken)) === 200;
}

/** Waits until both replicas have the identity cached. */
async function isKnown({ userToken }: Pick<Holder, 'userToken'>): Promise<void> {
  for (const world of [one, other]) {
    await expect.poll(() => keepsWhatItRead(world)).toBe(true);
    expect(await statusAt(world, userToken)).toBe(200);
  }
}

describe('a token that both replicas have cached', () => {
  test.each<[string, number, (holder: Holder) => Promise<unknown>]>([
    ['was revoked by its id', 401, ({ tokenId }) => one.admin.accounts.revokeTokens({ token_id: tokenId })],
    [
      'was revoked with all of its user',
      401,
      ({ userId }) => one.admin.accounts.revokeTokens({ user_id: userId }),
    ],
    [
      'was revoked with all of its Bureau',
      401,
      ({ bureauId }) => one.admin.accounts.revokeTokens({ bureau_id: bureauId }),
    ],
    ['was logged out with', 401, ({ userToken }) => one.as(userToken).accounts.logout()],
    [
      'belongs to a user who was blocked',
      401,
      ({ userId }) => one.admin.accounts.blockUser({ user_id: userId }),
    ],
    [
      'belongs to a user who was removed',
      401,
      ({ userId }) => one.admin.accounts.removeUser({ user_id: userId }),
    ],
    [
      'belongs to a Bureau that was paused',
      403,
      ({ bureauId }) => one.admin.bureaus.pauseBureau({ bureau_id: bureauId }),
    ],
    [
      'belongs to a Bureau that was archived',
      403,
      ({ bureauId }) => one.admin.bureaus.archiveBureau({ bureau_id: bureauId }),
    ],
  ])('that %s is refused with %i', async (what, status, takeAway) => {
    const holder = await makeHolder();
    await isKnown(holder);
    await takeAway(holder);
    expect(await statusAt(one, holder.userToken)).toBe(status);
    const ms = await until(async () => (await statusAt(other, holder.userToken)) === status, what);
    console.log(`a token that ${what} was refused on the other gateway after ${Math.round(ms)} ms`);
    // The promise is one second; the bound allows for a busy machine.
    expect(ms).toBeLessThan(6_000);
  });

  test('is refused after its user revoked the key', async () => {
    const key = await makeKey();
    await isKnown(key);
    await one.as(key.owner).accounts.revokeKey({ token_id: key.tokenId });
    expect(await statusAt(one, key.userToken)).toBe(401);
    await until(async () => (await statusAt(other, key.userToken)) === 401, 'the key is refused');
    expect(await statusAt(other, key.owner)).toBe(200);
  });

  test('is refused after a password change elsewhere, except the one in use', async () => {
    const email = await makeAccount();
    const [inUse, elsewhere] = [await logIn(email), await logIn(email)];
    for (const userToken of [inUse, elsewhere]) await isKnown({ userToken });
    await one
      .as(inUse)
      .accounts.changePassword({ current_password: password, new_password: 'the library of babel' });
    expect(await statusAt(one, elsewhere)).toBe(401);
    await until(async () => (await statusAt(other, elsewhere)) === 401, 'the other login is refused');
    expect([await statusAt(one, inUse), await statusAt(other, inUse)]).toEqual([200, 200]);
  });

  test('is refused after a password reset', async () => {
    const email = await makeAccount();
    const userToken = await logIn(email);
    await isKnown({ userToken });
    const { verification_id } = await one.guest.accounts.requestPasswordReset({ bureau_id: 'local', email });
    await one.guest.accounts.resetPassword({
      verification_id,
      code: (await mailbox.letterTo(email, 2)).code,
      password: 'the library of babel',
    });
    expect(await statusAt(one, userToken)).toBe(401);
    await until(async () => (await statusAt(other, userToken)) === 401, 'the login is refused');
  });

  test('is accepted again once its user and Bureau are active again', async () => {
    const holder = await makeHolder();
    await one.admin.accounts.blockUser({ user_id: holder.userId });
    await until(async () => (await statusAt(other, holder.userToken)) === 401, 'the blocked user is refused');
    await one.admin.accounts.unblockUser({ user_id: holder.userId });
    await one.admin.bureaus.pauseBureau({ bureau_id: holder.bureauId });
    await until(
      async () => (await statusAt(other, holder.userToken)) === 403,
      'the paused Bureau is refused',
    );
    await one.admin.bureaus.activateBureau({ bureau_id: holder.bureauId });
    await until(async () => (await statusAt(other, holder.userToken)) === 200, 'the token is good again');
    expect(await statusAt(one, holder.userToken)).toBe(200);
  });
});
