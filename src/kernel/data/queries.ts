// Statements and transactions over a pool of connections. Each connection has its own client of
// postgres.js and runs one query at a time; waits have deadlines, and errors become Problems.
import postgres from 'postgres';
import type { Duplex } from 'node:stream';
import { arrayOf } from './array-types.ts';
import { databaseProblem, unavailableProblem } from './database-errors.ts';
import { Pool, type PoolState } from './pool.ts';

/** int8 is a bigint. */
export interface Types extends Record<string, unknown> {
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

/** How a pool opens its connections. */
export interface Connections {
  maxConnections: number;
  queueMs: number;
  open(): Promise<Duplex>;
  client(socket: () => Duplex): postgres.Sql<Types>;
  /** The statement that opens a transaction. */
  begin: string;
}

export interface PooledQueries extends Queries {
  /** The connections at this moment. */
  pool(): PoolState;
  /** Calls the listener with the wait of each statement or transaction that got no connection at once. */
  onPoolWait(listener: (ms: number) => void): void;
  /** Lets running statements finish for up to five seconds, then closes their connections. */
  close(): Promise<void>;
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

// postgres.js has a pool and transactions too, but its pool waits without a limit, its client
// reconnects in the middle of a transaction, and a statement after a lost connection causes an uncaught
// exception in it. So each client has one connection, and both are discarded together.
export function createQueries(connections: Connections): PooledQueries {
  // It never connects; it only creates queries, which any connection may run.
  const queryFactory = connections.client(() => {
    throw new Error('This client creates queries and runs none.');
  });
  let onWait: ((ms: number) => void) | undefined;
  const pool = new Pool<Lease>({
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
    return query.reject(
      new Error('A cursor needs a transaction, which keeps its connection until the cursor is read.'),
    );
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
