import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { connect, migrate } from '../../../src/kernel/data/database.ts';
import { silentLog, testDatabase, type TestDatabase } from '../../support/databases.ts';

let world: TestDatabase;
let directory: string;

beforeEach(async () => {
  world = await testDatabase({ isEmpty: true });
  directory = await mkdtemp(join(tmpdir(), 'townhall-migrations-'));
});

afterEach(async () => {
  await world.close();
  await rm(directory, { recursive: true, force: true });
});

describe('migrate', () => {
  it('applies each file once in order and returns their names', async () => {
    await writeFiles({
      '0002_b.sql': 'alter table house.a add column y int',
      '0001_a.sql': 'create table house.a (x int); insert into house.a values (1)',
    });
    expect(await run()).toEqual({ applied: ['0001_a.sql', '0002_b.sql'] });
    expect(await run()).toEqual({ applied: [] });
    await writeFiles({ '0003_c.sql': 'update house.a set y = 3' });
    expect(await run()).toEqual({ applied: ['0003_c.sql'] });
    expect(await world.database.sql`select x, y from house.a`).toEqual([{ x: 1, y: 3 }]);
  });

  it('rolls back a failed file and applies the corrected one', async () => {
    await writeFiles({
      '0001_a.sql': 'create table house.a (x int)',
      '0002_b.sql': 'create table house.b (x int); select 1 / 0',
    });
    await expect(run()).rejects.toThrow('The migration "0002_b.sql" failed: division by zero');
    expect(await world.database.sql`select 1 from pg_namespace where nspname = 'house'`).toEqual([]);
    await writeFiles({ '0002_b.sql': 'create table house.b (x int)' });
    expect(await run()).toEqual({ applied: ['0001_a.sql', '0002_b.sql'] });
  });

  it('refuses a file that changed after it was applied', async () => {
    await writeFiles({ '0001_a.sql': 'create table house.a (x int)' });
    await run();
    await writeFiles({ '0001_a.sql': 'create table house.a (x bigint)' });
    await expect(run()).rejects.toThrow('The migration "0001_a.sql" was changed after it had been applied');
  });

  it.each([
    ['that precedes an applied file', '0001_a.sql', '"0001_a.sql" precedes "0002_b.sql"'],
    ['with the number of another', '0002_c.sql', 'have the same number'],
    ['whose name has another format', 'later.sql', '"later.sql" is not named NNNN_name.sql'],
  ])('refuses a file %s', async (_title, name, message) => {
    await writeFiles({ '0002_b.sql': 'select 1' });
    await run();
    await writeFiles({ [name]: 'select 1' });
    await expect(run()).rejects.toThrow(message);
  });

  it('accepts migrations of a newer release', async () => {
    await writeFiles({ '0001_a.sql': 'select 1', '0002_b.sql': 'select 1' });
    await run();
    await rm(join(directory, '0002_b.sql'));
    expect(await run()).toEqual({ applied: [] });
  });

  it('keeps two schemas apart', async () => {
    await writeFiles({ '0001_a.sql': 'select 1' });
    await run();
    expect(await migrate(world.database, { schema: 'garden', directory, log: silentLog })).toEqual({
      applied: ['0001_a.sql'],
    });
  });

  it('refuses an invalid name of a schema', async () => {
    await expect(migrate(world.database, { schema: 'a b', directory, log: silentLog })).rejects.toThrow(
      'is not a valid name for a schema',
    );
  });

  it('is exempt from the statement timeout', async () => {
    await world.close();
    world = await testDatabase({ isEmpty: true, limits: { statementMs: 400, deadlineMs: 1_200 } });
    await writeFiles({
      '0001_slow.sql': 'create table house.a as select 1 as x from (select pg_sleep(2.5)) s',
    });
    expect(await run()).toEqual({ applied: ['0001_slow.sql'] });
  });

  it('applies each file once when two migrations start at the same time', async () => {
    await writeFiles({
      '0001_a.sql': 'create table house.a (x int)',
      '0002_b.sql': 'insert into house.a select 1 from (select pg_sleep(0.3)) s',
    });
    const outcomes = await Promise.all([run(), run()]);
    expect(outcomes.map(({ applied }) => applied.length).toSorted((a, b) => a - b)).toEqual([0, 2]);
    expect(await world.database.sql`select count(*) as count from house.a`).toEqual([{ count: 1n }]);
  });

  it('applies each file once for two processes', async () => {
    // Slow enough that the other process starts meanwhile.
    await writeFiles({
      '0001_a.sql': 'create table house.a (x int)',
      '0002_b.sql': 'insert into house.a select 1 from (select pg_sleep(3)) s',
    });
    const { options, engine } = world;
    await world.database.close();
    const outcomes = await Promise.all([migrateInChild(options), migrateInChild(options)]);
    world = await reopenDatabase(world);
    expect(outcomes.sort()).toEqual(
      engine === 'postgres' ? ['applied 0', 'applied 2'] : ['applied 2', 'refused'],
    );
    expect(await world.database.sql`select count(*) as count from house.a`).toEqual([{ count: 1n }]);
  });
});

describe('townhall_now', () => {
  it("is the transaction time plus the connection's offset", async () => {
    await writeFiles({});
    await run();
    await world.database.tx(async (tx) => {
      const rows = await tx`select house.townhall_now() = now() as same`;
      await tx`select set_config('townhall.clock_shift', '-2 days 03:00', true)`;
      const shiftedRows = await tx`select house.townhall_now() = now() + interval '-2 days 03:00' as same`;
      expect([rows, shiftedRows]).toEqual([[{ same: true }], [{ same: true }]]);
    });
    expect(await world.database.sql`select house.townhall_now() = now() as same`).toEqual([{ same: true }]);
  });
});

function run() {
  return migrate(world.database, { schema: 'house', directory, log: silentLog });
}

async function writeFiles(contents: Record<string, string>): Promise<void> {
  await mkdir(directory, { recursive: true });
  for (const [name, text] of Object.entries(contents)) await writeFile(join(directory, name), text);
}

async function reopenDatabase(closedDatabase: TestDatabase): Promise<TestDatabase> {
  const database = await connect(closedDatabase.options, { log: silentLog });
  return {
    ...closedDatabase,
    database,
    async close() {
      await database.close();
      await closedDatabase.close();
    },
  };
}

async function migrateInChild(options: TestDatabase['options']): Promise<string> {
  const script = join(import.meta.dirname, '..', '..', 'support', 'migrate-child.ts');
  const child = spawn(process.execPath, [script, JSON.stringify(options), directory], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // A child whose migration fails keeps its database open and does not exit.
  onTestFinished(() => void child.kill('SIGKILL'));
  let output = '';
  child.stdout.on('data', (text: Buffer) => (output += text.toString()));
  await once(child, 'close');
  return output.trim();
}
