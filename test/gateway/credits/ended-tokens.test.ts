// Idle credits of tokens that were revoked, of blocked users and of paused Bureaus come back at once, not after five seconds.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { makeUser, until } from '../bureaus/people.ts';

let provider: ScriptedProvider;
let folder: string;
let world: GatewayWorld;
beforeAll(async () => {
  provider = await startProvider();
  folder = await mkdtemp(join(tmpdir(), 'townhall-ended-'));
  const modelsFile = join(folder, 'models.json');
  const rates = { input: 1_000_000, output: 1_000_000 };
  await writeFile(
    modelsFile,
    provider.modelsFile(
      {},
      {
        models: [
          {
            id: 'acme/paid',
            provider: 'acme',
            upstream_model: 'ok',
            modalities: ['text', 'openai'],
            rates,
            max_output_tokens: 64,
          },
        ],
      },
    ),
  );
  world = await startGateway({
    withAdmin: true,
    env: { MODELS_FILE: modelsFile, ACME_API_KEY: 'a key for tests' },
  });
});
afterAll(async () => {
  await world?.close();
  await provider?.close();
  await rm(folder, { recursive: true, force: true });
});

async function heldFor(tokenId: string): Promise<bigint> {
  const [row] = await world.sql<{ amount: bigint }[]>`
    select coalesce(sum(amount), 0)::bigint as amount from gateway.credits_allotments
    where token_id = ${tokenId} and ended_at is null`;
  return row?.amount ?? 0n;
}

/** A user of a Bureau of its own whose token has idle credits. */
async function userWithIdleCredits() {
  const { bureau_id } = await world.admin.bureaus.createBureau({ server_url: 'https://shop.example' });
  const user = await makeUser(world.sql, bureau_id);
  await world.admin.credits.grantCredits({ user_id: user.userId, credits: 10_000_000, reason: 'for a test' });
  for (let call = 0; call < 2; call += 1) {
    const answer = await fetch(`${world.url}/v1/ai/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${user.userToken}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'acme/paid', messages: [{ role: 'user', content: 'Hello.' }] }),
    });
    expect(await answer.text()).toContain('choices');
  }
  await until(async () => (await heldFor(user.tokenId)) > 0n, 'the token has idle credits');
  return { ...user, bureauId: bureau_id };
}

describe('idle credits come back within a second', () => {
  test.each([
    ['a revoked token', ({ tokenId }) => world.admin.accounts.revokeTokens({ token_id: tokenId })],
    ['a blocked user', ({ userId }) => world.admin.accounts.blockUser({ user_id: userId })],
    ['a paused Bureau', ({ bureauId }) => world.admin.bureaus.pauseBureau({ bureau_id: bureauId })],
  ] satisfies [string, (user: Awaited<ReturnType<typeof userWithIdleCredits>>) => Promise<unknown>][])(
    'from %s',
    async (_name, end) => {
      const user = await userWithIdleCredits();
      await end(user);
      const ms = await until(async () => (await heldFor(user.tokenId)) === 0n, 'the credits are given back');
      // The promise is one second; the bound leaves room for a busy machine, and is below the give-back of unused credits.
      expect(ms).toBeLessThan(4_000);
    },
  );
});
