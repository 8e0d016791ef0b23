// Backup of a gateway's or an agent's database and its restore on a fresh host, on both engines.
// With the same master key everything is back; with a wrong key or none nothing starts and nothing
// changes.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { createAgentClient } from '@townhall/agent';
import { createGatewayClient } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { connect, type Database } from '../../src/kernel/data/database.ts';
import { newMasterKey } from '../../src/kernel/secrets/vault.ts';
import { silentLog } from '../support/databases.ts';
import { startInstalledPostgres, type InstalledPostgres } from '../support/installed-postgres.ts';
import { jsonResult, runTownhall, townhall, type RunResult } from './townhall.ts';

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

/** Runs the command until it exits. Its output must contain neither a secret nor a stack trace. */
async function run(words: string[], env: Record<string, string>): Promise<RunResult> {
  const result = await runTownhall(words, { cwd: folder, env });
  expect(result.screen).not.toMatch(/CANARY|\n\s+at /);
  return result;
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
        `select count(*)::text || ':' || coalesce(md5(string_agg(t::text, '|' order by t::text)), '') as sum
         from ${name} t`,
      );
      digest.update(`${name} ${String(row?.['sum'])}\n`);
    }
    return digest.digest('hex');
  } finally {
    await database.close();
  }
}

/** The content of a gateway's backup as text, without its compression. */
async function readBackup(file: string): Promise<Buffer> {
  if (installedPostgres === null) return gunzipSync(await readFile(file));
  const program = join(installedPostgres.binaries, 'pg_restore');
  return execFileSync(program, ['--file=-', file], { maxBuffer: 1 << 28 });
}

/** Environments without the master key of the backup: with another one, and with none. */
const wrongKeys = (): Record<string, string>[] => [{ TOWNHALL_MASTER_KEY: newMasterKey() }, {}];

/** Backs the gateway up while it runs, into a file of its owner. */
async function backUp(file: string, env: Record<string, string>): Promise<void> {
  const { code, screen } = await run(['db', 'backup', file, '--json'], env);
  expect(code, screen).toBe(0);
  expect(jsonResult(screen)).toMatchObject({
    file,
    bytes: (await stat(file)).size,
    engine: isPostgres ? 'postgres' : 'embedded',
  });
  // The command shows its progress, in lines that end with an ellipsis.
  expect(screen).toContain('…');
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect(await run(['db', 'backup', file], env)).toMatchObject({
    code: 1,
    screen: expect.stringContaining('already exists'),
  });
}

/** Restores the backup on a host without a database: only with its key, and only once. */
async function restore(file: string, host: Record<string, string>): Promise<void> {
  for (const key of wrongKeys()) {
    const refusal = await run(['db', 'restore', file], { ...host, ...key });
    expect(refusal.code).toBe(2);
    expect(refusal.screen).toContain('Nothing was changed');
  }
  if (!isPostgres) expect(await readdir(dirname(host['DATABASE_PATH'] ?? '')).catch(() => [])).toEqual([]);
  const env = { ...host, TOWNHALL_MASTER_KEY: masterKey };
  const { code, screen } = await run(['db', 'restore', file, '--json'], env);
  expect(code, screen).toBe(0);
  expect(screen).toContain(`"engine":"${isPostgres ? 'postgres' : 'embedded'}","master_key":"fits"`);
  expect(await run(['db', 'restore', file], env)).toMatchObject({
    code: 1,
    screen: expect.stringContaining('already'),
  });
}

/** Starts without the key are refused and leave the database unchanged. */
async function expectStartsRefused(host: Record<string, string>): Promise<void> {
  const contentsBefore = await readContents(host);
  for (const key of wrongKeys()) {
    const refusal = await run(['gateway', '--port', '0', '--host', '127.0.0.1'], { ...host, ...key });
    expect(refusal.code).toBe(2);
    expect(refusal.screen).toMatch(/TOWNHALL_MASTER_KEY[\s\S]*Nothing was changed/);
    expect(await readContents(host)).toBe(contentsBefore);
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
    await backUp(file, firstHost);
    expect((await server.admin.bureaus.listBureaus()).items).toContainEqual(bureau);
    await server.stop();
    const content = await readBackup(file);
    expect(content.includes('SHOP_KEY')).toBe(true);
    expect(content.includes('CANARY')).toBe(false);
    expect((await run(['db', 'backup', join(folder, 'idle.backup')], firstHost)).code).toBe(0);

    const newHost = await createHost('fresh');
    await restore(file, newHost);
    await expectStartsRefused(newHost);
    const restartedGateway = await serve({ ...newHost, TOWNHALL_MASTER_KEY: masterKey });
    const { items } = await restartedGateway.admin.env.listVariables({ reveal: true });
    expect(items.find(({ key }) => key === 'SHOP_KEY')).toMatchObject({
      value: 'CANARY-shop-key',
      readable: true,
    });
    expect((await restartedGateway.admin.bureaus.listBureaus()).items).toContainEqual(bureau);
    await restartedGateway.stop();
  });

  test("restores an agent's sessions and tokens", async () => {
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
      screen: expect.stringContaining("not of the gateway's database; set --agent"),
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

  test('refuses a file that is not a backup of its engine', async () => {
    const newHost = { ...(await createHost('other')), TOWNHALL_MASTER_KEY: masterKey };
    const file = join(folder, 'foreign.backup');
    await writeFile(file, 'a letter');
    expect(await run(['db', 'restore', file], newHost)).toMatchObject({
      code: 1,
      screen: expect.stringContaining('not a backup'),
    });
    // The first bytes of a backup by the other engine: gzip on the embedded one, `PGDMP` on PostgreSQL.
    await writeFile(file, isPostgres ? Buffer.from([0x1f, 0x8b, 8, 0]) : 'PGDMP and more');
    expect(await run(['db', 'restore', file], newHost)).toMatchObject({
      code: 2,
      screen: expect.stringContaining('DATABASE_URL'),
    });
    // Those of its own engine, without a backup after them.
    await writeFile(file, isPostgres ? 'PGDMP and nothing' : Buffer.from([0x1f, 0x8b, 8, 0, 0, 0]));
    expect(await run(['db', 'restore', file], newHost)).toMatchObject({ code: 1 });
    expect(await run(['db', 'restore', join(folder, 'absent')], newHost)).toMatchObject({
      code: 1,
      screen: expect.stringContaining('ENOENT'),
    });
    if (!isPostgres) expect(await readdir(join(folder, 'other'))).toEqual([]);
  });

  test.runIf(isPostgres)('migrates a PostgreSQL without serving', async () => {
    const newHost = { ...(await createHost('migrated')), TOWNHALL_MASTER_KEY: masterKey };
    expect(await run(['db', 'migrate'], newHost)).toMatchObject({
      code: 0,
      screen: expect.stringContaining('Applied: 0001'),
    });
    expect(await run(['db', 'migrate', '--json'], newHost)).toMatchObject({
      code: 0,
      screen: '{"applied":[]}\n',
    });
  });

  describe.skipIf(isPostgres)('of an embedded database', () => {
    let newHost: Record<string, string>;
    beforeAll(async () => {
      newHost = { ...(await createHost('migrated')), TOWNHALL_MASTER_KEY: masterKey };
    });

    test('migrates nothing before the first start', async () => {
      expect(await run(['db', 'migrate'], newHost)).toMatchObject({
        code: 1,
        screen: expect.stringContaining('first start'),
      });
    });

    test('neither migrates nor compacts beside a running server', async () => {
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
    });

    test('migrates after the server has stopped', async () => {
      expect(await run(['db', 'migrate', '--json'], newHost)).toMatchObject({
        code: 0,
        screen: '{"applied":[]}\n',
      });
    });

    test('compacts the database of a stopped agent', async () => {
      const env = await createAgentHost('compacted');
      const path = join(env['AGENT_DATA_DIR'] ?? '', 'agent.db');
      const database = await connect({ path }, { log: silentLog });
      // 6,000 rows of about 1 kB, of which one in a hundred is kept.
      await database.sql`create table filler (n integer primary key, v text)`;
      await database.sql`
        insert into filler select n, repeat(md5(n::text), 30) from generate_series(1, 6000) n`;
      await database.sql`delete from filler where n % 100 <> 0`;
      await database.close();
      const { code, screen } = await run(['db', 'compact', '--agent', '--json'], env);
      expect(code, screen).toBe(0);
      expect(screen).toMatch(/filler: \d\.\d MB to 0\.\d MB/);
      const summary = jsonResult(screen) as { bytes_before: number; bytes_after: number };
      expect(summary.bytes_before - summary.bytes_after).toBeGreaterThan(4_000_000);
      const compactedDatabase = await connect({ path }, { log: silentLog });
      expect(await compactedDatabase.sql`select count(*)::int as rows from filler`).toEqual([{ rows: 60 }]);
      await compactedDatabase.close();
    });

    test('refuses to compact a missing database', async () => {
      expect(await run(['db', 'compact', '--agent'], await createAgentHost('absent-agent'))).toMatchObject({
        code: 2,
        screen: expect.stringContaining('There is no database at'),
      });
    });
  });

  test.runIf(isPostgres)('names the tool that compacts a PostgreSQL', async () => {
    const refusal = await run(['db', 'compact', '--agent'], await createAgentHost('compacted'));
    expect(refusal).toMatchObject({
      code: 2,
      screen: expect.stringContaining('vacuumdb --full --analyze --dbname=compacted'),
    });
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
