// A database for one test file or server, on the engine of the run. The databases share no data.
import { randomBytes } from 'node:crypto';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { inject } from 'vitest';
import {
  connect,
  type ConnectOptions,
  type Database,
  type DatabaseLimits,
} from '../../src/kernel/data/database.ts';
import { databaseFolder } from './database-folder.ts';
import { markFresh, release, takeIdle, type ReusableDatabase } from './database-reuse.ts';
import { databaseUrl, migrateAll, silentLog, type DatabaseSource } from './template.ts';

export { silentLog };

export interface TestDatabase {
  database: Database;
  engine: Database['engine'];
  /**
   * Options for connect(), for a server in another process. The embedded engine must be closed here
   * first.
   */
  options: ConnectOptions;
  /** Closes the connection and removes the data. */
  close(): Promise<void>;
}

export interface TestDatabaseOptions {
  /** Skips the schemas of gateway and agent. */
  isEmpty?: boolean;
  limits?: Partial<DatabaseLimits>;
}

export interface DatabasePlace {
  options: ConnectOptions;
  remove(): Promise<void>;
}

// A test machine is busier than a server, so statements may wait longer for a connection and a lock.
const testLimits: Partial<DatabaseLimits> = { queueMs: 15_000, lockMs: 10_000, connectMs: 15_000 };

/** The environment variables with which a command opens this database. */
export function databaseEnv(options: ConnectOptions): Record<string, string> {
  return 'url' in options ? { DATABASE_URL: options.url } : { DATABASE_PATH: options.path };
}

/** The flags with which an agent's command opens this server; none for an embedded database. */
export function databaseFlags(options: ConnectOptions): string[] {
  return 'url' in options ? ['--database-url', options.url] : [];
}

/** A new database that is not open yet. */
export async function makeDatabase({
  isEmpty = false,
  limits: overrides = {},
}: TestDatabaseOptions = {}): Promise<DatabasePlace> {
  const limits = { ...testLimits, ...overrides };
  const source = inject('databaseSource');
  if (source?.engine === 'postgres') return makeClone(source, isEmpty, limits);
  return makeFolder(source, { isEmpty, limits });
}

/** A new open database, with the schemas of gateway and agent unless `isEmpty`. */
export async function testDatabase(options: TestDatabaseOptions = {}): Promise<TestDatabase> {
  const isReusable =
    inject('databaseSource')?.engine !== 'postgres' && !options.isEmpty && options.limits === undefined;
  const reusableDatabase = (isReusable ? takeIdle() : undefined) ?? (await openDatabase(options, isReusable));
  const { database } = reusableDatabase;
  return {
    database,
    engine: database.engine,
    options: reusableDatabase.options,
    close: () => (isReusable ? release(reusableDatabase) : reusableDatabase.destroy()),
  };
}

/**
 * The new database of a server in this process. An embedded database is already open, since the next
 * test of the file reuses it; call `remove` after the server has closed.
 */
export async function makeServerDatabase(): Promise<DatabasePlace & { database?: Database }> {
  if (inject('databaseSource')?.engine === 'postgres') return makeDatabase();
  const { database, options, close } = await testDatabase();
  return { database, options, remove: close };
}

async function openDatabase(options: TestDatabaseOptions, isReusable: boolean): Promise<ReusableDatabase> {
  const place = await makeDatabase(options);
  const database = await connect(place.options, { log: silentLog });
  // Runs the migrations; a copy of the template has them already.
  if (!options.isEmpty) await migrateAll(database);
  if (isReusable) await markFresh(database);
  return {
    database,
    options: place.options,
    async destroy() {
      await database.close();
      await place.remove();
    },
  };
}

async function makeFolder(
  source: (DatabaseSource & { engine: 'embedded' }) | undefined,
  { isEmpty, limits }: { isEmpty: boolean; limits: Partial<DatabaseLimits> },
): Promise<DatabasePlace> {
  const folder = await mkdtemp(join(source?.worldsFolder ?? databaseFolder, 'townhall-world-'));
  const path = join(folder, 'townhall.db');
  const template = isEmpty ? source?.emptyFolder : source?.migratedFolder;
  if (template) await cp(template, path, { recursive: true });
  return { options: { path, limits }, remove: () => rm(folder, { recursive: true, force: true }) };
}

async function makeClone(
  source: DatabaseSource & { engine: 'postgres' },
  isEmpty: boolean,
  limits: Partial<DatabaseLimits>,
): Promise<DatabasePlace> {
  const name = `townhall_world_${randomBytes(6).toString('hex')}`;
  await administer(
    source.url,
    `create database ${name} template ${isEmpty ? 'template1' : source.migratedTemplate}`,
  );
  return {
    options: { url: databaseUrl(source.url, name), limits },
    remove: () => administer(source.url, `drop database if exists ${name} with (force)`),
  };
}

async function administer(url: string, statement: string): Promise<void> {
  const admin = await connect({ url, limits: { maxConnections: 1 } }, { log: silentLog });
  const session = admin.session({ deadlineMs: 60_000 });
  try {
    await session.sql.unsafe(statement);
  } finally {
    await session.close();
    await admin.close();
  }
}
