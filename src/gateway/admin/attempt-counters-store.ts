// SQL for the counters of login attempts. Rows are locked in one order, so that
// concurrent attempts cannot deadlock.
import { createHash } from 'node:crypto';
import type { Database, Sql, Tx } from '../../kernel/data/database.ts';
import {
  counterScopes,
  decideAttempt,
  type AdminAttemptLimits,
  type Counter,
  type Counters,
  type CounterScope,
} from './attempt-limits.ts';

/** The administrator ID of a login and the network it comes from. */
export interface LoginSource {
  adminId: string;
  network: string;
}

export interface AttemptCounterStore {
  /**
   * Counts the attempt, or returns how long to wait before the next attempt. Concurrent attempts cannot
   * exceed the limits.
   */
  countAttempt(
    source: LoginSource,
    limits: AdminAttemptLimits,
  ): Promise<{ retryAfterSeconds: number } | 'counted'>;
  /** How long to wait before the next attempt; 0 when it may be made now. Counts nothing. */
  waitSeconds(source: LoginSource, limits: AdminAttemptLimits): Promise<number>;
  /** Deletes up to 100 counters without an attempt for this long. */
  deleteOldCounters(seconds: number): Promise<void>;
}

export function attemptCounterStore(database: Database): AttemptCounterStore {
  const { sql } = database;
  return {
    async countAttempt(source, limits) {
      // Decide without a lock first, so that in a flood each refused attempt costs only one read.
      const preview = decideAttempt(await readCounters(sql, source), limits);
      if (!preview.isAllowed) return { retryAfterSeconds: preview.retryAfterSeconds };
      return database.tx((tx) => countLocked(tx, source, limits));
    },
    async waitSeconds(source, limits) {
      const decision = decideAttempt(await readCounters(sql, source), limits);
      return decision.isAllowed ? 0 : decision.retryAfterSeconds;
    },
    async deleteOldCounters(seconds) {
      await sql`
        delete from gateway.admin_guesses where (scope, key) in (
          select scope, key from gateway.admin_guesses
          where succeeded_at is null and last_try_at < gateway.townhall_now() - make_interval(secs => ${seconds})
          order by last_try_at limit 100 for update skip locked)`;
    },
  };
}

async function countLocked(
  tx: Tx,
  source: LoginSource,
  limits: AdminAttemptLimits,
): Promise<{ retryAfterSeconds: number } | 'counted'> {
  const keys = keysOf(source);
  // Insert missing rows before locking, always in this order.
  await tx`
    insert into gateway.admin_guesses (scope, key)
    values ('address', ${keys.address}), ('id', ${keys.id}), ('pair', ${keys.pair})
    on conflict (scope, key) do nothing`;
  const decision = decideAttempt(await readCounters(tx, source, tx`for update`), limits);
  if (!decision.isAllowed) return { retryAfterSeconds: decision.retryAfterSeconds };
  const { tries, startsWindow } = decision;
  await tx`
    update gateway.admin_guesses set
      tries = case scope
        when 'address' then ${tries.address}::integer
        when 'id' then ${tries.id}::integer
        else ${tries.pair}::integer end,
      opened_at = case when scope = 'address' and ${startsWindow} then gateway.townhall_now() else opened_at end,
      -- townhall_now() is the start of the transaction, and an attempt that started earlier may be counted later.
      last_try_at = greatest(last_try_at, gateway.townhall_now())
    where ${hasKey(tx, keys)}`;
  return 'counted';
}

/**
 * Takes back the attempt of a successful login, resets the counter of its pair and marks its network as
 * known.
 */
export async function uncountAttempt(tx: Tx, source: LoginSource): Promise<void> {
  const keys = keysOf(source);
  await tx`select 1 from gateway.admin_guesses where ${hasKey(tx, keys)} order by scope for update`;
  // The ID's counter did not count this attempt if the network was known before, so it is not reduced then.
  await tx`
    update gateway.admin_guesses set tries = greatest(tries - 1, 0)
    where (scope = 'address' and key = ${keys.address})
      or (scope = 'id' and key = ${keys.id} and not exists (
        select 1 from gateway.admin_guesses
        where scope = 'pair' and key = ${keys.pair} and succeeded_at is not null))`;
  await tx`
    update gateway.admin_guesses set tries = 0, succeeded_at = gateway.townhall_now()
    where scope = 'pair' and key = ${keys.pair}`;
}

/** Waits for attempts that are being counted. */
export async function deleteAllCounters(tx: Tx): Promise<void> {
  // Lock the table: deleting row by row could deadlock with an attempt that is being counted.
  await tx`lock table gateway.admin_guesses in exclusive mode`;
  await tx`delete from gateway.admin_guesses`;
}

type CounterKeys = Record<CounterScope, Buffer>;

function keysOf({ adminId, network }: LoginSource): CounterKeys {
  const key = (...parts: string[]) => createHash('sha256').update(JSON.stringify(parts)).digest();
  return { address: key(network), id: key(adminId), pair: key(adminId, network) };
}

function hasKey(sql: Sql, { address, id, pair }: CounterKeys) {
  return sql`((scope = 'address' and key = ${address})
    or (scope = 'id' and key = ${id})
    or (scope = 'pair' and key = ${pair}))`;
}

async function readCounters(sql: Sql, source: LoginSource, lock = sql``): Promise<Counters> {
  // The ages are those at the start of the transaction, so an attempt that waits for the lock is not
  // allowed sooner for that.
  const rows = await sql<(Counter & { scope: CounterScope })[]>`
    select scope, tries, succeeded_at is not null as "hasSucceeded",
      extract(epoch from gateway.townhall_now() - opened_at)::float8 as "ageSeconds",
      extract(epoch from gateway.townhall_now() - last_try_at)::float8 as "idleSeconds"
    from gateway.admin_guesses where ${hasKey(sql, keysOf(source))}
    order by scope ${lock}`;
  const emptyCounter: Counter = { tries: 0, ageSeconds: 0, idleSeconds: 0, hasSucceeded: false };
  const byScope = new Map(rows.map((row) => [row.scope, row]));
  return Object.fromEntries(
    counterScopes.map((scope) => [scope, byScope.get(scope) ?? emptyCounter]),
  ) as Counters;
}
