// The tables of throttles and of known networks, and the only file that names them. A try is counted in one
// statement, so that no burst passes, whichever replicas it goes to.
import type { Database, Sql } from '../../kernel/data/database.ts';

export interface Budget {
  /** How many within a window. */
  limit: number;
  windowSeconds: number;
}

/** Tries that are never refused for good: after the free ones each has to wait, twice as long each time up to a maximum. */
export interface Pace {
  freeTries: number;
  firstDelaySeconds: number;
  maximumDelaySeconds: number;
  /** Without a try for so long, all are free again. */
  forgetSeconds: number;
}

export interface GuessStore {
  /** Counts one try, or says after how many seconds one would be counted. */
  count(key: Buffer, budget: Budget): Promise<'counted' | { retryAfterSeconds: number }>;
  /** Likewise at a pace. Of any number at once after the free tries, one is counted. */
  countPaced(key: Buffer, pace: Pace): Promise<'counted' | { retryAfterSeconds: number }>;
  /** As if one try had not been made. */
  giveBack(key: Buffer): Promise<void>;
  isKnown(person: Buffer, network: Buffer): Promise<boolean>;
  remember(person: Buffer, network: Buffer): Promise<void>;
  /** Forgets every network of the person. */
  forget(person: Buffer): Promise<void>;
  /** Forgets some counters whose window is over, and some networks that were not seen for so long. */
  forgetOld(networkDays: number): Promise<void>;
}

export function guessStore({ sql }: Database): GuessStore {
  return {
    async count(key, { limit, windowSeconds }) {
      // A second try that comes at the same time waits for the first one's row and is judged by what it left.
      const [counted] = await sql`
        insert into gateway.accounts_throttles as t (key, used, opened_at, ends_at)
        values (${key}, 1, gateway.townhall_now(), gateway.townhall_now() + make_interval(secs => ${windowSeconds}))
        on conflict (key) do update set
          used = case when t.ends_at <= gateway.townhall_now() then 1 else t.used + 1 end,
          opened_at = case when t.ends_at <= gateway.townhall_now() then excluded.opened_at else t.opened_at end,
          ends_at = case when t.ends_at <= gateway.townhall_now() then excluded.ends_at else t.ends_at end
        where t.used < ${limit} or t.ends_at <= gateway.townhall_now()
        returning 1`;
      if (counted) return 'counted';
      const [full] = await sql<{ seconds: number }[]>`
        select extract(epoch from ends_at - gateway.townhall_now())::float8 as seconds
        from gateway.accounts_throttles where key = ${key}`;
      return { retryAfterSeconds: Math.max(1, Math.ceil(full?.seconds ?? 1)) };
    },
    async countPaced(key, pace) {
      const delay = delayAfter(sql, pace);
      // `opened_at` is the time of the last counted try here, from which the next one's delay runs.
      const [counted] = await sql`
        insert into gateway.accounts_throttles as t (key, used, opened_at, ends_at)
        values (${key}, 1, gateway.townhall_now(), gateway.townhall_now() + make_interval(secs => ${pace.forgetSeconds}))
        on conflict (key) do update set
          used = case when t.ends_at <= gateway.townhall_now() then 1 else t.used + 1 end,
          opened_at = greatest(t.opened_at, excluded.opened_at), ends_at = excluded.ends_at
        -- A try that began before the last counted one has no delay to wait for while tries are free.
        where t.ends_at <= gateway.townhall_now() or t.used < ${pace.freeTries} or t.opened_at + ${delay} <= gateway.townhall_now()
        returning 1`;
      if (counted) return 'counted';
      const [early] = await sql<{ seconds: number }[]>`
        select extract(epoch from t.opened_at + ${delay} - gateway.townhall_now())::float8 as seconds
        from gateway.accounts_throttles t where key = ${key}`;
      return { retryAfterSeconds: Math.max(1, Math.ceil(early?.seconds ?? 1)) };
    },
    async giveBack(key) {
      await sql`update gateway.accounts_throttles set used = greatest(used - 1, 0) where key = ${key}`;
    },
    async isKnown(person, network) {
      const [found] = await sql`
        select 1 from gateway.accounts_known_networks where person = ${person} and network = ${network}`;
      return found !== undefined;
    },
    async remember(person, network) {
      await sql`
        insert into gateway.accounts_known_networks (person, network) values (${person}, ${network})
        on conflict (person, network) do update set seen_at = gateway.townhall_now()`;
    },
    async forget(person) {
      await sql`delete from gateway.accounts_known_networks where person = ${person}`;
    },
    async forgetOld(networkDays) {
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

// The exponent has a bound, because a power beyond the range of a double is an error in SQL.
function delayAfter(sql: Sql, { freeTries, firstDelaySeconds, maximumDelaySeconds }: Pace) {
  return sql`make_interval(secs => least(
    ${firstDelaySeconds}::float8 * power(2::float8, least(greatest(t.used - ${freeTries}::integer, 0), 40)), ${maximumDelaySeconds}::float8))`;
}
