// Rotation of the master key under load: no read fails, and afterwards the old key decrypts nothing.
import { afterEach, beforeEach, describe, expect, inject, test, vi } from 'vitest';
import { newMasterKey } from '../../../src/kernel/secrets/vault.ts';
import { makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import { refusal, startEnvWorld, type EnvWorld } from './world.ts';
import { until } from '../../support/until.ts';

// Starts several gateways one after the other on a busy machine.
vi.setConfig({ testTimeout: 180_000 });

const secret = 'CANARY-rotating-0123';
const oldKey = newMasterKey();
const newKey = newMasterKey();
const bothKeys = { TOWNHALL_MASTER_KEY: newKey, TOWNHALL_MASTER_KEY_PREVIOUS: oldKey };
const isPostgres = inject('databaseSource')?.engine === 'postgres';

let place: DatabasePlace;
const worlds: EnvWorld[] = [];
beforeEach(async () => {
  place = await makeDatabase();
});
afterEach(async () => {
  for (const world of worlds.splice(0).reverse()) await world.close();
  await place.remove();
});

async function start(env: Record<string, string>): Promise<EnvWorld> {
  const world = await startEnvWorld({ place, env });
  worlds.push(world);
  return world;
}

async function stop(world: EnvWorld): Promise<void> {
  worlds.splice(worlds.indexOf(world), 1);
  await world.close();
}

const readKeyIds = async (world: EnvWorld): Promise<string[]> => {
  const rows = await world.sql<{ kid: string }[]>`
    select distinct split_part(sealed, '.', 2) as kid
    from (
      select sealed from gateway.env_variables union all select sealed from gateway.env_canary
    ) as sealed_values order by 1`;
  return rows.map(({ kid }) => kid);
};

/** Calls the model until stopped, and counts its calls and collects their errors. */
function startLoad(world: EnvWorld): { stop(): Promise<{ calls: number; failures: unknown[] }> } {
  const failures: unknown[] = [];
  let calls = 0;
  let isOver = false;
  const traffic = (async () => {
    while (!isOver) {
      calls += 1;
      await world.user.ai
        .generateText({ model: 'acme/fast', prompt: 'x' })
        .catch((error: unknown) => failures.push(error));
    }
  })();
  return {
    async stop() {
      isOver = true;
      await traffic;
      return { calls, failures };
    },
  };
}

describe('townhall env rewrap', () => {
  test('moves all values to the new key while calls use them', async () => {
    const oldGateway = await start({ TOWNHALL_MASTER_KEY: oldKey });
    const content = Array.from({ length: 100 }, (_, index) => `KEY_${index}=value-${index}-${secret}`).join(
      '\n',
    );
    await oldGateway.admin.env.importVariables({ content: `ACME_API_KEY=${secret}\n${content}` });
    const oldKids = await readKeyIds(oldGateway);
    expect(oldKids).toHaveLength(1);
    await stop(oldGateway);

    const world = await start(bothKeys);
    expect(world.logLines.join('')).toContain('townhall env rewrap');
    // Before `rewrap`, values are encrypted with the old key, since every server has it.
    await world.admin.env.upsertVariable({ key: 'WRITTEN_BEFORE', value: secret });
    expect(await readKeyIds(world)).toEqual(oldKids);

    const load = startLoad(world);
    const { rewrapped: rewrappedCount, kid } = await world.gateway.rewrapEnv();
    await world.admin.env.upsertVariable({ key: 'WRITTEN_AFTER', value: secret });
    const { calls, failures } = await load.stop();
    expect(failures).toEqual([]);
    expect(calls).toBeGreaterThan(0);
    // ACME_API_KEY, the 100 others and WRITTEN_BEFORE. WRITTEN_AFTER has the new key from the start.
    expect(rewrappedCount).toBe(102);
    expect(await readKeyIds(world)).toEqual([kid]);
    expect(oldKids).not.toContain(kid);
    expect(new Set(world.keysSent())).toEqual(new Set([secret]));
    const { items } = await world.admin.env.listVariables({ reveal: true });
    expect(items.filter(({ value }) => value.includes(secret))).toHaveLength(103);
    await expect(world.gateway.rewrapEnv()).resolves.toEqual({ rewrapped: 0, kid });
    expect(await world.sql`select diff from gateway.audit_entries where action = 'env.rewrap'`).toEqual([
      { diff: { kid, rewrapped: 102 } },
    ]);
    await stop(world);

    await expect(start({ TOWNHALL_MASTER_KEY: oldKey })).rejects.toThrow('Nothing was changed');
    const newGateway = await start({ TOWNHALL_MASTER_KEY: newKey });
    await newGateway.user.ai.generateText({ model: 'acme/fast', prompt: 'x' });
    expect(newGateway.keysSent()).toEqual([secret]);
  });

  test('changes nothing when a value cannot be decrypted', async () => {
    const oldGateway = await start({ TOWNHALL_MASTER_KEY: oldKey });
    await oldGateway.admin.env.importVariables({ content: `GOOD=${secret}\nBROKEN=${secret}` });
    await oldGateway.sql`update gateway.env_variables set version = version + 1000 where key = 'BROKEN'`;
    const oldKids = await readKeyIds(oldGateway);
    await stop(oldGateway);
    const world = await start(bothKeys);
    await expect(world.gateway.rewrapEnv()).rejects.toMatchObject({
      status: 409,
      code: 'env_unreadable',
      message: expect.stringContaining('BROKEN'),
    });
    expect(await readKeyIds(world)).toEqual(oldKids);
    await world.admin.env.removeVariable({ key: 'BROKEN' });
    await expect(world.gateway.rewrapEnv()).resolves.toMatchObject({ rewrapped: 1 });
  });

  test.runIf(isPostgres)('does not fail the calls of another gateway', async () => {
    const firstGateway = await start({ TOWNHALL_MASTER_KEY: oldKey, TOWNHALL_MASTER_KEY_PREVIOUS: newKey });
    const otherGateway = await start(bothKeys);
    await firstGateway.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: secret });
    await until(
      async () => (await otherGateway.user.ai.listModels()).items.some(({ id }) => id === 'acme/fast'),
      'the other gateway has the key',
    );
    const loads = [startLoad(firstGateway), startLoad(otherGateway)];
    const { kid } = await otherGateway.gateway.rewrapEnv();
    await firstGateway.admin.env.upsertVariable({ key: 'LATER', value: secret });
    await until(
      async () => (await otherGateway.admin.env.listVariables()).items.some(({ key }) => key === 'LATER'),
      'the other gateway has the later variable',
    );
    for (const load of loads) expect((await load.stop()).failures).toEqual([]);
    expect(await readKeyIds(otherGateway)).toEqual([kid]);
  });

  test.runIf(isPostgres)('makes a gateway with only the old key refuse writes', async () => {
    const lateGateway = await start({ TOWNHALL_MASTER_KEY: oldKey });
    const newerGateway = await start(bothKeys);
    await newerGateway.gateway.rewrapEnv();
    const sealedProblem = { status: 503, code: 'env_sealed' };
    const firstWrite = lateGateway.admin.env.upsertVariable({ key: 'X', value: 'y' });
    expect(await refusal(firstWrite)).toMatchObject(sealedProblem);
    const severalVariables = lateGateway.admin.env.importVariables({ content: 'X=y' });
    expect(await refusal(severalVariables)).toMatchObject(sealedProblem);
  });
});
