// The PostgreSQL database that a project declares, on the server of DATABASE_URL:
// checks whether it exists and creates it.
import { connect, type Database } from '../kernel/data/database.ts';
import { errorText } from '../kernel/error-text.ts';
import type { Log } from '../kernel/log.ts';

export interface DatabaseSituation {
  exists: boolean;
  /** Whether this user may create it. */
  canCreate: boolean;
  /** The SQL statement with which a privileged user can create it. */
  statement: string;
}

/** The address of another database on the same server. */
export function databaseUrl(url: string, name: string): string {
  const otherUrl = new URL(url);
  otherUrl.pathname = `/${encodeURIComponent(name)}`;
  return otherUrl.href;
}

/** The database, host and port of an address, without the credentials. */
export function describeDatabase(url: string): string {
  const { hostname, port, pathname } = new URL(url);
  return `${decodeURIComponent(pathname.slice(1))} on ${hostname}${port === '' ? '' : `:${port}`}`;
}

/** Checks whether the database exists, and changes nothing. Throws when the server is unreachable. */
export async function inspectDatabase(url: string, name: string, log: Log): Promise<DatabaseSituation> {
  return withServer(url, name, log, async (database) => situationOf(database, name));
}

/** Creates the database unless it exists. Throws with the SQL to run when this user lacks the right. */
export async function createDatabase(url: string, name: string, log: Log): Promise<void> {
  return withServer(url, name, log, async (database) => {
    const { exists, statement } = await situationOf(database, name);
    if (exists) return;
    const session = database.session({ deadlineMs: 120_000 });
    try {
      await session.sql.unsafe(`create database ${quoteIdentifier(name)}`);
    } catch (error) {
      const code = (error as { code?: string }).code;
      // duplicate_database: another deployment has created it meanwhile.
      if (code === '42P04') return;
      // insufficient_privilege
      if (code === '42501') throw new Error(missingRightMessage(name, statement), { cause: error });
      throw error;
    } finally {
      await session.close();
    }
  });
}

/** The message when this user may not create databases. */
export function missingRightMessage(name: string, statement: string): string {
  return `This user of the PostgreSQL server may not create the database "${name}". Have a privileged user run: ${statement}`;
}

async function situationOf({ sql }: Database, name: string): Promise<DatabaseSituation> {
  const [row] = await sql<{ exists: boolean; canCreate: boolean; user: string }[]>`
    select
      exists (select 1 from pg_catalog.pg_database where datname = ${name}) as "exists",
      (
        select rolcreatedb or rolsuper from pg_catalog.pg_roles where rolname = current_user
      ) as "canCreate",
      current_user as "user"`;
  return {
    exists: row?.exists ?? false,
    canCreate: row?.canCreate ?? false,
    statement: `create database ${quoteIdentifier(name)} owner ${quoteIdentifier(row?.user ?? '')};`,
  };
}

/**
 * Connects to the first of these databases that exists: the declared database, the database in the URL, or
 * `postgres`, which is on every server.
 */
async function withServer<T>(
  url: string,
  name: string,
  log: Log,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  const databaseName = decodeURIComponent(new URL(url).pathname.slice(1));
  let failure: unknown;
  for (const candidate of new Set([name, ...(databaseName === '' ? [] : [databaseName]), 'postgres'])) {
    let database: Database;
    try {
      database = await connect({ url: databaseUrl(url, candidate), limits: { maxConnections: 1 } }, { log });
    } catch (error) {
      failure = error;
      // invalid_catalog_name: this database does not exist, so try the next one.
      if ((error as { code?: string }).code === '3D000') continue;
      throw new Error(`The PostgreSQL server of DATABASE_URL cannot be reached: ${errorText(error)}`, {
        cause: error,
      });
    }
    try {
      return await work(database);
    } finally {
      await database.close();
    }
  }
  throw failure;
}

function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
