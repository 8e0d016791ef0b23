// A server without the right master key does not start and changes nothing; what was tampered with stays shut.
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, inject, test, vi } from 'vitest';
import { createGateway } from '../../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../../src/gateway/config.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { connect, type Database } from '../../../src/kernel/data/database.ts';
import { createLog } from '../../../src/kernel/log.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';
import { newMasterKey } from '../../../src/kernel/secrets/vault.ts';
import { makeDatabase, silentLog, type DatabasePlace } from '../../support/databases.ts';
import { refusal, startEnvWorld, tableNames, until } from './world.ts';

const isEmbedded = inject('databaseSource')?.engine === 'embedded';
// Several gateways are started one after the other, on a machine that is busy with other tests.
vi.setConfig({ testTimeout: 180_000 });

const secret = 'CANARY-77aa-sealed-value';

/** Starts and stops a gateway at the place; rejects when it refuses to start. */
async function start(place: DatabasePlace, env: Record<string, string>): Promise<string> {
  const where =
    'url' in place.options ? { DATABASE_URL: place.options.url } : { DATABASE_PATH: place.options.path };
  const all = { HOST: '127.0.0.1', PORT: '0', LOG_LEVEL: 'debug', ...where, ...env };
  let logged = '';
  const redactor = createRedactor();
  const log = createLog({ level: 'debug', redactor, write: (line) => void (logged += line) });
  const gateway = await createGateway(readGatewayConfig({}, all), {
    env: all,
    log,
    redactor,
    clock: systemClock,
    databaseLimits: place.options.limits ?? {},
  });
  await gateway.close();
  return logged;
}

async function withDatabase<T>(place: DatabasePlace, work: (database: Database) => Promise<T>): Promise<T> {
  const database = await connect(place.options, { log: silentLog });
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

/** One checksum over all rows of all tables, and over what the tables are. */
const checksum = (place: DatabasePlace): Promise<string> =>
  withDatabase(place, async ({ sql }) => {
    const hash = createHash('sha256');
    for (const name of await tableNames({ sql })) {
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

describe('a sealed database', () => {
  const key = newMasterKey();
  test.each<[string, Record<string, string>]>([
    ['without a key', {}],
    ['with another key', { TOWNHALL_MASTER_KEY: newMasterKey() }],
    ['with a text that is no key', { TOWNHALL_MASTER_KEY: 'CANARY-not-a-key' }],
    ['with a file that is not there', { TOWNHALL_MASTER_KEY_FILE: '/nowhere/at/all.key' }],
    ['with two keys in one', { TOWNHALL_MASTER_KEY: key, TOWNHALL_MASTER_KEY_FILE: '/nowhere/at/all.key' }],
  ])('refuses to start %s and is left as it was', async (_what, env) => {
    await start(place, { TOWNHALL_MASTER_KEY: key });
    const before = await checksum(place);
    const refusal = await start(place, env).then(
      () => 'it started',
      (error: unknown) => String(error),
    );
    expect(refusal).toContain('SettingError');
    expect(refusal).toContain('TOWNHALL_MASTER_KEY');
    expect(refusal).not.toContain('CANARY');
    expect(await checksum(place)).toBe(before);
    await start(place, { TOWNHALL_MASTER_KEY: key });
  });

  test('refuses before it migrates', async () => {
    await start(place, { TOWNHALL_MASTER_KEY: key });
    // As an older release would have left it.
    await withDatabase(
      place,
      ({ sql }) =>
        sql`delete from gateway.migrations where name = (select max(name) from gateway.migrations)`,
    );
    const before = await checksum(place);
    await expect(start(place, { TOWNHALL_MASTER_KEY: newMasterKey() })).rejects.toThrow(
      'Nothing was changed',
    );
    expect(await checksum(place)).toBe(before);
  });

  test('opens with the key from a file', async () => {
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

  test('without its canary is not treated as empty', async () => {
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

describe('a database in which nothing is sealed', () => {
  test.runIf(isEmbedded)(
    'gets a key of its own when it is embedded: a file for its owner alone, made once and hidden',
    async () => {
      if (!('path' in place.options)) throw new Error('not embedded');
      const file = join(place.options.path, 'master.key');
      const logged = await start(place, {});
      const text = await readFile(file, 'utf8');
      expect(text).toMatch(/^[A-Za-z0-9+/]{43}=\n$/);
      expect((await stat(file)).mode & 0o777).toBe(0o600);
      expect(logged).toContain('made a master key');
      expect(logged).not.toContain(text.trim());
      await start(place, {});
      expect(await readFile(file, 'utf8')).toBe(text);
      // Gone, it is not made again: the database is sealed now.
      await rm(file);
      await expect(start(place, {})).rejects.toThrow('Nothing was changed');
      await expect(stat(file)).rejects.toThrow('ENOENT');
    },
  );

  test.runIf(!isEmbedded)('requires a key with DATABASE_URL', async () => {
    const before = await checksum(place);
    await expect(start(place, {})).rejects.toThrow('openssl rand -base64 32');
    expect(await checksum(place)).toBe(before);
  });
});

describe('what was tampered with', () => {
  test('is reported while everything else works', async () => {
    const world = await startEnvWorld({ place, env: { OTHER_KEY: 'from the process' } });
    try {
      for (const key of ['ACME_API_KEY', 'OTHER_KEY', 'THIRD_KEY', 'FOURTH_KEY'])
        await world.admin.env.upsertVariable({ key, value: `${secret}-${key}` });
      await world.gateway.database.tx(async (tx) => {
        // One bit of one value, and two values in each other's place.
        await tx`update gateway.env_variables set sealed = overlay(sealed placing (case when substr(sealed, 90, 1) = 'A' then 'B' else 'A' end) from 90 for 1) where key = 'OTHER_KEY'`;
        await tx`
          update gateway.env_variables as v set sealed = o.sealed
          from gateway.env_variables as o where (v.key, o.key) in (('THIRD_KEY', 'FOURTH_KEY'), ('FOURTH_KEY', 'THIRD_KEY'))`;
        await tx`update gateway.changes set number = number + 1`;
      });
      const readable = async () =>
        Object.fromEntries(
          (await world.admin.env.listVariables({ reveal: true })).items.map((item) => [
            item.key,
            item.readable,
          ]),
        );
      await until(async () => !(await readable())['OTHER_KEY'], 'the tampering is seen');
      expect(await readable()).toMatchObject({
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
      expect(await readable()).toMatchObject({ OTHER_KEY: true });
    } finally {
      await world.close();
    }
  });

  test('does not make a model callable', async () => {
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
