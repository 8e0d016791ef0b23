// The PostgreSQL database that a project declares: whether it is there on the server of DATABASE_URL, and how it comes
// to be there. What this user may not do it says how to do.
import { connect, type Database } from '../kernel/data/database.ts';
import type { Log } from '../kernel/log.ts';

export interface DatabaseSituation {
  exists: boolean;
  /** Whether this user may make it. */
  canCreate: boolean;
  /** What somebody with the rights runs. */
  statement: string;
}

/** The same server, another database. */
export function databaseUrl(url: string, name: string): string {
  const other = new URL(url);
  other.pathname = `/${encodeURIComponent(name)}`;
  return other.href;
}

/** Where it is, without a password. */
export function placeOfDatabase(url: string): string {
  const { hostname, port, pathname } = new URL(url);
  return `${decodeURIComponent(pathname.slice(1))} on ${hostname}${port === '' ? '' : `:${port}`}`;
}

/** Changes nothing. Throws when the server cannot be asked. */
export async function lookForDatabase(url: string, name: string, log: Log): Promise<DatabaseSituation> {
  return withServer(url, name, log, async (database) => situationOf(database, name));
}

/** Makes the database when it is not there. Throws in words that say what to run when this user may not. */
export async function makeDatabase(url: string, name: string, log: Log): Promise<'made' | 'found'> {
  return withServer(url, name, log, async (database) => {
    const { exists, statement } = await situationOf(database, name);
    if (exists) return 'found';
    const session = database.session({ deadlineMs: 120_000 });
    try {
      await session.sql.unsafe(`create database ${quoted(name)}`);
      return 'made';
    } catch (error) {
      const code = (error as { code?: string }).code;
      // Another deployment was faster.
      if (code === '42P04') return 'found';
      if (code === '42501') throw new Error(mayNot(name, statement), { cause: error });
      throw error;
    } finally {
      await session.close();
    }
  });
}

export function mayNot(name: string, statement: string): string {
  return `This user of the PostgreSQL server may not make the database "${name}". Let somebody who may run: ${statement}`;
}

async function situationOf({ sql }: Database, name: string): Promise<DatabaseSituation> {
  const [row] = await sql<{ exists: boolean; canCreate: boolean; user: string }[]>`
    select exists (select 1 from pg_catalog.pg_database where datname = ${name}) as "exists",
      (select rolcreatedb or rolsuper from pg_catalog.pg_roles where rolname = current_user) as "canCreate", current_user as "user"`;
  return {
    exists: row?.exists ?? false,
    canCreate: row?.canCreate ?? false,
    statement: `create database ${quoted(name)} owner ${quoted(row?.user ?? '')};`,
  };
}

/** In whichever database of the server lets us in: the declared one, that of the address, or the one that every server has. */
async function withServer<T>(
  url: string,
  name: string,
  log: Log,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  const own = decodeURIComponent(new URL(url).pathname.slice(1));
  let failure: unknown;
  for (const candidate of new Set([name, ...(own === '' ? [] : [own]), 'postgres'])) {
    let database: Database;
    try {
      database = await connect({ url: databaseUrl(url, candidate), limits: { maxConnections: 1 } }, { log });
    } catch (error) {
      failure = error;
      // Not there; the server itself answered.
      if ((error as { code?: string }).code === '3D000') continue;
      throw new Error(
        `The PostgreSQL server of DATABASE_URL cannot be asked: ${error instanceof Error ? error.message : String(error)}`,
        { cause: error },
      );
    }
    try {
      return await work(database);
    } finally {
      await database.close();
    }
  }
  throw failure;
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
