// The tables of users, identities, tokens and login attempts, and the only file that names them. Whether
// something has expired is judged here, by the database's clock.
import type { Database, Sql, Tx } from '../../kernel/database.ts';
import type { BureauState, SqlFragment } from '../bureaus/index.ts';
import type { Person } from './login-provider.ts';

export interface User {
  userId: string;
  email: string | null;
  displayName: string | null;
  avatarUrl: string | null;
  metadata: Record<string, unknown>;
  createdAt: Date;
}

export interface Token {
  tokenId: string;
  name: string | null;
  expiresAt: Date;
}

export interface NewToken {
  tokenId: string;
  userId: string;
  digest: Buffer;
  last4: string;
  name: string | null;
  ttlSeconds: number;
}

/** What a bearer token stands for. */
export interface Bearer {
  tokenId: string;
  userId: string;
  bureauId: string;
  userState: 'active' | 'blocked';
  bureauState: BureauState;
  /** Its last use was noted so long ago that this one should be. */
  isUseStale: boolean;
}

export interface Attempt {
  state: 'pending' | 'done' | 'failed';
  bureauState: BureauState;
  userId: string | null;
  userState: 'active' | 'blocked' | null;
  isExpired: boolean;
  wasRead: boolean;
  /** Whether the first read was so short ago that another may have the token. */
  isReadable: boolean;
  tokenId: string | null;
  sealedToken: Buffer | null;
}

/** What can be done on one connection, in a transaction or alone. */
export interface AccountsQueries {
  findBearer(digest: Buffer): Promise<Bearer | null>;
  noteUse(tokenId: string): Promise<void>;
  findUser(userId: string): Promise<User | null>;
  findToken(tokenId: string): Promise<Token | null>;
  insertToken(token: NewToken): Promise<{ expiresAt: Date }>;
  insertAttempt(attempt: { digest: Buffer; bureauId: string; provider: string; userId: string; ttlSeconds: number }): Promise<void>;
  /** Forgets some attempts that ended more than a day ago. */
  forgetOldAttempts(): Promise<void>;
  /** Nobody else can read the attempt until the transaction ends. */
  lockAttempt(digest: Buffer, rereadSeconds: number): Promise<Attempt | null>;
  noteFirstRead(digest: Buffer, token: { tokenId: string; sealedToken: Buffer }): Promise<void>;
  dropSealedToken(digest: Buffer): Promise<void>;
}

export interface AccountsStore extends AccountsQueries {
  tx<T>(work: (queries: AccountsQueries) => Promise<T>): Promise<T>;
  /** The user that the person is in the Bureau, made when there is none; `newUserId` is the id to make it with. */
  ensureUser(bureauId: string, person: Person, newUserId: string): Promise<{ userId: string; state: 'active' | 'blocked' }>;
}

/** `stateOf` is the Bureaus' own SQL for the state of the Bureau that a column names. */
export function accountsStore(database: Database, bureaus: { stateOf(sql: Sql, column: string): SqlFragment }): AccountsStore {
  return {
    ...queries(database.sql, bureaus),
    tx: (work) => database.tx((tx) => work(queries(tx, bureaus))),
    ensureUser: (bureauId, person, newUserId) => database.tx((tx) => ensureUser(tx, bureauId, person, newUserId)),
  };
}

function queries(sql: Sql, bureaus: { stateOf(sql: Sql, column: string): SqlFragment }): AccountsQueries {
  return {
    async findBearer(digest) {
      const [found] = await sql<Bearer[]>`
        select t.token_id as "tokenId", t.user_id as "userId", u.bureau_id as "bureauId", u.state as "userState",
          ${bureaus.stateOf(sql, 'u.bureau_id')} as "bureauState",
          (t.last_used_at is null or t.last_used_at <= gateway.townhall_now() - interval '1 minute') as "isUseStale"
        from gateway.accounts_tokens t join gateway.accounts_users u using (user_id)
        where t.digest = ${digest} and t.revoked_at is null and t.expires_at > gateway.townhall_now()`;
      return found ?? null;
    },
    async noteUse(tokenId) {
      // The condition again, because other replicas may have noted a use since.
      await sql`
        update gateway.accounts_tokens set last_used_at = gateway.townhall_now()
        where token_id = ${tokenId}
          and (last_used_at is null or last_used_at <= gateway.townhall_now() - interval '1 minute')`;
    },
    async findUser(userId) {
      const [found] = await sql<User[]>`
        select user_id as "userId", email, display_name as "displayName", avatar_url as "avatarUrl", metadata,
          created_at as "createdAt"
        from gateway.accounts_users where user_id = ${userId}`;
      return found ?? null;
    },
    async findToken(tokenId) {
      const [found] = await sql<Token[]>`
        select token_id as "tokenId", name, expires_at as "expiresAt"
        from gateway.accounts_tokens where token_id = ${tokenId}`;
      return found ?? null;
    },
    async insertToken({ tokenId, userId, digest, last4, name, ttlSeconds }) {
      const [made] = await sql<{ expiresAt: Date }[]>`
        insert into gateway.accounts_tokens (token_id, user_id, kind, digest, last4, name, expires_at)
        values (${tokenId}, ${userId}, 'user', ${digest}, ${last4}, ${name},
          gateway.townhall_now() + make_interval(secs => ${ttlSeconds}))
        returning expires_at as "expiresAt"`;
      if (!made) throw new Error('The token was not stored.');
      return made;
    },
    async insertAttempt({ digest, bureauId, provider, userId, ttlSeconds }) {
      await sql`
        insert into gateway.accounts_login_attempts (digest, bureau_id, provider, state, user_id, expires_at)
        values (${digest}, ${bureauId}, ${provider}, 'done', ${userId},
          gateway.townhall_now() + make_interval(secs => ${ttlSeconds}))`;
    },
    async forgetOldAttempts() {
      // A few at a time, so that no caller pays for many; two replicas do not wait for each other.
      await sql`
        delete from gateway.accounts_login_attempts where digest in (
          select digest from gateway.accounts_login_attempts
          where expires_at < gateway.townhall_now() - interval '1 day'
          order by expires_at limit 100 for update skip locked)`;
    },
    async lockAttempt(digest, rereadSeconds) {
      const [found] = await sql<Attempt[]>`
        select a.state, ${bureaus.stateOf(sql, 'a.bureau_id')} as "bureauState", a.user_id as "userId",
          (select u.state from gateway.accounts_users u where u.user_id = a.user_id) as "userState",
          a.expires_at <= gateway.townhall_now() as "isExpired",
          a.first_read_at is not null as "wasRead",
          coalesce(a.first_read_at > gateway.townhall_now() - make_interval(secs => ${rereadSeconds}), false) as "isReadable",
          a.token_id as "tokenId", a.sealed_token as "sealedToken"
        from gateway.accounts_login_attempts a where a.digest = ${digest}
        for update of a`;
      return found ?? null;
    },
    async noteFirstRead(digest, { tokenId, sealedToken }) {
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

async function ensureUser(tx: Tx, bureauId: string, person: Person, newUserId: string) {
  // Two first logins of one person at once would make two users; the second waits here and finds the first's.
  await tx`select pg_advisory_xact_lock(hashtextextended(${JSON.stringify(['identity', bureauId, person.issuer, person.subject])}, 0))`;
  const [known] = await tx<{ userId: string; state: 'active' | 'blocked' }[]>`
    select u.user_id as "userId", u.state
    from gateway.accounts_identities i join gateway.accounts_users u using (user_id)
    where i.bureau_id = ${bureauId} and i.issuer = ${person.issuer} and i.subject = ${person.subject}`;
  if (known) return known;
  await tx`
    insert into gateway.accounts_users (user_id, bureau_id, email, display_name)
    values (${newUserId}, ${bureauId}, ${person.email}, ${person.displayName})`;
  await tx`
    insert into gateway.accounts_identities (bureau_id, issuer, subject, user_id)
    values (${bureauId}, ${person.issuer}, ${person.subject}, ${newUserId})`;
  return { userId: newUserId, state: 'active' as const };
}
