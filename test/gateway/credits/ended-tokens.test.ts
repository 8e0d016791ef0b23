// Idle credits of revoked and expired tokens, blocked users and paused Bureaus come back at once
// instead of after five seconds, when any idle credits are given back.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { GatewayWorld } from '../../support/gateway.ts';
import type { ScriptedProvider } from '../../support/provider.ts';
import { until } from '../../support/until.ts';
import { makeUser, type Person } from '../bureaus/people.ts';
import { startProviderWorld, type ProviderWorld } from '../provider-world.ts';

let servers: ProviderWorld;
let world: GatewayWorld;
beforeAll(async () => {
  servers = await startProviderWorld(modelsFileOf, { withAdmin: true });
  ({ world } = servers);
});
afterAll(() => servers?.close());

const modelsFileOf = (provider: ScriptedProvider) =>
  provider.modelsFile(
    {},
    {
      models: [
        {
          id: 'acme/paid',
          provider: 'acme',
          upstream_model: 'ok',
          modalities: ['text', 'openai'],
          rates: { input: 1_000_000, output: 1_000_000 },
          max_output_tokens: 64,
        },
      ],
    },
  );

async function readHeld(tokenId: string): Promise<bigint> {
  const [row] = await world.sql<{ amount: bigint }[]>`
    select coalesce(sum(amount), 0)::bigint as amount from gateway.credits_allotments
    where token_id = ${tokenId} and ended_at is null`;
  return row?.amount ?? 0n;
}

/** Makes a paid call; resolves with its status. */
async function chat(userToken: string): Promise<number> {
  const answer = await fetch(`${world.url}/v1/ai/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${userToken}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'acme/paid', messages: [{ role: 'user', content: 'Hello.' }] }),
  });
  await answer.arrayBuffer();
  return answer.status;
}

/** Grants the user credits, makes two calls, and waits until the token has idle credits. */
async function fillAllotment({ userId, userToken, tokenId }: Person): Promise<void> {
  await world.admin.credits.grantCredits({ user_id: userId, credits: 10_000_000, reason: 'for a test' });
  for (let call = 0; call < 2; call += 1) expect(await chat(userToken)).toBe(200);
  await until(async () => (await readHeld(tokenId)) > 0n, 'the token has idle credits');
}

async function makeBureau(): Promise<string> {
  return (await world.admin.bureaus.createBureau({ server_url: 'https://shop.example' })).bureau_id;
}

/** Creates a user of a new Bureau whose token has idle credits. */
async function makeUserWithIdleCredits() {
  const bureauId = await makeBureau();
  const user = await makeUser(world.sql, bureauId);
  await fillAllotment(user);
  return { ...user, bureauId };
}

/** Creates a user whose token a machine credential issued. The token expires with the credential. */
async function makeUserOfMachine(ttlSeconds: number) {
  const bureauId = await makeBureau();
  const { credential, credentialId } = await world.gateway.machines.create({
    scopes: ['tokens.issue'],
    bureauId,
    ttlSeconds,
  });
  const token = await world
    .as(credential)
    .accounts.issueToken({ bureau_id: bureauId, external_id: 'customer' });
  const user = { userId: token.user_id, userToken: token.user_token, tokenId: token.token_id };
  await fillAllotment(user);
  return { ...user, credentialId };
}

async function readAccountHeld(userId: string): Promise<bigint> {
  const [row] = await world.sql<{ held: bigint }[]>`
    select held from gateway.credits_accounts where account_id = ${userId}`;
  return row?.held ?? 0n;
}

// The credits should come back within a second. The bound leaves room for a busy machine, and is
// below the five seconds after which unused credits are given back anyway.
const maximumDelayMs = 4_000;

describe('idle credits come back within a second', () => {
  test.each([
    ['a revoked token', ({ tokenId }) => world.admin.accounts.revokeTokens({ token_id: tokenId })],
    ['a blocked user', ({ userId }) => world.admin.accounts.blockUser({ user_id: userId })],
    ['a paused Bureau', ({ bureauId }) => world.admin.bureaus.pauseBureau({ bureau_id: bureauId })],
  ] satisfies [string, (user: Awaited<ReturnType<typeof makeUserWithIdleCredits>>) => Promise<unknown>][])(
    'from %s',
    async (_name, end) => {
      const user = await makeUserWithIdleCredits();
      await end(user);
      const delayMs = await until(
        async () => (await readHeld(user.tokenId)) === 0n,
        'the credits are given back',
      );
      expect(delayMs).toBeLessThan(maximumDelayMs);
    },
  );

  test('from a token whose machine credential was revoked', async () => {
    const { userId, tokenId, credentialId } = await makeUserOfMachine(600);
    await world.gateway.machines.revoke(credentialId);
    const delayMs = await until(async () => (await readHeld(tokenId)) === 0n, 'the credits are given back');
    expect(delayMs).toBeLessThan(maximumDelayMs);
    expect(await readAccountHeld(userId)).toBe(0n);
  });

  test('from a token whose machine credential has expired', async () => {
    const { userId, userToken, tokenId } = await makeUserOfMachine(5);
    // Use the token until it expires, so that its credits are not given back as unused.
    await until(async () => (await chat(userToken)) === 401, 'the token has expired');
    const delayMs = await until(async () => (await readHeld(tokenId)) === 0n, 'the credits are given back');
    expect(delayMs).toBeLessThan(maximumDelayMs);
    expect(await readAccountHeld(userId)).toBe(0n);
  });
});
