// The database: a PostgreSQL server or the embedded engine behind one interface. Only this file and
// queries.ts import postgres.js. Every wait has a deadline. An expired deadline and any other sign of
// an unreachable database become a 503 `database_unavailable` with Retry-After for the caller.
import postgres from 'postgres';
import type { Duplex } from 'node:stream';
import { arrayTypes } from './array-types.ts';
import { requireDurability } from './durability.ts';
import { type EmbeddedOptions, openEmbedded } from './embedded/embedded.ts';
import type { Log } from '../log.ts';
import { Problem } from '../problem.ts';
import { openConnection, withAnswerDeadline } from './connection.ts';
import {
  type Connections,
  createQueries,
  type PooledQueries,
  type Queries,
  type Sql,
  type Types,
} from './queries.ts';

export { migrate } from './migrate.ts';
export type { Queries, Sql, Tx } from './queries.ts';

export interface Database extends PooledQueries {
  engine: 'postgres' | 'embedded';
  /** `select version()` of the engine. */
  version: string;
  /** Throws a Problem unless the database answers. */
  ping(): Promise<void>;
  /**
   * One connection beside the pool, with a deadline of its own and no statement timeout: for
   * migrations and for libraries that start their own transactions. The embedded engine shares
   * its one session with it, so nothing session-wide (SET, session advisory locks) belongs here.
   */
  session(options: { deadlineMs: number }): Queries & { close(): Promise<void> };
  /**
   * The embedded cluster as a gzipped tar, fit for `connect({path, seed})`;
   * undefined on PostgreSQL, which has pg_dump.
   */
  dump?(): Promise<Uint8Array>;
  /**
   * Lets running statements finish for up to five seconds, then closes their connections. Releases the data
   * folder. A second call waits for the first.
   */
  close(): Promise<void>;
}

export interface DatabaseLimits {
  /** Connections; the embedded engine always has one. */
  maxConnections: number;
  /** How long a caller waits for a free connection. */
  queueMs: number;
  connectMs: number;
  /**
   * An answer without progress for this long destroys the connection. Longer than `statementMs`, to
   * distinguish a slow statement from a frozen server.
   */
  deadlineMs: number;
  statementMs: number;
  lockMs: number;
  idleInTransactionMs: number;
}

const defaultLimits: DatabaseLimits = {
  maxConnections: 10,
  queueMs: 2_000,
  connectMs: 3_000,
  deadlineMs: 6_000,
  statementMs: 5_000,
  lockMs: 2_000,
  idleInTransactionMs: 10_000,
};

/**
 * `prepare: false` is for a pooler in transaction mode (`?prepare=false` in the URL does the same): no named
 * statements, and the timeouts are set inside of transactions instead of when a connection is opened.
 */
export type ConnectOptions = (ServerAddress | EmbeddedAddress) & { limits?: Partial<DatabaseLimits> };

interface ServerAddress {
  url: string;
  prepare?: boolean;
}

type EmbeddedAddress = Pick<EmbeddedOptions, 'path' | 'seed' | 'checkpointEveryMs' | 'vacuumEveryMs'>;

/**
 * Opens the database and queries it once. Throws a Problem when it is unreachable, when another
 * process holds the data folder, or when the server acknowledges commits before they are on disk.
 */
export async function connect(options: ConnectOptions, { log }: { log: Log }): Promise<Database> {
  const limits = { ...defaultLimits, ...options.limits };
  return 'url' in options ? connectServer(options, limits, log) : connectEmbedded(options, limits, log);
}

/**
 * Waits for a database to open. If that fails, the error names the setting that contains the
 * address. `url` is absent for the embedded database.
 */
export async function withSettingName<T>(
  setting: string,
  url: string | undefined,
  opening: Promise<T>,
): Promise<T> {
  try {
    return await opening;
  } catch (error) {
    if (url === undefined) throw error;
    const { message: reason, cause } = error instanceof Error ? error : new Error(String(error));
    const detail = cause instanceof Error ? ` (${cause.message})` : '';
    const message = `The database of ${setting} cannot be opened: ${reason}${detail}`;
    throw error instanceof Problem
      ? new Problem(error.kind, error.code, message, { cause: error, headers: error.headers })
      : new Error(message, { cause: error });
  }
}

async function connectServer(options: ServerAddress, limits: DatabaseLimits, log: Log): Promise<Database> {
  const connectionsFor = serverConnections(options, limits, log);
  const { deadlineMs, maxConnections } = limits;
  const main = createQueries(connectionsFor({ isPatient: false, deadlineMs, maxConnections }));
  try {
    await requireDurability(main.sql);
    return {
      engine: 'postgres',
      ...(await readyQueries(main)),
      session: (session) =>
        createQueries(connectionsFor({ isPatient: true, deadlineMs: session.deadlineMs, maxConnections: 1 })),
    };
  } catch (error) {
    await main.close();
    throw error;
  }
}

/** How connections are used. Patient ones have no statement timeout. */
interface ConnectionUse {
  isPatient: boolean;
  deadlineMs: number;
  maxConnections: number;
}

function serverConnections(
  { url, prepare: prepareOption }: ServerAddress,
  limits: DatabaseLimits,
  log: Log,
): (use: ConnectionUse) => Connections {
  const settings = {
    statement_timeout: limits.statementMs,
    lock_timeout: limits.lockMs,
    idle_in_transaction_session_timeout: limits.idleInTransactionMs,
  };
  const address = postgres(url).options;
  const prepare = prepareOption ?? address.prepare;
  const target = {
    hosts: address.host,
    ports: address.port,
    path: address.path || undefined,
    tls: address.ssl,
  };
  return ({ isPatient, deadlineMs, maxConnections }) => ({
    maxConnections,
    queueMs: limits.queueMs,
    open: async () => withAnswerDeadline(await openConnection(target, limits.connectMs), deadlineMs),
    client: (socket) =>
      createClient(url, {
        ...clientOptions(socket, log),
        ssl: false,
        prepare,
        // Behind a pooler (`prepare` is false) no timeouts are set here: it would refuse a connection with
        // unknown settings, or pass the settings on to another client.
        connection: {
          application_name: 'townhall',
          TimeZone: 'UTC',
          ...(prepare && !isPatient ? settings : {}),
        },
      }),
    begin: prepare || isPatient ? 'begin' : beginWith(settings),
  });
}

function beginWith(settings: Readonly<Record<string, number>>): string {
  const statements = Object.entries(settings).map(([name, value]) => `set local ${name} = ${value}`);
  return ['begin', ...statements].join('; ');
}

async function connectEmbedded(
  options: EmbeddedAddress,
  limits: DatabaseLimits,
  log: Log,
): Promise<Database> {
  const engine = await openEmbedded({ ...options, idleInTransactionMs: limits.idleInTransactionMs, log });
  const connectionsFor = ({ isPatient, deadlineMs }: Omit<ConnectionUse, 'maxConnections'>): Connections => ({
    maxConnections: 1,
    // A patient connection waits for its own statements, which may take as long as its deadline.
    queueMs: isPatient ? deadlineMs : limits.queueMs,
    open: async () => withAnswerDeadline(await engine.dial({ isPatient }), deadlineMs),
    client: (socket) =>
      createClient(undefined, {
        ...clientOptions(socket, log),
        host: 'localhost',
        user: 'postgres',
        database: 'postgres',
        ssl: false,
      }),
    begin: 'begin',
  });
  const main = createQueries(connectionsFor({ isPatient: false, deadlineMs: limits.deadlineMs }));
  try {
    return {
      engine: 'embedded',
      ...(await readyQueries(main)),
      session: ({ deadlineMs }) => createQueries(connectionsFor({ isPatient: true, deadlineMs })),
      dump: () => engine.dump(),
      async close() {
        await main.close();
        await engine.close();
      },
    };
  } catch (error) {
    await engine.close();
    throw error;
  }
}

/** The members that both engines have, once the database has answered its first query. */
async function readyQueries(
  queries: PooledQueries,
): Promise<PooledQueries & Pick<Database, 'version' | 'ping'>> {
  const { sql } = queries;
  return { ...queries, version: await readVersion(sql), ping: () => ping(sql) };
}

function createClient(url: string | undefined, options: object): postgres.Sql<Types> {
  // `socket` and `max_pipeline` are read by postgres.js but missing from its types; the version is pinned.
  return (url ? postgres(url, options) : postgres(options)) as unknown as postgres.Sql<Types>;
}

function clientOptions(socket: () => Duplex, log: Log) {
  return {
    socket,
    max: 1,
    // Send one query at a time: the deadline then applies to it alone, and no other
    // query waits for its locks.
    max_pipeline: 0,
    idle_timeout: 0,
    max_lifetime: 0,
    connect_timeout: 0,
    fetch_types: false,
    types: { bigint: postgres.BigInt, ...arrayTypes },
    onnotice: (notice: postgres.Notice) => log.debug({ notice: notice['message'] }, 'database notice'),
  };
}

async function ping(sql: Sql): Promise<void> {
  await sql`select 1`;
}

async function readVersion(sql: Sql): Promise<string> {
  const [row] = await sql<{ version: string }[]>`select version()`;
  return row?.version ?? '';
}
