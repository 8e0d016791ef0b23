// Backup of a gateway's or an agent's database and its restore on a fresh host, on both engines.
// With the same master key everything is back; with a wrong key or none nothing starts and nothing
// changes.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { createAgentClient } from '@townhall/agent';
import { createGatewayClient } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { connect, type Database } from '../../src/kernel/data/database.ts';
import { newMasterKey } from '../../src/kernel/secrets/vault.ts';
import { silentLog } from '../support/databases.ts';
import { startInstalledPostgres, type InstalledPostgres } from '../support/installed-postgres.ts';
import { townhall } from './townhall.ts';

// Each test starts several servers, one after the other.
vi.setConfig({ testTimeout: 240_000, hookTimeout: 120_000 });

const isPostgres = inject('databaseSource')?.engine === 'postgres';
const installedPostgres: InstalledPostgres | null = isPostgres ? await startInstalledPostgres() : null;
if (isPostgres && installedPostgres === null)
  console.warn(
    'SKIPPED: no PostgreSQL with pg_dump is installed here, so no backup of a PostgreSQL was tried.',
  );

const masterKey = newMasterKey();
const password = 'CANARY administrator password';
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-cli-db-'));
});
afterAll(async () => {
  await installedPostgres?.stop();
  await rm(folder, { recursive: true, force: true });
});

/** The environment of a new host, with a database of its own. */
async function createHost(name: string): Promise<Record<string, string>> {
  if (installedPostgres === null) return { DATABASE_PATH: join(folder, name, 'townhall.db') };
  const admin = await connect({ url: installedPostgres.url }, { log: silentLog });
  await admin.sql.unsafe(`create database ${name}`);
  await admin.close();
  return {
    DATABASE_URL: new URL(`/${name}`, installedPostgres.url).href,
    STORAGE_PATH: join(folder, name, 'media'),
  };
}

async function run(
  words: string[],
  env: Record<string, string>,
): Promise<{ code: number | string; screen: string }> {
  const command = townhall(words, { cwd: folder, env });
  const code = await command.ended;
  expect(command.screen()).not.toMatch(/CANARY|\n\s+at /);
  return { code, screen: command.screen() };
}

async function serve(env: Record<string, string>) {
  const server = townhall(['gateway', '--port', '0', '--host', '127.0.0.1'], {
    cwd: folder,
    env: { ADMIN_ID: 'root', ADMIN_PASSWORD: password, ...env },
  });
  const url =
    (await server.waitFor(/"url":"(http:\/\/127\.0\.0\.1:\d+)","msg":"listening"/, 60_000))[1] ?? '';
  const guest = createGatewayClient({ baseUrl: url });
  const { session_token: token } = await guest.admin.login({ admin_id: 'root', password });
  return {
    admin: createGatewayClient({ baseUrl: url, token }),
    async stop() {
      server.process.kill('SIGTERM');
      expect(await server.ended).toBe(0);
    },
  };
}

/** The agent's data folder on that host. */
async function createAgentHost(name: string): Promise<Record<string, string>> {
  const { DATABASE_URL } = await createHost(name);
  return {
    AGENT_DATA_DIR: join(folder, name, 'agent'),
    AGENT_GATEWAY_TOKEN: 'CANARY-gateway-token',
    ...(DATABASE_URL === undefined ? {} : { AGENT_DATABASE_URL: DATABASE_URL }),
  };
}

async function serveAgent(env: Record<string, string>) {
  const agent = townhall(['agent', '--port', '0'], { cwd: folder, env });
  const baseUrl =
    (await agent.waitFor(/"url":"(http:\/\/127\.0\.0\.1:\d+)","msg":"listening"/, 60_000))[1] ?? '';
  return {
    as: (token: string) => createAgentClient({ baseUrl, token }),
    async stop() {
      agent.process.kill('SIGTERM');
      expect(await agent.ended).toBe(0);
    },
  };
}

/** A digest of every row of the gateway's tables, read without starting a server. */
async function readContents(env: Record<string, string>): Promise<string> {
  const options =
    env['DATABASE_URL'] === undefined ? { path: env['DATABASE_PATH'] ?? '' } : { url: env['DATABASE_URL'] };
  const database: Database = await connect(options, { log: silentLog });
  try {
    const tables = await database.sql<{ name: string }[]>`
      select format('%I.%I', table_schema, table_name) as name from information_schema.tables
      where table_schema in ('gateway', 'pgboss') and table_type = 'BASE TABLE' order by 1`;
    const digest = createHash('sha256');
    for (const { name } of tables) {
      const [row] = await database.sql.unsafe(
        `select count(*)::text || ':' || coalesce(md5(string_agg(t::text, '|' order by t::text)), '') as sum from ${name} t`,
      );
      digest.update(`${name} ${String(row?.['sum'])}\n`);
    }
    return digest.digest('hex');
  } finally {
    await database.close();
  }
}

describe.skipIf(isPostgres && installedPostgres === null)('townhall db', () => {
  test('restores a host only with the same key', async () => {
    const firstHost = { ...(await createHost('first')), TOWNHALL_MASTER_KEY: masterKey };
    const server = await serve(firstHost);
    await server.admin.env.upsertVariable({ key: 'SHOP_KEY', value: 'CANARY-shop-key' });
    const bureau = await server.admin.bureaus.createBureau({
      server_url: 'https://shop.example/townhall',
      bureau_id: 'shop',
    });

    const file = join(folder, 'first.backup');
    const backup = await run(['db', 'backup', file, '--json'], firstHost);
    expect(backup.code, backup.screen).toBe(0);
    const summary = JSON.parse(backup.screen.split('\n').find((line) => line.startsWith('{')) ?? '') as {
      file: string;
      bytes: number;
    };
    expect(summary).toMatchObject({
      file,
      bytes: (await stat(file)).size,
      engine: isPostgres ? 'postgres' : 'embedded',
    });
    expect(backup.screen).toContain('…');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    // The source server runs on, and a second backup must not overwrite the first.
    expect((await server.admin.bureaus.listBureaus()).items.map(({ bureau_id: id }) => id)).toContain('shop');
    expect(await run(['db', 'backup', file], firstHost)).toMatchObject({
      code: 1,
      screen: expect.stringContaining('exists already'),
    });
    await server.stop();
    const dump =
      installedPostgres === null
        ? gunzipSync(await readFile(file))
        : execFileSync(join(installedPostgres.binaries, 'pg_restore'), ['--file=-', file], {
            maxBuffer: 1 << 28,
          });
    expect(dump.includes('SHOP_KEY')).toBe(true);
    expect(dump.includes('CANARY')).toBe(false);
    expect((await run(['db', 'backup', join(folder, 'idle.backup')], firstHost)).code).toBe(0);

    const newHost = await createHost('fresh');
    for (const key of [{ TOWNHALL_MASTER_KEY: newMasterKey() }, {}] as Record<string, string>[]) {
      const refusal = await run(['db', 'restore', file], { ...newHost, ...key });
      expect(refusal.code).toBe(2);
      expect(refusal.screen).toContain('Nothing was changed');
    }
    if (!isPostgres) expect(await readdir(join(folder, 'fresh')).catch(() => [])).toEqual([]);
    const restoration = await run(['db', 'restore', file, '--json'], {
      ...newHost,
      TOWNHALL_MASTER_KEY: masterKey,
    });
    expect(restoration.code, restoration.screen).toBe(0);
    expect(restoration.screen).toContain(
      `"engine":"${isPostgres ? 'postgres' : 'embedded'}","master_key":"fits"`,
    );
    expect(await run(['db', 'restore', file], { ...newHost, TOWNHALL_MASTER_KEY: masterKey })).toMatchObject({
      code: 1,
      screen: expect.stringContaining('already'),
    });

    // A refused start must leave the database unchanged.
    const contentsBefore = await readContents(newHost);
    for (const key of [{ TOWNHALL_MASTER_KEY: newMasterKey() }, {}] as Record<string, string>[]) {
      const refusal = await run(['gateway', '--port', '0', '--host', '127.0.0.1'], { ...newHost, ...key });
      expect(refusal.code).toBe(2);
      expect(refusal.screen).toMatch(/TOWNHALL_MASTER_KEY[\s\S]*Nothing was changed/);
      expect(await readContents(newHost)).toBe(contentsBefore);
    }
    const restartedGateway = await serve({ ...newHost, TOWNHALL_MASTER_KEY: masterKey });
    const { items } = await restartedGateway.admin.env.listVariables({ reveal: true });
    expect(items.find(({ key }) => key === 'SHOP_KEY')).toMatchObject({
      value: 'CANARY-shop-key',
      readable: true,
    });
    expect((await restartedGateway.admin.bureaus.listBureaus()).items).toContainEqual(bureau);
    await restartedGateway.stop();
  });

  test("restores an agent's sessions and tokens, and refuses the other kind", async () => {
    const firstHost = await createAgentHost('helper');
    const agent = await serveAgent(firstHost);
    const tokenResult = await run(['agent', 'token', 'create', '--json'], firstHost);
    const { token } = JSON.parse(tokenResult.screen) as { token: string };
    const session = await agent.as(token).sessions.create({ title: 'The first of them' });

    const file = join(folder, 'agent.backup');
    const backup = await run(['db', 'backup', file, '--agent', '--json'], firstHost);
    expect(backup).toMatchObject({
      code: 0,
      screen: expect.stringContaining(`"engine":"${isPostgres ? 'postgres' : 'embedded'}"`),
    });
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    await agent.as(token).sessions.create({ title: 'After the backup' });
    await agent.stop();
    expect((await run(['db', 'backup', join(folder, 'agent-idle.backup'), '--agent'], firstHost)).code).toBe(
      0,
    );
    expect(await run(['db', 'migrate', '--agent', '--json'], firstHost)).toMatchObject({
      code: 0,
      screen: '{"applied":[]}\n',
    });

    const gateway = await createHost('beside');
    expect(await run(['db', 'restore', file], gateway)).toMatchObject({
      code: 1,
      screen: expect.stringContaining("of no gateway's database; say --agent"),
    });
    const newHost = await createAgentHost('helper2');
    const restoration = await run(['db', 'restore', file, '--agent', '--json'], newHost);
    expect(restoration).toMatchObject({
      code: 0,
      screen: expect.stringContaining('"master_key":"nothing_sealed"'),
    });
    expect(await run(['db', 'restore', file, '--agent'], newHost)).toMatchObject({
      code: 1,
      screen: expect.stringContaining('already'),
    });
    const restartedAgent = await serveAgent(newHost);
    expect((await restartedAgent.as(token).sessions.list()).items).toEqual([session]);
    await restartedAgent.stop();
    if (!isPostgres) expect((await stat(newHost['AGENT_DATA_DIR'] ?? '')).mode & 0o077).toBe(0);
  });

  test('refuses broken files and backups of the other engine', async () => {
    const newHost = { ...(await createHost('other')), TOWNHALL_MASTER_KEY: masterKey };
    const file = join(folder, 'foreign.backup');
    await writeFile(file, 'a letter');
    expect(await run(['db', 'restore', file], newHost)).toMatchObject({
      code: 1,
      screen: expect.stringContaining('not a backup'),
    });
    await writeFile(file, isPostgres ? Buffer.from([0x1f, 0x8b, 8, 0]) : 'PGDMP and more');
    expect(await run(['db', 'restore', file], newHost)).toMatchObject({
      code: 2,
      screen: expect.stringContaining('DATABASE_URL'),
    });
    await writeFile(file, isPostgres ? 'PGDMP and nothing' : Buffer.from([0x1f, 0x8b, 8, 0, 0, 0]));
    expect(await run(['db', 'restore', file], newHost)).toMatchObject({ code: 1 });
    expect(await run(['db', 'restore', join(folder, 'absent')], newHost)).toMatchObject({
      code: 1,
      screen: expect.stringContaining('ENOENT'),
    });
    if (!isPostgres) expect(await readdir(join(folder, 'other'))).toEqual([]);
  });

  test('migrates a database without serving', async () => {
    const newHost = { ...(await createHost('migrated')), TOWNHALL_MASTER_KEY: masterKey };
    if (isPostgres) {
      expect(await run(['db', 'migrate'], newHost)).toMatchObject({
        code: 0,
        screen: expect.stringContaining('Applied: 0001'),
      });
      expect(await run(['db', 'migrate', '--json'], newHost)).toMatchObject({
        code: 0,
        screen: '{"applied":[]}\n',
      });
    } else {
      expect(await run(['db', 'migrate'], newHost)).toMatchObject({
        code: 1,
        screen: expect.stringContaining('first start'),
      });
      const server = await serve(newHost);
      expect(await run(['db', 'migrate'], newHost)).toMatchObject({
        code: 0,
        screen: expect.stringContaining('running server'),
      });
      expect(await run(['db', 'compact'], newHost)).toMatchObject({
        code: 2,
        screen: expect.stringContaining('the gateway is running'),
      });
      await server.stop();
      expect(await run(['db', 'migrate', '--json'], newHost)).toMatchObject({
        code: 0,
        screen: '{"applied":[]}\n',
      });
    }
  });

  test('compacts the database of a stopped agent and names the tool of a PostgreSQL', async () => {
    const env = await createAgentHost('compacted');
    if (isPostgres) {
      const refusal = await run(['db', 'compact', '--agent'], env);
      expect(refusal).toMatchObject({
        code: 2,
        screen: expect.stringContaining('vacuumdb --full --analyze --dbname=compacted'),
      });
      return;
    }
    expect(await run(['db', 'compact', '--agent'], env)).toMatchObject({
      code: 2,
      screen: expect.stringContaining('There is no database at'),
    });
    const database = await connect(
      { path: join(env['AGENT_DATA_DIR'] ?? '', 'agent.db') },
      { log: silentLog },
    );
    await database.sql`create table filler (n integer primary key, v text)`;
    await database.sql`insert into filler select n, repeat(md5(n::text), 30) from generate_series(1, 6000) n`;
    await database.sql`delete from filler where n % 100 <> 0`;
    await database.close();
    const { code, screen } = await run(['db', 'compact', '--agent', '--json'], env);
    expect(code, screen).toBe(0);
    expect(screen).toMatch(/filler: \d\.\d MB to 0\.\d MB/);
    const summary = JSON.parse(screen.split('\n').find((line) => line.startsWith('{')) ?? '') as {
      bytes_before: number;
      bytes_after: number;
    };
    expect(summary.bytes_before - summary.bytes_after).toBeGreaterThan(4_000_000);
    const compactedDatabase = await connect(
      { path: join(env['AGENT_DATA_DIR'] ?? '', 'agent.db') },
      { log: silentLog },
    );
    expect(await compactedDatabase.sql`select count(*)::int as rows from filler`).toEqual([{ rows: 60 }]);
    await compactedDatabase.close();
  });

  test.each([
    [['db']],
    [['db', 'compact', 'a']],
    [['db', 'backup']],
    [['db', 'restore']],
    [['db', 'copy']],
    [['db', 'backup', 'a', 'b']],
    [['db', 'backup', 'a', '--agent', '--database-path', 'b']],
    [['db', 'backup', 'a', '--data-dir', 'b']],
  ])('refuses %j with 2', async (words) => {
    expect((await run(words, {})).code).toBe(2);
  });
});
