// The tables of users, identities, passwords and tokens, and the only file that names them. Whether something
// has expired is judged here, by the database's clock.
import type { Database, Sql, Tx } from '../../kernel/data/database.ts';
import type { BureauState, SqlFragment } from '../bureaus/index.ts';
import type { Person } from './providers/provider.ts';

export type UserState = 'active' | 'blocked' | 'removed';
export type TokenKind = 'user' | 'issued' | 'key';

export interface User {
  userId: string;
  bureauId: string;
  state: UserState;
  email: string | null;
  displayName: string | null;
  avatarUrl: string | null;
  metadata: Record<string, unknown>;
  createdAt: Date;
}

export interface Token {
  tokenId: string;
  kind: TokenKind;
  userId: string;
  bureauId: string;
  name: string | null;
  last4: string;
  /** Null where the token is good for all that its user may call. */
  models: string[] | null;
  createdAt: Date;
  expiresAt: Date;
  lastUsedAt: Date | null;
  revokedAt: Date | null;
}

export interface NewToken {
  tokenId: string;
  userId: string;
  kind: TokenKind;
  digest: Buffer;
  last4: string;
  name: string | null;
  models: readonly string[] | null;
  ttlSeconds: number;
  /** The credential that makes it; null for a login and for an administrator. */
  makerId: string | null;
  /** It ends at this time at the latest, whatever `ttlSeconds` says. */
  endsBy: Date | null;
}

/** What a bearer token stands for. */
export interface Bearer {
  tokenId: string;
  userId: string;
  bureauId: string;
  userState: UserState;
  bureauState: BureauState;
  models: string[] | null;
  bureauModels: string[] | null;
  /** Its last use was noted so long ago that this one should be. */
  isUseStale: boolean;
  /** Milliseconds until the token ends. */
  restMs: number;
}

/** Which tokens: one, those of a user, or those of a Bureau; of some kinds, but for one, where it says so. */
export interface TokenChoice {
  tokenId?: string;
  userId?: string;
  bureauId?: string;
  kinds?: readonly TokenKind[];
  /** Those that this credential made. */
  makerId?: string;
  except?: string;
}

/** Where a page begins and how long it is; one row more is read, which says whether another page follows. */
export interface Place {
  after: string | null;
  limit: number;
}

/** An e-mail address of ours: who has it, and the digest of the password where there is one. */
export interface EmailAccount {
  userId: string;
  state: UserState;
  passwordDigest: string | null;
}

/** What can be done on one connection, in a transaction or alone. */
export interface AccountsQueries {
  findBearer(digest: Buffer): Promise<Bearer | null>;
  noteUse(tokenId: string): Promise<void>;
  findUser(userId: string): Promise<User | null>;
  /** As `findUser`, and nobody else changes the user until the transaction ends. */
  lockUser(userId: string): Promise<User | null>;
  listUsers(
    filter: { bureauId?: string | undefined; email?: string | undefined },
    place: Place,
  ): Promise<User[]>;
  /** Whether an administrator or a backend made the user by an `external_id`. */
  isExternalUser(userId: string): Promise<boolean>;
  findToken(tokenId: string): Promise<Token | null>;
  /** The token while it is good; a revocation waits until the transaction ends. */
  lockLiveToken(tokenId: string): Promise<Token | null>;
  listTokens(filter: TokenChoice & { isLive?: boolean }, place: Place): Promise<Token[]>;
  insertToken(token: NewToken): Promise<{ expiresAt: Date }>;
  /** Revokes the tokens and all that they made; counts those that were good until now. Needs a transaction. */
  revokeTokens(choice: TokenChoice): Promise<number>;
  findEmailAccount(bureauId: string, email: string): Promise<EmailAccount | null>;
  findPasswordDigest(userId: string): Promise<string | null>;
  setPassword(userId: string, passwordDigest: string): Promise<void>;
  /** Without effect when the digest is not `from` any more; says whether it was. */
  changePassword(userId: string, from: string, to: string): Promise<boolean>;
  setUserState(userId: string, state: 'active' | 'blocked'): Promise<void>;
  setMetadata(userId: string, metadata: Record<string, unknown>): Promise<void>;
  /** Deletes whatever tells who the user was; the row stays. */
  eraseUser(userId: string): Promise<void>;
}

export interface EnsuredUser {
  userId: string;
  state: UserState;
  isNew: boolean;
  /** What the Bureau gives to a new user; null where the server's own amount applies. */
  startingCredits: bigint | null;
}

export interface AccountsStore extends AccountsQueries {
  /** `tx` is for what other stores and ports do in the same transaction. */
  tx<T>(work: (queries: AccountsQueries, tx: Tx) => Promise<T>): Promise<T>;
  /** The user that the person is in the Bureau, made when there is none; `newUserId` is the id to make it with. */
  ensureUser(tx: Tx, bureauId: string, person: Person, newUserId: string): Promise<EnsuredUser>;
  /** Revokes all that a machine credential made, and what was made with that; returns how many were good until now. */
  revokeMadeBy(tx: Tx, makerId: string): Promise<number>;
}

/** The Bureaus' own SQL for the state of the Bureau that a column names. */
export interface BureauStates {
  stateOf(sql: Sql, column: string): SqlFragment;
  modelsOf(sql: Sql, column: string): SqlFragment;
  startingCreditsOf(sql: Sql, column: string): SqlFragment;
}

export function accountsStore(database: Database, bureaus: BureauStates): AccountsStore {
  return {
    ...queries(database.sql, bureaus),
    tx: (work) => database.tx((tx) => work(queries(tx, bureaus), tx)),
    ensureUser: (tx, bureauId, person, newUserId) => ensureUser(tx, bureaus, { bureauId, person, newUserId }),
    revokeMadeBy: (tx, makerId) => revokeTokens(tx, { makerId }),
  };
}

function queries(sql: Sql, bureaus: BureauStates): AccountsQueries {
  const findUser = async (userId: string, lock = sql``): Promise<User | null> => {
    const [found] = await sql<
      User[]
    >`select ${userColumns(sql)} from gateway.accounts_users u where u.user_id = ${userId} ${lock}`;
    return found ?? null;
  };
  return {
    async findBearer(digest) {
      const [found] = await sql<Bearer[]>`
        select t.token_id as "tokenId", t.user_id as "userId", u.bureau_id as "bureauId", u.state as "userState",
          ${bureaus.stateOf(sql, 'u.bureau_id')} as "bureauState", t.models,
          ${bureaus.modelsOf(sql, 'u.bureau_id')} as "bureauModels",
          (t.last_used_at is null or t.last_used_at <= gateway.townhall_now() - interval '1 minute') as "isUseStale",
          extract(epoch from t.expires_at - gateway.townhall_now())::float8 * 1000 as "restMs"
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
    findUser: (userId) => findUser(userId),
    lockUser: (userId) => findUser(userId, sql`for update`),
    listUsers: ({ bureauId, email }, { after, limit }) => sql<User[]>`
      select ${userColumns(sql)} from gateway.accounts_users u
      where u.state <> 'removed'
        ${bureauId === undefined ? sql`` : sql`and u.bureau_id = ${bureauId}`}
        ${email === undefined ? sql`` : sql`and lower(u.email) = lower(${email})`}
        ${after === null ? sql`` : sql`and u.user_id > ${after}`}
      order by u.user_id limit ${limit + 1}`,
    async isExternalUser(userId) {
      const [row] =
        await sql`select 1 from gateway.accounts_identities where user_id = ${userId} and issuer = ${externalIssuer}`;
      return row !== undefined;
    },
    async findToken(tokenId) {
      const [found] = await sql<
        Token[]
      >`select ${tokenColumns(sql)} ${fromTokens(sql)} where t.token_id = ${tokenId}`;
      return found ?? null;
    },
    async lockLiveToken(tokenId) {
      const [token] = await sql<Token[]>`
        select ${tokenColumns(sql)} ${fromTokens(sql)}
        where t.token_id = ${tokenId} and t.revoked_at is null and t.expires_at > gateway.townhall_now()
        for share of t`;
      return token ?? null;
    },
    listTokens: ({ isLive, ...choice }, { after, limit }) => sql<Token[]>`
      select ${tokenColumns(sql)} ${fromTokens(sql)}
      where ${chosen(sql, choice)}
        ${isLive ? sql`and t.revoked_at is null and t.expires_at > gateway.townhall_now()` : sql``}
        ${after === null ? sql`` : sql`and t.token_id > ${after}`}
      order by t.token_id limit ${limit + 1}`,
    async insertToken({ tokenId, userId, kind, digest, last4, name, models, ttlSeconds, makerId, endsBy }) {
      const [made] = await sql<{ expiresAt: Date }[]>`
        insert into gateway.accounts_tokens (token_id, user_id, kind, digest, last4, name, models, maker_id, expires_at)
        values (${tokenId}, ${userId}, ${kind}, ${digest}, ${last4}, ${name}, ${models === null ? null : sql.array([...models], 25)}, ${makerId},
          least(gateway.townhall_now() + make_interval(secs => ${ttlSeconds}), ${endsBy}::timestamptz))
        returning expires_at as "expiresAt"`;
      if (!made) throw new Error('The token was not stored.');
      return made;
    },
    revokeTokens: (choice) => revokeTokens(sql, choice),
    async findEmailAccount(bureauId, email) {
      const [found] = await sql<EmailAccount[]>`
        select u.user_id as "userId", u.state, p.password_digest as "passwordDigest"
        from gateway.accounts_identities i join gateway.accounts_users u using (user_id)
          left join gateway.accounts_passwords p using (user_id)
        where i.bureau_id = ${bureauId} and i.issuer = 'email' and i.subject = ${email}`;
      return found ?? null;
    },
    async findPasswordDigest(userId) {
      const [found] = await sql<{ passwordDigest: string }[]>`
        select password_digest as "passwordDigest" from gateway.accounts_passwords where user_id = ${userId}`;
      return found?.passwordDigest ?? null;
    },
    async setPassword(userId, passwordDigest) {
      await sql`
        insert into gateway.accounts_passwords (user_id, password_digest) values (${userId}, ${passwordDigest})
        on conflict (user_id) do update set password_digest = excluded.password_digest, updated_at = gateway.townhall_now()`;
    },
    async changePassword(userId, from, to) {
      const changed = await sql`
        update gateway.accounts_passwords set password_digest = ${to}, updated_at = gateway.townhall_now()
        where user_id = ${userId} and password_digest = ${from} returning 1`;
      return changed.length > 0;
    },
    async setUserState(userId, state) {
      await sql`update gateway.accounts_users set state = ${state} where user_id = ${userId} and state <> 'removed'`;
    },
    async setMetadata(userId, metadata) {
      await sql`update gateway.accounts_users set metadata = ${sql.json(metadata as never)} where user_id = ${userId}`;
    },
    async eraseUser(userId) {
      await sql`
        update gateway.accounts_users
        set state = 'removed', email = null, display_name = null, avatar_url = null, metadata = '{}'
        where user_id = ${userId}`;
      await sql`delete from gateway.accounts_identities where user_id = ${userId}`;
      await sql`delete from gateway.accounts_passwords where user_id = ${userId}`;
      // A name that the user gave to a key may tell who it was; attempts that gave these tokens go with them.
      await sql`delete from gateway.accounts_tokens where user_id = ${userId}`;
    },
  };
}

/** The issuer of users whom a product's backend names by an `external_id`. */
export const externalIssuer = 'external';

async function revokeTokens(sql: Sql, choice: TokenChoice): Promise<number> {
  // Lock the chosen tokens first. A transaction that is making a key with one of them holds it for share, so the
  // second statement sees that key.
  await sql`
    select t.token_id ${fromTokens(sql)} where ${chosen(sql, choice)} and t.revoked_at is null
    order by t.token_id for update of t`;
  const revoked = await sql`
    with recursive ended as (
      select t.token_id ${fromTokens(sql)} where ${chosen(sql, choice)}
      union
      select made.token_id from gateway.accounts_tokens made join ended on made.maker_id = ended.token_id)
    update gateway.accounts_tokens set revoked_at = gateway.townhall_now()
    where revoked_at is null and token_id in (select token_id from ended)
      ${choice.except === undefined ? sql`` : sql`and token_id <> ${choice.except}`}
    returning expires_at > gateway.townhall_now() as "wasGood"`;
  return revoked.filter(({ wasGood }) => wasGood === true).length;
}

function userColumns(sql: Sql): SqlFragment {
  return sql`u.user_id as "userId", u.bureau_id as "bureauId", u.state, u.email, u.display_name as "displayName",
    u.avatar_url as "avatarUrl", u.metadata, u.created_at as "createdAt"` as unknown as SqlFragment;
}

function tokenColumns(sql: Sql): SqlFragment {
  return sql`t.token_id as "tokenId", t.kind, t.user_id as "userId", u.bureau_id as "bureauId", t.name, t.last4, t.models,
    t.created_at as "createdAt", t.expires_at as "expiresAt", t.last_used_at as "lastUsedAt", t.revoked_at as "revokedAt"` as unknown as SqlFragment;
}

function fromTokens(sql: Sql): SqlFragment {
  return sql`from gateway.accounts_tokens t join gateway.accounts_users u using (user_id)` as unknown as SqlFragment;
}

function chosen(sql: Sql, { tokenId, userId, bureauId, kinds, makerId, except }: TokenChoice): SqlFragment {
  return sql`true
    ${tokenId === undefined ? sql`` : sql`and t.token_id = ${tokenId}`}
    ${userId === undefined ? sql`` : sql`and t.user_id = ${userId}`}
    ${bureauId === undefined ? sql`` : sql`and u.bureau_id = ${bureauId}`}
    ${kinds === undefined ? sql`` : sql`and t.kind = any(${sql.array([...kinds], 25)})`}
    ${makerId === undefined ? sql`` : sql`and t.maker_id = ${makerId}`}
    ${except === undefined ? sql`` : sql`and t.token_id <> ${except}`}` as unknown as SqlFragment;
}

async function ensureUser(
  tx: Tx,
  bureaus: BureauStates,
  { bureauId, person, newUserId }: { bureauId: string; person: Person; newUserId: string },
): Promise<EnsuredUser> {
  // Two first logins of one person at once would make two users; the second waits here and finds the first's.
  await tx`select pg_advisory_xact_lock(hashtextextended(${JSON.stringify(['identity', bureauId, person.issuer, person.subject])}, 0))`;
  const [known] = await tx<{ userId: string; state: UserState }[]>`
    select u.user_id as "userId", u.state
    from gateway.accounts_identities i join gateway.accounts_users u using (user_id)
    where i.bureau_id = ${bureauId} and i.issuer = ${person.issuer} and i.subject = ${person.subject}`;
  const { email, displayName, avatarUrl = null } = person;
  if (known) {
    // What the provider says now; what it no longer says is kept.
    await tx`
      update gateway.accounts_users
      set email = coalesce(${email}, email), display_name = coalesce(${displayName}, display_name), avatar_url = coalesce(${avatarUrl}, avatar_url)
      where user_id = ${known.userId} and (email, display_name, avatar_url)
        is distinct from (coalesce(${email}, email), coalesce(${displayName}, display_name), coalesce(${avatarUrl}, avatar_url))`;
    return { ...known, isNew: false, startingCredits: null };
  }
  const [made] = await tx<{ startingCredits: bigint | null }[]>`
    insert into gateway.accounts_users (user_id, bureau_id, email, display_name, avatar_url)
    values (${newUserId}, ${bureauId}, ${email}, ${displayName}, ${avatarUrl})
    returning ${bureaus.startingCreditsOf(tx, 'accounts_users.bureau_id')} as "startingCredits"`;
  await tx`
    insert into gateway.accounts_identities (bureau_id, issuer, subject, user_id)
    values (${bureauId}, ${person.issuer}, ${person.subject}, ${newUserId})`;
  return { userId: newUserId, state: 'active', isNew: true, startingCredits: made?.startingCredits ?? null };
}
