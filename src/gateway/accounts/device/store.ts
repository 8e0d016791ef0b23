// SQL for device logins. The database's clock decides whether a login has expired or a poll is too early.
import type { Database, Sql } from '../../../kernel/data/database.ts';
import type { BureauState } from '../../bureaus/index.ts';
import type { BureauColumns } from '../core/store.ts';

/** Limits of the API key that a program requests. */
export interface KeyLimits {
  models: string[] | null;
  creditCap: number | null;
  ttlSeconds: number;
}

export interface NewDeviceLogin {
  digest: Buffer;
  userCodeDigest: Buffer;
  bureauId: string;
  name: string;
  address: string;
  network: string;
  /** Null when the program requests a user token. */
  keyLimits: KeyLimits | null;
  ttlSeconds: number;
  intervalSeconds: number;
}

export interface PendingDeviceLogin {
  name: string;
  address: string;
  keyLimits: KeyLimits | null;
  createdAt: Date;
  expiresAt: Date;
}

export interface DeviceLogin {
  bureauState: BureauState;
  state: 'pending' | 'confirmed' | 'denied' | 'spent';
  name: string;
  keyLimits: KeyLimits | null;
  /** The token that confirmed or denied the login. */
  decidedBy: string | null;
  intervalSeconds: number;
  isExpired: boolean;
  /** Less than `intervalSeconds` have passed since the last poll. */
  isPolledTooSoon: boolean;
}

export interface DeviceLoginQueries {
  /**
   * `busy`: the network has `maxPending` pending logins. `taken`: another login has the user code. Concurrent
   * inserts can exceed `maxPending` by their number, as the count and the insert are two statements.
   */
  insert(login: NewDeviceLogin, maxPending: number): Promise<'stored' | 'busy' | 'taken'>;
  /** The token that confirmed or denied the login; null while it is pending or unknown. Takes no lock. */
  findDecider(digest: Buffer): Promise<string | null>;
  /** Locks the login until the transaction ends. */
  lock(digest: Buffer): Promise<DeviceLogin | null>;
  recordPoll(digest: Buffer, intervalSeconds: number): Promise<void>;
  setState(digest: Buffer, state: 'denied' | 'spent'): Promise<void>;
  /** The pending login of the Bureau with this user code, unless it has expired. */
  findPending(userCodeDigest: Buffer, bureauId: string): Promise<PendingDeviceLogin | null>;
  /** Decides a pending login; null when there is none. */
  decide(
    userCodeDigest: Buffer,
    bureauId: string,
    decision: { state: 'confirmed' | 'denied'; decidedBy: string },
  ): Promise<{ name: string; address: string } | null>;
  /** Deletes up to 100 logins that expired more than an hour ago. */
  deleteExpired(): Promise<void>;
}

export interface DeviceLoginStore extends DeviceLoginQueries {
  /** The same queries on a transaction's connection. */
  withSql(sql: Sql): DeviceLoginQueries;
}

export function deviceLoginStore({ sql }: Database, bureaus: BureauColumns): DeviceLoginStore {
  return { ...createQueries(sql, bureaus), withSql: (tx) => createQueries(tx, bureaus) };
}

function createQueries(sql: Sql, bureaus: BureauColumns): DeviceLoginQueries {
  return { ...programQueries(sql, bureaus), ...personQueries(sql) };
}

function programQueries(
  sql: Sql,
  bureaus: BureauColumns,
): Pick<DeviceLoginQueries, 'insert' | 'findDecider' | 'lock' | 'recordPoll' | 'setState' | 'deleteExpired'> {
  return {
    async insert(login, maxPending) {
      const [count] = await sql<{ pending: number }[]>`
        select count(*)::integer as pending from gateway.accounts_device_logins
        where network = ${login.network} and expires_at > gateway.townhall_now() and state = 'pending'`;
      if ((count?.pending ?? 0) >= maxPending) return 'busy';
      const rows = await sql`
        insert into gateway.accounts_device_logins
          (digest, user_code_digest, bureau_id, name, address, network, key_limits, interval_seconds, expires_at)
        values (${login.digest}, ${login.userCodeDigest}, ${login.bureauId}, ${login.name},
          ${login.address}, ${login.network},
          ${login.keyLimits === null ? null : sql.json(login.keyLimits as never)}, ${login.intervalSeconds},
          gateway.townhall_now() + make_interval(secs => ${login.ttlSeconds}))
        on conflict (user_code_digest) do nothing returning 1`;
      return rows.length > 0 ? 'stored' : 'taken';
    },
    async findDecider(digest) {
      const [row] = await sql<{ decidedBy: string | null }[]>`
        select maker_id as "decidedBy" from gateway.accounts_device_logins where digest = ${digest}`;
      return row?.decidedBy ?? null;
    },
    async lock(digest) {
      const [row] = await sql<DeviceLogin[]>`
        select ${bureaus.stateOf(sql, 'd.bureau_id')} as "bureauState", d.state, d.name, d.key_limits as "keyLimits",
          d.maker_id as "decidedBy", d.interval_seconds as "intervalSeconds",
          d.expires_at <= gateway.townhall_now() as "isExpired",
          coalesce(d.last_polled_at > gateway.townhall_now() - make_interval(secs => d.interval_seconds), false)
            as "isPolledTooSoon"
        from gateway.accounts_device_logins d where d.digest = ${digest} for update of d`;
      return row ?? null;
    },
    async recordPoll(digest, intervalSeconds) {
      await sql`
        update gateway.accounts_device_logins
        set last_polled_at = gateway.townhall_now(), interval_seconds = ${intervalSeconds} where digest = ${digest}`;
    },
    async setState(digest, state) {
      await sql`update gateway.accounts_device_logins set state = ${state} where digest = ${digest}`;
    },
    async deleteExpired() {
      await sql`
        delete from gateway.accounts_device_logins where digest in (
          select digest from gateway.accounts_device_logins
          where expires_at < gateway.townhall_now() - interval '1 hour'
          order by expires_at limit 100 for update skip locked)`;
    },
  };
}

function personQueries(sql: Sql): Pick<DeviceLoginQueries, 'findPending' | 'decide'> {
  return {
    async findPending(userCodeDigest, bureauId) {
      const [row] = await sql<PendingDeviceLogin[]>`
        select name, address, key_limits as "keyLimits", created_at as "createdAt", expires_at as "expiresAt"
        from gateway.accounts_device_logins
        where user_code_digest = ${userCodeDigest} and bureau_id = ${bureauId} and state = 'pending'
          and expires_at > gateway.townhall_now()`;
      return row ?? null;
    },
    async decide(userCodeDigest, bureauId, { state, decidedBy }) {
      const [row] = await sql<{ name: string; address: string }[]>`
        update gateway.accounts_device_logins set state = ${state}, maker_id = ${decidedBy}
        where user_code_digest = ${userCodeDigest} and bureau_id = ${bureauId} and state = 'pending'
          and expires_at > gateway.townhall_now()
        returning name, address`;
      return row ?? null;
    },
  };
}
