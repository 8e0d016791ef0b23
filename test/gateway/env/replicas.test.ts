// Two gateways on one PostgreSQL: a value stored through one is used by the other, also after a
// database outage.
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import { modelIds, startEnvWorld, type EnvWorld } from './world.ts';
import { until } from '../../support/until.ts';

const isPostgres = inject('databaseSource')?.engine === 'postgres';

describe.runIf(isPostgres)('two gateways on one database', () => {
  let place: DatabasePlace;
  let first: EnvWorld;
  let other: EnvWorld;
  beforeAll(async () => {
    place = await makeDatabase();
    first = await startEnvWorld({ place });
    other = await startEnvWorld({ place });
  });
  afterAll(async () => {
    await other?.close();
    await first?.close();
    await place?.remove();
  });
  const has = async (world: EnvWorld) => (await modelIds(world)).includes('acme/fast');

  test('a variable written or removed on one changes on the other', async () => {
    const timesMs: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      await first.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: `CANARY-round-${round}` });
      timesMs.push(await until(() => has(other), 'the other gateway has the model'));
      await other.user.ai.generateText({ model: 'acme/fast', prompt: 'x' });
      expect(other.keysSent().at(-1)).toBe(`CANARY-round-${round}`);
      await other.admin.env.removeVariable({ key: 'ACME_API_KEY' });
      timesMs.push(await until(async () => !(await has(first)), 'the first gateway has the model no more'));
    }
    console.log(
      `a change was seen on the other gateway after ${timesMs.map((ms) => Math.round(ms)).join(', ')} ms`,
    );
    // The promise is one second; a busy machine may be late for some of the nine.
    expect(timesMs.toSorted((a, b) => a - b)[4]).toBeLessThan(2_000);
  });

  test('a running call keeps its key', async () => {
    await first.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: 'CANARY-begun-with' });
    await until(() => has(other), 'the other gateway has the model');
    const before = other.provider.calls.length;
    const call = other.user.ai.generateText({ model: 'acme/fast', prompt: 'x' });
    await other.provider.until((calls) => calls.length > before);
    await first.admin.env.removeVariable({ key: 'ACME_API_KEY' });
    await expect(call).resolves.toMatchObject({ role: 'assistant' });
    await until(async () => !(await has(other)), 'the model is gone');
  });
});
