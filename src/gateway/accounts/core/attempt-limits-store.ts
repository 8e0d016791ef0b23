// SQL for attempt counters (throttles) and known networks. Each attempt is counted in one
// statement, so a burst cannot pass a limit, even when it is spread over several replicas.
import type { Database, Sql } from '../../../kernel/data/database.ts';

/** A fixed window: at most `limit` attempts in each. */
export interface WindowLimit {
  limit: number;
  windowSeconds: number;
}

/**
 * Exponential backoff: free attempts first, then a delay before each further one, doubling up to a maximum.
 */
export interface DelaySchedule {
  freeTries: number;
  firstDelaySeconds: number;
  maximumDelaySeconds: number;
  /** The counter starts over after this long without an attempt. */
  forgetSeconds: number;
}

/** Keys are SHA-256 digests, so the tables hold neither e-mail addresses nor networks. */
export interface AttemptLimitsStore {
  /** Counts one attempt, or returns how long to wait before the next attempt. */
  count(key: Buffer, limit: WindowLimit): Promise<'counted' | { retryAfterSeconds: number }>;
  /** Like `count`, with backoff. Once the free attempts are used up, concurrent attempts count as one. */
  countDelayed(key: Buffer, schedule: DelaySchedule): Promise<'counted' | { retryAfterSeconds: number }>;
  /** Takes back one counted attempt. */
  uncount(key: Buffer): Promise<void>;
  /** Deletes counters. */
  clear(keys: readonly Buffer[]): Promise<void>;
  isKnownNetwork(email: Buffer, network: Buffer): Promise<boolean>;
  rememberNetwork(email: Buffer, network: Buffer): Promise<void>;
  /** Deletes all known networks of an address. */
  forgetNetworks(email: Buffer): Promise<void>;
  /** Deletes up to 100 expired counters and up to 100 networks last seen more than `networkDays` ago. */
  deleteOld(networkDays: number): Promise<void>;
}

export function attemptLimitsStore({ sql }: Database): AttemptLimitsStore {
  return {
    ...counterQueries(sql),
    ...networkQueries(sql),
    async deleteOld(networkDays) {
      await sql`
        delete from gateway.accounts_throttles where key in (
          select key from gateway.accounts_throttles where ends_at < gateway.townhall_now()
          order by ends_at limit 100 for update skip locked)`;
      await sql`
        delete from gateway.accounts_known_networks where (person, network) in (
          select person, network from gateway.accounts_known_networks
          where seen_at < gateway.townhall_now() - make_interval(days => ${networkDays})
          order by seen_at limit 100 for update skip locked)`;
    },
  };
}

function counterQueries(sql: Sql): Pick<AttemptLimitsStore, 'count' | 'countDelayed' | 'uncount' | 'clear'> {
  return {
    async count(key, { limit, windowSeconds }) {
      // Concurrent attempts wait for the row's lock, so each sees the count of the preceding attempt.
      const [acceptedRow] = await sql`
        insert into gateway.accounts_throttles as t (key, used, opened_at, ends_at)
        values (${key}, 1, gateway.townhall_now(),
          gateway.townhall_now() + make_interval(secs => ${windowSeconds}))
        on conflict (key) do update set
          used = case when t.ends_at <= gateway.townhall_now() then 1 else t.used + 1 end,
          opened_at = case when t.ends_at <= gateway.townhall_now() then excluded.opened_at else t.opened_at end,
          ends_at = case when t.ends_at <= gateway.townhall_now() then excluded.ends_at else t.ends_at end
        where t.used < ${limit} or t.ends_at <= gateway.townhall_now()
        returning 1`;
      if (acceptedRow) return 'counted';
      const [row] = await sql<{ seconds: number }[]>`
        select extract(epoch from ends_at - gateway.townhall_now())::float8 as seconds
        from gateway.accounts_throttles where key = ${key}`;
      return { retryAfterSeconds: Math.max(1, Math.ceil(row?.seconds ?? 1)) };
    },
    async countDelayed(key, schedule) {
      const delay = delaySql(sql, schedule);
      // Here `opened_at` is the time of the last counted attempt, from which the next delay runs.
      const [acceptedRow] = await sql`
        insert into gateway.accounts_throttles as t (key, used, opened_at, ends_at)
        values (${key}, 1, gateway.townhall_now(),
          gateway.townhall_now() + make_interval(secs => ${schedule.forgetSeconds}))
        on conflict (key) do update set
          used = case when t.ends_at <= gateway.townhall_now() then 1 else t.used + 1 end,
          opened_at = greatest(t.opened_at, excluded.opened_at), ends_at = excluded.ends_at
        -- Free attempts have no delay, even when this transaction began before the last counted attempt.
        where t.ends_at <= gateway.townhall_now() or t.used < ${schedule.freeTries}
          or t.opened_at + ${delay} <= gateway.townhall_now()
        returning 1`;
      if (acceptedRow) return 'counted';
      const [row] = await sql<{ seconds: number }[]>`
        select extract(epoch from t.opened_at + ${delay} - gateway.townhall_now())::float8 as seconds
        from gateway.accounts_throttles t where key = ${key}`;
      return { retryAfterSeconds: Math.max(1, Math.ceil(row?.seconds ?? 1)) };
    },
    async uncount(key) {
      await sql`update gateway.accounts_throttles set used = greatest(used - 1, 0) where key = ${key}`;
    },
    async clear(keys) {
      await sql`delete from gateway.accounts_throttles where key = any(${keys}::bytea[])`;
    },
  };
}

function networkQueries(
  sql: Sql,
): Pick<AttemptLimitsStore, 'isKnownNetwork' | 'rememberNetwork' | 'forgetNetworks'> {
  return {
    async isKnownNetwork(email, network) {
      const rows = await sql`
        select 1 from gateway.accounts_known_networks where person = ${email} and network = ${network}`;
      return rows.length > 0;
    },
    async rememberNetwork(email, network) {
      await sql`
        insert into gateway.accounts_known_networks (person, network) values (${email}, ${network})
        on conflict (person, network) do update set seen_at = gateway.townhall_now()`;
    },
    async forgetNetworks(email) {
      await sql`delete from gateway.accounts_known_networks where person = ${email}`;
    },
  };
}

// The exponent is capped at 40, because PostgreSQL raises an error when a power
// exceeds the range of a double.
function delaySql(sql: Sql, { freeTries, firstDelaySeconds, maximumDelaySeconds }: DelaySchedule) {
  return sql`make_interval(secs => least(
    ${firstDelaySeconds}::float8 * power(2::float8, least(greatest(t.used - ${freeTries}::integer, 0), 40)),
    ${maximumDelaySeconds}::float8))`;
}
