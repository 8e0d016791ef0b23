// A server with a wrong master key does not start and changes nothing. A tampered value is never decrypted.
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { connect, type Database } from '../../../src/kernel/data/database.ts';
import { newMasterKey } from '../../../src/kernel/secrets/vault.ts';
import { makeDatabase, silentLog, type DatabasePlace } from '../../support/databases.ts';
import { startAndStop as start } from './start-and-stop.ts';
import { tableNames } from '../stored-text.ts';
import { refusal, schemas, startEnvWorld } from './world.ts';
import { until } from '../../support/until.ts';

// Starts several gateways one after the other on a busy machine.
vi.setConfig({ testTimeout: 180_000 });

const secret = 'CANARY-77aa-sealed-value';

async function withDatabase<T>(place: DatabasePlace, work: (database: Database) => Promise<T>): Promise<T> {
  const database = await connect(place.options, { log: silentLog });
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

/** A checksum of the names and rows of all tables. */
const checksum = (place: DatabasePlace): Promise<string> =>
  withDatabase(place, async ({ sql }) => {
    const hash = createHash('sha256');
    for (const name of await tableNames(sql, schemas)) {
      const rows = await sql.unsafe(`select md5(t::text) as row from ${name} as t order by 1`);
      hash.update(`${name}:${rows.map(({ row }) => String(row)).join(',')};`);
    }
    return hash.digest('hex');
  });

let place: DatabasePlace;
beforeEach(async () => {
  place = await makeDatabase();
});
afterEach(() => place.remove());

describe('a database with encrypted values', () => {
  const key = newMasterKey();
  test.each<[string, Record<string, string>]>([
    ['without a key', {}],
    ['with another key', { TOWNHALL_MASTER_KEY: newMasterKey() }],
    ['with a malformed key', { TOWNHALL_MASTER_KEY: 'CANARY-not-a-key' }],
    ['with a missing key file', { TOWNHALL_MASTER_KEY_FILE: '/nowhere/at/all.key' }],
    [
      'with a key and a key file',
      { TOWNHALL_MASTER_KEY: key, TOWNHALL_MASTER_KEY_FILE: '/nowhere/at/all.key' },
    ],
  ])('stops a start %s', async (_name, env) => {
    await start(place, { TOWNHALL_MASTER_KEY: key });
    const checksumBefore = await checksum(place);
    const message = await start(place, env).then(
      () => 'it started',
      (error: unknown) => String(error),
    );
    expect(message).toContain('SettingError');
    expect(message).toContain('TOWNHALL_MASTER_KEY');
    expect(message).not.toContain('CANARY');
    expect(await checksum(place)).toBe(checksumBefore);
    await start(place, { TOWNHALL_MASTER_KEY: key });
  });

  test('is not migrated at a start with another key', async () => {
    await start(place, { TOWNHALL_MASTER_KEY: key });
    // The last migration of this release is missing, as in the database of an older release.
    await withDatabase(
      place,
      ({ sql }) =>
        sql`delete from gateway.migrations where name = (select max(name) from gateway.migrations)`,
    );
    const checksumBefore = await checksum(place);
    await expect(start(place, { TOWNHALL_MASTER_KEY: newMasterKey() })).rejects.toThrow(
      'Nothing was changed',
    );
    expect(await checksum(place)).toBe(checksumBefore);
  });

  test('can be used with the key from a file', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'townhall-key-'));
    try {
      const file = join(folder, 'key');
      await writeFile(file, `${key}\n`);
      await start(place, { TOWNHALL_MASTER_KEY_FILE: file });
      await expect(start(place, { TOWNHALL_MASTER_KEY: key })).resolves.not.toContain(key);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test('is not treated as empty when the value that proves the key is missing', async () => {
    await start(place, { TOWNHALL_MASTER_KEY: key });
    await withDatabase(place, async ({ sql }) => {
      await sql`insert into gateway.env_variables (key, sealed, version) values ('X', 'v1', 1)`;
      await sql`delete from gateway.env_canary`;
    });
    await expect(start(place, { TOWNHALL_MASTER_KEY: newMasterKey() })).rejects.toThrow(
      'Nothing was changed',
    );
  });
});

describe('a database without encrypted values', () => {
  test('stops a start with DATABASE_URL and no key', async () => {
    const checksumBefore = await checksum(place);
    await expect(start(place, {})).rejects.toThrow('openssl rand -base64 32');
    expect(await checksum(place)).toBe(checksumBefore);
  });
});

describe('a tampered value', () => {
  test('is reported while other values stay in use', async () => {
    const world = await startEnvWorld({ place, env: { OTHER_KEY: 'from the process' } });
    try {
      for (const key of ['ACME_API_KEY', 'OTHER_KEY', 'THIRD_KEY', 'FOURTH_KEY'])
        await world.admin.env.upsertVariable({ key, value: `${secret}-${key}` });
      await world.gateway.database.tx(async (tx) => {
        // Changes one character within the wrapped key of one value and swaps two other values.
        await tx`
          update gateway.env_variables set sealed = overlay(sealed placing
            (case when substr(sealed, 90, 1) = 'A' then 'B' else 'A' end) from 90 for 1)
          where key = 'OTHER_KEY'`;
        await tx`
          update gateway.env_variables as variable set sealed = other.sealed
          from gateway.env_variables as other
          where (variable.key, other.key)
            in (('THIRD_KEY', 'FOURTH_KEY'), ('FOURTH_KEY', 'THIRD_KEY'))`;
        await tx`update gateway.changes set number = number + 1`;
      });
      const readReadability = async () =>
        Object.fromEntries(
          (await world.admin.env.listVariables({ reveal: true })).items.map((item) => [
            item.key,
            item.readable,
          ]),
        );
      await until(async () => !(await readReadability())['OTHER_KEY'], 'OTHER_KEY is unreadable');
      expect(await readReadability()).toMatchObject({
        ACME_API_KEY: true,
        OTHER_KEY: false,
        THIRD_KEY: false,
        FOURTH_KEY: false,
      });
      const { items } = await world.admin.env.listVariables({ reveal: true });
      expect(items.find(({ key }) => key === 'THIRD_KEY')).toMatchObject({ value: '••••', masked: true });
      await world.user.ai.generateText({ model: 'acme/fast', prompt: 'x' });
      expect(world.keysSent()).toEqual([`${secret}-ACME_API_KEY`]);
      const alerts = world.logLines
        .map((line) => JSON.parse(line) as { alert?: string; key?: string; level: string })
        .filter(({ alert }) => alert === 'env_unreadable');
      expect(new Set(alerts.map(({ key, level }) => `${key} ${level}`))).toEqual(
        new Set(['FOURTH_KEY error', 'OTHER_KEY error', 'THIRD_KEY error']),
      );
      await world.admin.env.upsertVariable({ key: 'OTHER_KEY', value: 'written again' });
      expect(await readReadability()).toMatchObject({ OTHER_KEY: true });
    } finally {
      await world.close();
    }
  });

  test('disables its model, even with a value of the process', async () => {
    const world = await startEnvWorld({ place, env: { ACME_API_KEY: 'the key of the process' } });
    try {
      await world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: secret });
      await world.gateway.database.tx(async (tx) => {
        await tx`update gateway.env_variables set version = version + 1000`;
        await tx`update gateway.changes set number = number + 1`;
      });
      await until(
        async () => !(await world.user.ai.listModels()).items.some(({ id }) => id === 'acme/fast'),
        'the model is gone',
      );
      expect(await refusal(world.user.ai.generateText({ model: 'acme/fast', prompt: 'x' }))).toMatchObject({
        code: 'model_not_found',
      });
    } finally {
      await world.close();
    }
  });
});
