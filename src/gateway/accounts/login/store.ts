// SQL for login attempts. The database's clock decides whether an attempt has expired.
import type { Database, Sql } from '../../../kernel/data/database.ts';
import type { BureauState } from '../../bureaus/index.ts';
import type { BureauColumns, UserState } from '../core/store.ts';

export interface LoginAttempt {
  bureauId: string;
  bureauState: BureauState;
  provider: string;
  state: 'pending' | 'done' | 'failed';
  awaits: 'input' | 'redirect' | null;
  error: string | null;
  inputsLeft: number;
  sealedProviderState: Buffer | null;
  redirectTo: string | null;
  codeChallenge: string | null;
  loginCodeDigest: Buffer | null;
  userId: string | null;
  userState: UserState | null;
  isExpired: boolean;
  wasRead: boolean;
  /** The first read is so recent that the result can be read again. */
  isReadable: boolean;
  tokenId: string | null;
  sealedToken: Buffer | null;
}

export interface NewLoginAttempt {
  digest: Buffer;
  bureauId: string;
  provider: string;
  ttlSeconds: number;
  maxInputs: number;
  /** The attempt is stored as done when this is set, as pending otherwise. */
  userId?: string;
  awaits?: 'input' | 'redirect';
  redirectTo?: string;
  codeChallenge?: string;
}

/**
 * `countInput`, `finish` and `fail` change only an attempt that is pending and has not expired. They return
 * null or false for any other attempt.
 */
export interface LoginAttemptQueries {
  insert(attempt: NewLoginAttempt): Promise<void>;
  find(digest: Buffer): Promise<LoginAttempt | null>;
  /** Locks the attempt until the transaction ends. */
  lock(digest: Buffer, rereadSeconds: number): Promise<LoginAttempt | null>;
  /** Counts one input and returns how many are left; null when none is left or no input is expected. */
  countInput(digest: Buffer): Promise<number | null>;
  uncountInput(digest: Buffer): Promise<void>;
  setProviderState(digest: Buffer, sealedProviderState: Buffer): Promise<void>;
  finish(digest: Buffer, result: { userId: string; loginCodeDigest?: Buffer }): Promise<boolean>;
  fail(digest: Buffer, error: string): Promise<boolean>;
  /** Without a sealed token the result cannot be read again. */
  recordFirstRead(digest: Buffer, token: { tokenId: string; sealedToken: Buffer | null }): Promise<void>;
  dropSealedToken(digest: Buffer): Promise<void>;
  deleteForUser(userId: string): Promise<void>;
  /** Deletes the finished attempts of a Bureau. */
  deleteForBureau(bureauId: string): Promise<void>;
  /** Deletes up to 100 attempts that expired more than a day ago. */
  deleteExpired(): Promise<void>;
}

export interface LoginAttemptStore extends LoginAttemptQueries {
  /** The same queries on a transaction's connection. */
  withSql(sql: Sql): LoginAttemptQueries;
}

export function loginAttemptStore({ sql }: Database, bureaus: BureauColumns): LoginAttemptStore {
  return { ...createQueries(sql, bureaus), withSql: (tx) => createQueries(tx, bureaus) };
}

function createQueries(sql: Sql, bureaus: BureauColumns): LoginAttemptQueries {
  return {
    ...attemptQueries(sql, bureaus),
    ...pendingQueries(sql),
    ...resultQueries(sql),
    ...deletionQueries(sql),
  };
}

function attemptQueries(
  sql: Sql,
  bureaus: BureauColumns,
): Pick<LoginAttemptQueries, 'insert' | 'find' | 'lock'> {
  return {
    async insert({
      digest,
      bureauId,
      provider,
      ttlSeconds,
      maxInputs,
      userId,
      awaits,
      redirectTo,
      codeChallenge,
    }) {
      await sql`
        insert into gateway.accounts_login_attempts
          (digest, bureau_id, provider, state, user_id, awaits, inputs_left, redirect_to, code_challenge, expires_at)
        values (${digest}, ${bureauId}, ${provider}, ${userId === undefined ? 'pending' : 'done'},
          ${userId ?? null}, ${awaits ?? null}, ${maxInputs}, ${redirectTo ?? null}, ${codeChallenge ?? null},
          gateway.townhall_now() + make_interval(secs => ${ttlSeconds}))`;
    },
    find: (digest) => read(sql, bureaus, digest, 0),
    async lock(digest, rereadSeconds) {
      // Lock first, then read: after waiting for the lock, a single statement would see the row as the
      // previous holder left it, but its subqueries would not see a user that this holder inserted.
      await sql`select 1 from gateway.accounts_login_attempts where digest = ${digest} for update`;
      return read(sql, bureaus, digest, rereadSeconds);
    },
  };
}

/** Changes of attempts that are pending and have not expired. */
function pendingQueries(
  sql: Sql,
): Pick<LoginAttemptQueries, 'countInput' | 'uncountInput' | 'setProviderState' | 'finish' | 'fail'> {
  const isPending = () => sql`state = 'pending' and expires_at > gateway.townhall_now()`;

  return {
    async countInput(digest) {
      const [row] = await sql<{ left: number }[]>`
        update gateway.accounts_login_attempts set inputs_left = inputs_left - 1
        where digest = ${digest} and ${isPending()} and awaits = 'input' and inputs_left > 0
        returning inputs_left as left`;
      return row?.left ?? null;
    },
    async uncountInput(digest) {
      await sql`
        update gateway.accounts_login_attempts set inputs_left = inputs_left + 1
        where digest = ${digest} and ${isPending()}`;
    },
    async setProviderState(digest, sealedProviderState) {
      await sql`
        update gateway.accounts_login_attempts set sealed_memory = ${sealedProviderState}
        where digest = ${digest} and ${isPending()}`;
    },
    async finish(digest, { userId, loginCodeDigest }) {
      const rows = await sql`
        update gateway.accounts_login_attempts
        set state = 'done', user_id = ${userId}, login_code_digest = ${loginCodeDigest ?? null},
          sealed_memory = null, awaits = null
        where digest = ${digest} and ${isPending()} returning 1`;
      return rows.length > 0;
    },
    async fail(digest, error) {
      const rows = await sql`
        update gateway.accounts_login_attempts
        set state = 'failed', error = ${error}, sealed_memory = null, awaits = null
        where digest = ${digest} and ${isPending()} returning 1`;
      return rows.length > 0;
    },
  };
}

function resultQueries(sql: Sql): Pick<LoginAttemptQueries, 'recordFirstRead' | 'dropSealedToken'> {
  return {
    async recordFirstRead(digest, { tokenId, sealedToken }) {
      await sql`
        update gateway.accounts_login_attempts
        set first_read_at = gateway.townhall_now(), token_id = ${tokenId}, sealed_token = ${sealedToken}
        where digest = ${digest}`;
    },
    async dropSealedToken(digest) {
      await sql`update gateway.accounts_login_attempts set sealed_token = null where digest = ${digest}`;
    },
  };
}

function deletionQueries(
  sql: Sql,
): Pick<LoginAttemptQueries, 'deleteForUser' | 'deleteForBureau' | 'deleteExpired'> {
  return {
    async deleteForUser(userId) {
      await sql`delete from gateway.accounts_login_attempts where user_id = ${userId}`;
    },
    async deleteForBureau(bureauId) {
      await sql`
        delete from gateway.accounts_login_attempts where bureau_id = ${bureauId} and user_id is not null`;
    },
    async deleteExpired() {
      // A batch of 100 keeps the calling request fast; `skip locked` keeps replicas
      // from waiting for each other.
      await sql`
        delete from gateway.accounts_login_attempts where digest in (
          select digest from gateway.accounts_login_attempts
          where expires_at < gateway.townhall_now() - interval '1 day'
          order by expires_at limit 100 for update skip locked)`;
    },
  };
}

async function read(
  sql: Sql,
  bureaus: BureauColumns,
  digest: Buffer,
  rereadSeconds: number,
): Promise<LoginAttempt | null> {
  const [row] = await sql<LoginAttempt[]>`
    select a.bureau_id as "bureauId", ${bureaus.stateOf(sql, 'a.bureau_id')} as "bureauState", a.provider,
      a.state, a.awaits, a.error, a.inputs_left as "inputsLeft",
      a.sealed_memory as "sealedProviderState", a.redirect_to as "redirectTo",
      a.code_challenge as "codeChallenge", a.login_code_digest as "loginCodeDigest", a.user_id as "userId",
      (select u.state from gateway.accounts_users u where u.user_id = a.user_id) as "userState",
      a.expires_at <= gateway.townhall_now() as "isExpired",
      a.first_read_at is not null as "wasRead",
      coalesce(a.first_read_at > gateway.townhall_now() - make_interval(secs => ${rereadSeconds}), false)
        as "isReadable",
      a.token_id as "tokenId", a.sealed_token as "sealedToken"
    from gateway.accounts_login_attempts a where a.digest = ${digest}`;
  return row ?? null;
}
