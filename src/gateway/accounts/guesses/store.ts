// The tables of throttles and of known networks, and the only file that names them. A try is counted in one
// statement, so that no burst passes, whichever replicas it goes to.
import type { Database } from '../../../kernel/data/database.ts';

export interface Budget {
  /** How many within a window. */
  limit: number;
  windowSeconds: number;
}

export interface GuessStore {
  /** Counts one try, or says after how many seconds one would be counted. */
  count(key: Buffer, budget: Budget): Promise<'counted' | { retryAfterSeconds: number }>;
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
