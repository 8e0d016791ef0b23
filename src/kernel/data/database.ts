// The database: a PostgreSQL server or the embedded engine behind one interface, and the only
// file that knows postgres.js. Every wait has a deadline. A deadline that expires and any other
// sign of an absent database reach the caller as a 503 `database_unavailable` with Retry-After.
import postgres from 'postgres';
import type { Duplex } from 'node:stream';
import { arrayOf, arrayTypes } from './array-types.ts';
import { openEmbedded } from './embedded/embedded.ts';
import type { Log } from '../log.ts';
import { Problem } from '../problem.ts';
import { createPool, type Pool, type PoolState } from './pool.ts';
import { openConnection, withAnswerDeadline } from './connection.ts';
import { databaseProblem, unavailableProblem } from './database-errors.ts';

export { migrate } from './migrate.ts';

interface Types extends Record<string, unknown> {
  bigint: bigint;
}

/**
 * Tagged template of postgres.js: values are parameters, `sql('name')`, `sql(object, ...columns)`,
 * `sql.json`, `sql.array` and `sql.unsafe` as there. int8 is a bigint both ways. Cursors need a transaction.
 */
export type Sql = postgres.ISql<Types>;

/** A transaction's own `sql`. It refuses to run once the transaction is over or its connection is lost. */
export interface Tx extends Sql {
  /** Runs the work in a savepoint, which a failure rolls back; the error is rethrown. */
  savepoint<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
}

export interface Queries {
  sql: Sql;
  /**
   * Commits when the work resolves and rolls back when it throws. Never await an outer `sql`
   * within: the embedded engine has one session, so that would deadlock until the deadline.
   */
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
}

export interface Database extends Queries {
  engine: 'postgres' | 'embedded';
  /** `select version()` of the engine. */
  version: string;
  /** Throws a Problem unless the database answers. */
  ping(): Promise<void>;
  /** The connections at this moment. */
  pool(): PoolState;
  /** Calls back with the wait of each statement or transaction that did not get a connection at once. */
  onPoolWait(listener: (ms: number) => void): void;
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
  /** Lets running statements finish for up to five seconds, then cuts them. Releases the data folder. */
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
 * statements, and the timeouts are set inside of transactions instead of at the connection's start.
 */
export type ConnectOptions = (
  | { url: string; prepare?: boolean }
  | { path: string; seed?: string; checkpointEveryMs?: number; vacuumEveryMs?: number }
) & {
  limits?: Partial<DatabaseLimits>;
};

/**
 * Opens the database and queries it once. Throws a Problem when it is unreachable, when another
 * process holds the data folder, or when the server acknowledges commits before they are on disk.
 */
export async function connect(options: ConnectOptions, { log }: { log: Log }): Promise<Database> {
  const limits = { ...defaultLimits, ...options.limits };
  return 'url' in options ? connectServer(options, limits, log) : connectEmbedded(options, limits, log);
}

/**
 * Waits for a database to open, and names the setting of its address when that
 * fails. `url` is absent for the embedded one.
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

async function connectServer(
  options: { url: string; prepare?: boolean },
  limits: DatabaseLimits,
  log: Log,
): Promise<Database> {
  const settings = {
    statement_timeout: limits.statementMs,
    lock_timeout: limits.lockMs,
    idle_in_transaction_session_timeout: limits.idleInTransactionMs,
  };
  const address = postgres(options.url).options;
  const prepare = options.prepare ?? address.prepare;
  const target = {
    hosts: address.host,
    ports: address.port,
    path: address.path || undefined,
    tls: address.ssl,
  };
  const connections = ({ isPatient, deadlineMs, maxConnections }: ConnectionUse): Connections => ({
    maxConnections,
    queueMs: limits.queueMs,
    open: async () => withAnswerDeadline(await openConnection(target, limits.connectMs), deadlineMs),
    client: (socket) =>
      createClient(options.url, {
        ...clientOptions(socket, log),
        ssl: false,
        prepare,
        // A pooler refuses unknown settings at start, or would hand them to another client.
        connection: {
          application_name: 'townhall',
          TimeZone: 'UTC',
          ...(prepare && !isPatient ? settings : {}),
        },
      }),
    begin: prepare || isPatient ? 'begin' : beginWith(settings),
  });
  const { deadlineMs, maxConnections } = limits;
  const main = createQueries(connections({ isPatient: false, deadlineMs, maxConnections }));
  try {
    await requireDurability(main.sql);
    return {
      engine: 'postgres',
      version: await readVersion(main.sql),
      sql: main.sql,
      tx: main.tx,
      ping: () => ping(main.sql),
      pool: main.pool,
      onPoolWait: main.onPoolWait,
      session: (session) =>
        createQueries(connections({ isPatient: true, deadlineMs: session.deadlineMs, maxConnections: 1 })),
      close: main.close,
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

function beginWith(settings: Readonly<Record<string, number>>): string {
  const statements = Object.entries(settings).map(([name, value]) => `set local ${name} = ${value}`);
  return ['begin', ...statements].join('; ');
}

async function connectEmbedded(
  options: { path: string; seed?: string; checkpointEveryMs?: number; vacuumEveryMs?: number },
  limits: DatabaseLimits,
  log: Log,
): Promise<Database> {
  const engine = await openEmbedded({ ...options, idleInTransactionMs: limits.idleInTransactionMs, log });
  const connections = ({ isPatient, deadlineMs }: Omit<ConnectionUse, 'maxConnections'>): Connections => ({
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
  const main = createQueries(connections({ isPatient: false, deadlineMs: limits.deadlineMs }));
  try {
    return {
      engine: 'embedded',
      version: await readVersion(main.sql),
      sql: main.sql,
      tx: main.tx,
      ping: () => ping(main.sql),
      pool: main.pool,
      onPoolWait: main.onPoolWait,
      session: ({ deadlineMs }) => createQueries(connections({ isPatient: true, deadlineMs })),
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

function createClient(url: string | undefined, options: object): postgres.Sql<Types> {
  // `socket` and `max_pipeline` are read by postgres.js but missing from its types; the version is pinned.
  return (url ? postgres(url, options) : postgres(options)) as unknown as postgres.Sql<Types>;
}

function clientOptions(socket: () => Duplex, log: Log) {
  return {
    socket,
    max: 1,
    // Send one query at a time: the deadline then applies to it alone, and no other
    // query waits behind its lock.
    max_pipeline: 0,
    idle_timeout: 0,
    max_lifetime: 0,
    connect_timeout: 0,
    fetch_types: false,
    types: { bigint: postgres.BigInt, ...arrayTypes },
    onnotice: (notice: postgres.Notice) => log.debug({ notice: notice['message'] }, 'database notice'),
  };
}

interface Connections {
  maxConnections: number;
  queueMs: number;
  open(): Promise<Duplex>;
  client(socket: () => Duplex): postgres.Sql<Types>;
  /** The statement that opens a transaction. */
  begin: string;
}

/**
 * A query of postgres.js: a promise that starts when it is awaited, by passing itself to its
 * handler. These members are not in its types; the version is pinned.
 */
interface Query extends Promise<unknown> {
  handler: (query: Query) => void;
  resolve(value: unknown): void;
  reject(error: unknown): void;
  cursorFn?: unknown;
}

/** A connection with its own client, discarded together. */
interface Lease {
  client: postgres.Sql<Types>;
  isAlive: boolean;
  run(query: Query): void;
  end(): Promise<void>;
}

// postgres.js has a pool and transactions too, but its pool waits without an end, its client reconnects in
// the middle of a transaction, and a statement after a lost connection is an uncaught exception in it. So
// it is used one connection at a time, and a connection that is lost takes its client with it.
function createQueries(connections: Connections): Queries & Pick<Database, 'pool' | 'onPoolWait' | 'close'> {
  // It never connects; it only creates queries, which any connection may run.
  const queryFactory = connections.client(() => {
    throw new Error('This client creates queries and runs none.');
  });
  let onWait: ((ms: number) => void) | undefined;
  const pool = createPool<Lease>({
    onWait: (ms) => onWait?.(ms),
    max: connections.maxConnections,
    queueMs: connections.queueMs,
    open: (onLost) => openLease(connections, onLost),
    isAlive: (lease) => lease.isAlive,
    end: (lease) => lease.end(),
    busyError: () => unavailableProblem('The database is busy; no connection came free in time.'),
  });
  return {
    sql: createSql(queryFactory, (query) => void runAlone(pool, query)),
    tx: (work) => transact(pool, connections.begin, work),
    pool: () => pool.state(),
    onPoolWait: (listener) => (onWait = listener),
    close: () => pool.close(),
  };
}

async function openLease(connections: Connections, onLost: () => void): Promise<Lease> {
  let socket: Duplex;
  try {
    socket = await connections.open();
  } catch (error) {
    throw databaseProblem(error, { isSqlError: error instanceof postgres.PostgresError });
  }
  let isUsed = false;
  const client = connections.client(() => {
    if (isUsed) throw Object.assign(new Error('The connection was lost.'), { code: 'CONNECTION_CLOSED' });
    isUsed = true;
    return socket;
  });
  const execute = (client.unsafe('') as unknown as Query).handler;
  const lease: Lease = {
    client,
    isAlive: true,
    run: (query) => {
      if (lease.isAlive) execute(query);
      else query.reject(unavailableProblem('The connection to the database was lost.'));
    },
    async end() {
      lease.isAlive = false;
      await client.end({ timeout: 1 });
      socket.destroy();
    },
  };
  // Register before postgres.js adds its own listeners, so that nothing runs on a lost connection.
  const discardLease = (): void => {
    if (!lease.isAlive) return;
    lease.isAlive = false;
    onLost();
    void client.end({ timeout: 0 });
  };
  socket.on('error', discardLease);
  socket.on('end', discardLease);
  socket.on('close', discardLease);
  return lease;
}

async function runAlone(pool: Pool<Lease>, query: Query): Promise<void> {
  if (query.cursorFn)
    return query.reject(new Error('A cursor needs a transaction: its connection must not be given away.'));
  let lease: Lease;
  try {
    lease = await pool.acquire();
  } catch (error) {
    return query.reject(error);
  }
  onSettled(query, () => pool.release(lease));
  lease.run(query);
}

async function transact<T>(pool: Pool<Lease>, begin: string, work: (tx: Tx) => Promise<T>): Promise<T> {
  const lease = await pool.acquire();
  let isOver = false;
  let firstError: unknown;
  let savepoints = 0;
  const sql = createSql(lease.client, (query) => {
    if (isOver) return query.reject(new Error('The transaction is over.'));
    onSettled(query, (error) => (firstError ??= error));
    lease.run(query);
  });
  const tx: Tx = Object.assign(sql, {
    async savepoint<R>(inner: (tx: Tx) => Promise<R>): Promise<R> {
      const name = `s${++savepoints}`;
      await sql.unsafe(`savepoint ${name}`);
      try {
        return await inner(tx);
      } catch (error) {
        await sql.unsafe(`rollback to savepoint ${name}`);
        firstError = undefined;
        throw error;
      }
    },
  });
  try {
    await sql.unsafe(begin);
    const result = await work(tx);
    // PostgreSQL answers the commit of a failed transaction with a mere "ROLLBACK".
    const { command } = await sql.unsafe('commit');
    if (command === 'ROLLBACK')
      throw firstError instanceof Error
        ? firstError
        : new Error('The transaction had failed and was rolled back.', { cause: firstError });
    return result;
  } catch (error) {
    if (lease.isAlive) await sql.unsafe('rollback').catch(() => lease.end());
    throw error;
  } finally {
    isOver = true;
    pool.release(lease);
  }
}

/** A template whose queries `run` executes. Fragments within other queries never run. */
function createSql(queryFactory: postgres.Sql<Types>, run: (query: Query) => void): Sql {
  const route = <T>(query: T): T => {
    if (query instanceof Promise) (query as unknown as Query).handler = run;
    return query;
  };
  const create = queryFactory as unknown as (query: unknown, ...parameters: unknown[]) => unknown;
  // The statement decides the type of a list parameter. postgres.js would declare
  // the type of its first element, which is wrong for bigints, dates and booleans.
  const asParameter = (value: unknown): unknown =>
    Array.isArray(value) && value.length > 0 && !(value[0] instanceof Promise)
      ? queryFactory.typed(value, 0)
      : value;
  const call = (query: unknown, ...parameters: unknown[]) => {
    const isTemplate = Array.isArray(query) && 'raw' in query;
    return route(create(query, ...(isTemplate ? parameters.map(asParameter) : parameters)));
  };
  return Object.assign(call, {
    types: queryFactory.types,
    typed: queryFactory.typed,
    array: (list: unknown[], element = 0) => queryFactory.typed(list, arrayOf.get(element) ?? 0),
    json: queryFactory.json,
    unsafe: (...parameters: Parameters<Sql['unsafe']>) => route(queryFactory.unsafe(...parameters)),
    file: (...parameters: Parameters<Sql['file']>) => route(queryFactory.file(...parameters)),
    notify: (channel: string, payload: string) =>
      (call as unknown as Sql)`select pg_notify(${channel}, ${payload})`,
  }) as unknown as Sql;
}

/**
 * Calls `listener` once when the query settles, before its caller knows, and translates
 * errors to Problems and SQL errors.
 */
function onSettled(query: Query, listener: (error?: unknown) => void): void {
  const { resolve, reject } = query;
  let isSettled = false;
  const settle = (error?: unknown): void => {
    if (isSettled) return;
    isSettled = true;
    listener(error);
  };
  query.resolve = (value) => {
    settle();
    resolve(value);
  };
  query.reject = (error) => {
    const databaseError = databaseProblem(error, { isSqlError: error instanceof postgres.PostgresError });
    settle(databaseError);
    reject(databaseError);
  };
}

async function ping(sql: Sql): Promise<void> {
  await sql`select 1`;
}

async function readVersion(sql: Sql): Promise<string> {
  const [row] = await sql<{ version: string }[]>`select version()`;
  return row?.version ?? '';
}

async function requireDurability(sql: Sql): Promise<void> {
  const settings = await sql<{ name: string }[]>`
    select name from pg_settings
    where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off' order by name`;
  if (settings.length === 0) return;
  const names = settings.map(({ name }) => name).join(' and ');
  throw unavailableProblem(
    `The PostgreSQL server has ${names} off, so it would confirm commits that a power cut can undo. Turn it on.`,
  );
}
