// The stop of a user's paid calls after repeated usage alarms: it holds on all replicas and after restarts,
// until an administrator lifts it.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { GatewayClient } from '@townhall/gateway';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';

const pollOptions = { timeout: 15_000, interval: 50 };

let provider: ScriptedProvider;
let place: DatabasePlace;
let folder: string;
let env: Record<string, string>;
let world: GatewayWorld;
let userId: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-stopped-'));
  provider = await startProvider();
  const rates = { input: 1_000, output: 1_000 };
  await writeFile(
    join(folder, 'models.json'),
    provider.modelsFile(
      { ok: 'ok', absurd: 'usage-absurd' },
      { provider: { output_limit_member: 'max_tokens' }, model: { rates, max_output_tokens: 100 } },
    ),
  );
  env = {
    ACME_API_KEY: 'key-of-acme',
    MODELS_FILE: join(folder, 'models.json'),
    STARTING_CREDITS: '1000000',
  };
  place = await makeDatabase();
  world = await startGateway({ withAdmin: true, place, env });
  userId = (await world.user.accounts.getMe()).user.user_id;
});
afterAll(async () => {
  await world?.close();
  await place?.remove();
  await provider?.close();
  await rm(folder, { recursive: true, force: true });
});

const ask = (user: GatewayClient, model = 'acme/ok') =>
  user.ai.generateText({ model, prompt: 'hi', max_output_tokens: 10 }).then(
    () => 'answered',
    (error: unknown) => (error as { code: string }).code,
  );
async function readStopEnd(): Promise<string | null | undefined> {
  const response = await fetch(`${world.url}/v1/accounts/users?bureau_id=local`, {
    headers: { authorization: `Bearer ${world.adminToken}` },
  });
  const { items } = (await response.json()) as {
    items: { user_id: string; paid_calls_stopped_until: string | null }[];
  };
  return items.find((user) => user.user_id === userId)?.paid_calls_stopped_until;
}

describe('paid calls of a user with three alarms', () => {
  const unblock = () => world.admin.accounts.unblockUser({ user_id: userId });
  async function raiseAlarms(): Promise<void> {
    for (let count = 0; count < 3; count += 1) expect(await ask(world.user, 'acme/absurd')).toBe('answered');
  }

  beforeEach(async () => {
    await raiseAlarms();
    await expect.poll(readStopEnd, pollOptions).toEqual(expect.any(String));
  });
  afterEach(async () => {
    await unblock();
    await expect.poll(() => ask(world.user), pollOptions).toBe('answered');
  });

  test('are stopped for about an hour', async () => {
    expect(await ask(world.user)).toBe('paid_calls_stopped');
    const remainingMs = Date.parse((await readStopEnd()) ?? '') - Date.now();
    expect(remainingMs).toBeGreaterThan(3_000_000);
    expect(remainingMs).toBeLessThanOrEqual(3_600_000);
  });

  test('stay stopped after a restart', async () => {
    await world.close();
    world = await startGateway({ withAdmin: true, place, env });
    expect(await ask(world.user)).toBe('paid_calls_stopped');
  });

  test('are answered again once an administrator unblocks the user', async () => {
    expect(await unblock()).toMatchObject({ state: 'active', paid_calls_stopped_until: null });
    await expect.poll(() => ask(world.user), pollOptions).toBe('answered');
  });

  describe('with another replica', () => {
    let replica: GatewayWorld;
    beforeEach(async () => {
      replica = await startGateway({ withAdmin: true, place, env });
    });
    afterEach(() => replica?.close());

    test('are stopped on that replica', async () => {
      expect(await ask(replica.user)).toBe('paid_calls_stopped');
    });

    test('are answered again once that replica unblocks the user', async () => {
      await replica.admin.accounts.unblockUser({ user_id: userId });
      await expect.poll(() => ask(world.user), pollOptions).toBe('answered');
    });

    test('are stopped on that replica again by later alarms', async () => {
      await unblock();
      await expect.poll(() => ask(replica.user), pollOptions).toBe('answered');
      await expect.poll(() => ask(world.user), pollOptions).toBe('answered');
      await raiseAlarms();
      await expect.poll(() => ask(replica.user), pollOptions).toBe('paid_calls_stopped');
    });
  });
});
