// SQL for users, identities, passwords and tokens. The database's clock decides
// whether something has expired.
import type { Database, Sql, Tx } from '../../../kernel/data/database.ts';
import type { BureauState, SqlFragment } from '../../bureaus/index.ts';
import type { Person } from '../providers/provider.ts';

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

/** A user that was not removed. */
export interface ExistingUser extends User {
  state: Exclude<UserState, 'removed'>;
}

export interface Token {
  tokenId: string;
  kind: TokenKind;
  userId: string;
  bureauId: string;
  name: string | null;
  last4: string;
  /** Null allows every model that the user may call. */
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
  /** The credential that creates the token; null for a login and for an administrator's session. */
  createdBy: string | null;
  /** Caps the expiry computed from `ttlSeconds`. */
  latestExpiry: Date | null;
}

/** The user, Bureau and limits of a valid bearer token. */
export interface BearerRecord {
  tokenId: string;
  userId: string;
  bureauId: string;
  userState: UserState;
  bureauState: BureauState;
  models: string[] | null;
  bureauModels: string[] | null;
  /** The last recorded use is more than a minute old. */
  isUseStale: boolean;
  /** Milliseconds until the token expires. */
  remainingMs: number;
}

/** Selects tokens. All present members must match. */
export interface TokenFilter {
  tokenId?: string;
  userId?: string;
  bureauId?: string;
  kinds?: readonly TokenKind[];
  /** The tokens that this credential created. */
  createdBy?: string;
  /** All tokens but this one. */
  exceptTokenId?: string;
}

/**
 * A page after a cursor. The queries return one row more than `limit`, which tells
 * whether another page follows.
 */
export interface PageRequest {
  after: string | null;
  limit: number;
}

/** The user who owns an e-mail address; the digest is null for a user without a password. */
export interface EmailAccount {
  userId: string;
  state: UserState;
  passwordDigest: string | null;
}

/** Queries on one connection, in a transaction or alone. */
export interface AccountsQueries {
  findBearer(digest: Buffer): Promise<BearerRecord | null>;
  recordUse(tokenId: string): Promise<void>;
  findUser(userId: string): Promise<User | null>;
  /** Finds the user like `findUser`, and locks it until the transaction ends. */
  lockUser(userId: string): Promise<User | null>;
  listUsers(
    filter: { bureauId?: string | undefined; email?: string | undefined },
    request: PageRequest,
  ): Promise<ExistingUser[]>;
  /** Whether an administrator or a backend created the user with an `external_id`. */
  isExternalUser(userId: string): Promise<boolean>;
  findToken(tokenId: string): Promise<Token | null>;
  /**
   * The token while it is valid. Locks its user and the token: a revocation of the token, and a
   * transaction with `lockUser`, wait until the transaction ends.
   */
  lockLiveToken(tokenId: string): Promise<Token | null>;
  /**
   * Returns those of the given tokens that are no longer accepted: revoked, expired, or of a user or
   * Bureau that is not active.
   */
  endedTokens(tokenIds: readonly string[]): Promise<string[]>;
  listTokens(filter: TokenFilter & { isLive?: boolean }, request: PageRequest): Promise<Token[]>;
  insertToken(token: NewToken): Promise<{ expiresAt: Date }>;
  /**
   * Revokes the tokens and, recursively, the tokens that were created with them. Returns how many were
   * valid. Needs a transaction.
   */
  revokeTokens(filter: TokenFilter): Promise<number>;
  findEmailAccount(bureauId: string, email: string): Promise<EmailAccount | null>;
  findPasswordDigest(userId: string): Promise<string | null>;
  setPassword(userId: string, passwordDigest: string): Promise<void>;
  /** Replaces the digest if it still is `from`. Returns whether it was replaced. */
  changePassword(userId: string, from: string, to: string): Promise<boolean>;
  setUserState(userId: string, state: ExistingUser['state']): Promise<void>;
  setMetadata(userId: string, metadata: Record<string, unknown>): Promise<void>;
  /** Deletes the user's personal data, logins and tokens. The row stays, in the state `removed`. */
  eraseUser(userId: string): Promise<void>;
}

export interface EnsuredUser {
  userId: string;
  state: UserState;
  isNew: boolean;
  /** The Bureau's amount for new users; null for the server's default. */
  startingCredits: bigint | null;
}

export interface AccountsStore extends AccountsQueries {
  /** Passes `tx` for other stores and ports to write in the same transaction. */
  tx<T>(work: (queries: AccountsQueries, tx: Tx) => Promise<T>): Promise<T>;
  /** Finds the person's user in the Bureau, or creates it with `newUserId`. */
  ensureUser(tx: Tx, bureauId: string, person: Person, newUserId: string): Promise<EnsuredUser>;
  /**
   * Revokes the tokens that a machine credential created, and the tokens created with those. Returns
   * how many were valid.
   */
  revokeCreatedBy(tx: Tx, createdBy: string): Promise<number>;
}

/** SQL from the Bureaus' slice: each function selects one member of the Bureau whose ID is in `column`. */
export interface BureauColumns {
  stateOf(sql: Sql, column: string): SqlFragment;
  modelsOf(sql: Sql, column: string): SqlFragment;
  startingCreditsOf(sql: Sql, column: string): SqlFragment;
}

/** False for a removed user. */
export function isExistingUser(user: User): user is ExistingUser {
  return user.state !== 'removed';
}

export function accountsStore(database: Database, bureaus: BureauColumns): AccountsStore {
  return {
    ...createQueries(database.sql, bureaus),
    tx: (work) => database.tx((tx) => work(createQueries(tx, bureaus), tx)),
    ensureUser: (tx, bureauId, person, newUserId) => ensureUser(tx, bureaus, { bureauId, person, newUserId }),
    revokeCreatedBy: (tx, createdBy) => revokeTokens(tx, { createdBy }),
  };
}

function createQueries(sql: Sql, bureaus: BureauColumns): AccountsQueries {
  return {
    ...userQueries(sql),
    ...passwordQueries(sql),
    ...validityQueries(sql, bureaus),
    ...tokenRecordQueries(sql),
  };
}

function userQueries(
  sql: Sql,
): Pick<
  AccountsQueries,
  'findUser' | 'lockUser' | 'listUsers' | 'isExternalUser' | 'setUserState' | 'setMetadata' | 'eraseUser'
> {
  const findUser = async (userId: string, lock = sql``): Promise<User | null> => {
    const [row] = await sql<User[]>`
      select ${userColumns(sql)} from gateway.accounts_users u where u.user_id = ${userId} ${lock}`;
    return row ?? null;
  };
  return {
    findUser: (userId) => findUser(userId),
    lockUser: (userId) => findUser(userId, sql`for update`),
    listUsers: ({ bureauId, email }, { after, limit }) => sql<ExistingUser[]>`
      select ${userColumns(sql)} from gateway.accounts_users u
      where u.state <> 'removed'
        ${bureauId === undefined ? sql`` : sql`and u.bureau_id = ${bureauId}`}
        ${email === undefined ? sql`` : sql`and lower(u.email) = lower(${email})`}
        ${after === null ? sql`` : sql`and u.user_id > ${after}`}
      order by u.user_id limit ${limit + 1}`,
    async isExternalUser(userId) {
      const [row] = await sql`
        select 1 from gateway.accounts_identities where user_id = ${userId} and issuer = ${externalIssuer}`;
      return row !== undefined;
    },
    async setUserState(userId, state) {
      await sql`
        update gateway.accounts_users set state = ${state} where user_id = ${userId} and state <> 'removed'`;
    },
    async setMetadata(userId, metadata) {
      await sql`
        update gateway.accounts_users set metadata = ${sql.json(metadata as never)} where user_id = ${userId}`;
    },
    async eraseUser(userId) {
      await sql`
        update gateway.accounts_users
        set state = 'removed', email = null, display_name = null, avatar_url = null, metadata = '{}'
        where user_id = ${userId}`;
      await sql`delete from gateway.accounts_identities where user_id = ${userId}`;
      await sql`delete from gateway.accounts_passwords where user_id = ${userId}`;
      // A key's name may identify the user. Deleting the tokens also deletes the login attempts
      // that issued them.
      await sql`delete from gateway.accounts_tokens where user_id = ${userId}`;
    },
  };
}

function passwordQueries(
  sql: Sql,
): Pick<AccountsQueries, 'findEmailAccount' | 'findPasswordDigest' | 'setPassword' | 'changePassword'> {
  return {
    async findEmailAccount(bureauId, email) {
      const [row] = await sql<EmailAccount[]>`
        select u.user_id as "userId", u.state, p.password_digest as "passwordDigest"
        from gateway.accounts_identities i join gateway.accounts_users u using (user_id)
          left join gateway.accounts_passwords p using (user_id)
        where i.bureau_id = ${bureauId} and i.issuer = 'email' and i.subject = ${email}`;
      return row ?? null;
    },
    async findPasswordDigest(userId) {
      const [row] = await sql<{ passwordDigest: string }[]>`
        select password_digest as "passwordDigest" from gateway.accounts_passwords where user_id = ${userId}`;
      return row?.passwordDigest ?? null;
    },
    async setPassword(userId, passwordDigest) {
      await sql`
        insert into gateway.accounts_passwords (user_id, password_digest) values (${userId}, ${passwordDigest})
        on conflict (user_id) do update
          set password_digest = excluded.password_digest, updated_at = gateway.townhall_now()`;
    },
    async changePassword(userId, from, to) {
      const rows = await sql`
        update gateway.accounts_passwords set password_digest = ${to}, updated_at = gateway.townhall_now()
        where user_id = ${userId} and password_digest = ${from} returning 1`;
      return rows.length > 0;
    },
  };
}

/** Queries that decide whether a token may be used. */
function validityQueries(
  sql: Sql,
  bureaus: BureauColumns,
): Pick<AccountsQueries, 'findBearer' | 'recordUse' | 'lockLiveToken' | 'endedTokens'> {
  return {
    async findBearer(digest) {
      const [row] = await sql<BearerRecord[]>`
        select t.token_id as "tokenId", t.user_id as "userId", u.bureau_id as "bureauId",
          u.state as "userState", ${bureaus.stateOf(sql, 'u.bureau_id')} as "bureauState", t.models,
          ${bureaus.modelsOf(sql, 'u.bureau_id')} as "bureauModels",
          (t.last_used_at is null or t.last_used_at <= gateway.townhall_now() - interval '1 minute') as "isUseStale",
          extract(epoch from t.expires_at - gateway.townhall_now())::float8 * 1000 as "remainingMs"
        from gateway.accounts_tokens t join gateway.accounts_users u using (user_id)
        where t.digest = ${digest} and t.revoked_at is null and t.expires_at > gateway.townhall_now()`;
      return row ?? null;
    },
    async recordUse(tokenId) {
      // Repeat the condition: another replica may have recorded a use meanwhile.
      await sql`
        update gateway.accounts_tokens set last_used_at = gateway.townhall_now()
        where token_id = ${tokenId}
          and (last_used_at is null or last_used_at <= gateway.townhall_now() - interval '1 minute')`;
    },
    async lockLiveToken(tokenId) {
      // Lock the user before the token, as password changes and removals do: the foreign key of a token
      // that the caller inserts takes the same lock, and the opposite order could deadlock with them.
      await sql`
        select 1 from gateway.accounts_users
        where user_id = (select user_id from gateway.accounts_tokens where token_id = ${tokenId}) for key share`;
      const [token] = await sql<Token[]>`
        select ${tokenColumns(sql)} ${fromTokens(sql)}
        where t.token_id = ${tokenId} and t.revoked_at is null and t.expires_at > gateway.townhall_now()
        for share of t`;
      return token ?? null;
    },
    async endedTokens(tokenIds) {
      const rows = await sql<{ tokenId: string }[]>`
        select t.token_id as "tokenId" ${fromTokens(sql)}
        where t.token_id = any(${textArray(sql, tokenIds)})
          and (t.revoked_at is not null or t.expires_at <= gateway.townhall_now() or u.state <> 'active'
            or ${bureaus.stateOf(sql, 'u.bureau_id')} <> 'active')`;
      return rows.map(({ tokenId }) => tokenId);
    },
  };
}

function tokenRecordQueries(
  sql: Sql,
): Pick<AccountsQueries, 'findToken' | 'listTokens' | 'insertToken' | 'revokeTokens'> {
  return {
    async findToken(tokenId) {
      const [row] = await sql<Token[]>`
        select ${tokenColumns(sql)} ${fromTokens(sql)} where t.token_id = ${tokenId}`;
      return row ?? null;
    },
    listTokens: ({ isLive, ...filter }, { after, limit }) => sql<Token[]>`
      select ${tokenColumns(sql)} ${fromTokens(sql)}
      where ${matchesFilter(sql, filter)}
        ${isLive ? sql`and t.revoked_at is null and t.expires_at > gateway.townhall_now()` : sql``}
        ${after === null ? sql`` : sql`and t.token_id > ${after}`}
      order by t.token_id limit ${limit + 1}`,
    async insertToken({
      tokenId,
      userId,
      kind,
      digest,
      last4,
      name,
      models,
      ttlSeconds,
      createdBy,
      latestExpiry,
    }) {
      const [row] = await sql<{ expiresAt: Date }[]>`
        insert into gateway.accounts_tokens
          (token_id, user_id, kind, digest, last4, name, models, maker_id, expires_at)
        values (${tokenId}, ${userId}, ${kind}, ${digest}, ${last4}, ${name},
          ${models === null ? null : textArray(sql, models)}, ${createdBy},
          least(gateway.townhall_now() + make_interval(secs => ${ttlSeconds}), ${latestExpiry}::timestamptz))
        returning expires_at as "expiresAt"`;
      if (!row) throw new Error('The token was not stored.');
      return row;
    },
    revokeTokens: (filter) => revokeTokens(sql, filter),
  };
}

/** The issuer of users that a product's backend names by an `external_id`. */
export const externalIssuer = 'external';

async function revokeTokens(sql: Sql, filter: TokenFilter): Promise<number> {
  // Lock the selected tokens first. A transaction that creates a key with one of them holds a
  // share lock on it until the commit, so the second statement sees that key.
  await sql`
    select t.token_id ${fromTokens(sql)} where ${matchesFilter(sql, filter)} and t.revoked_at is null
    order by t.token_id for update of t`;
  const rows = await sql`
    with recursive revoked as (
      select t.token_id ${fromTokens(sql)} where ${matchesFilter(sql, filter)}
      union
      select created.token_id from gateway.accounts_tokens created join revoked on created.maker_id = revoked.token_id)
    update gateway.accounts_tokens set revoked_at = gateway.townhall_now()
    where revoked_at is null and token_id in (select token_id from revoked)
      -- Again, since the recursion finds the excepted token if a selected token created it.
      ${filter.exceptTokenId === undefined ? sql`` : sql`and token_id <> ${filter.exceptTokenId}`}
    returning expires_at > gateway.townhall_now() as "wasValid"`;
  return rows.filter(({ wasValid }) => wasValid === true).length;
}

function userColumns(sql: Sql) {
  return sql`u.user_id as "userId", u.bureau_id as "bureauId", u.state, u.email,
    u.display_name as "displayName", u.avatar_url as "avatarUrl", u.metadata, u.created_at as "createdAt"`;
}

function tokenColumns(sql: Sql) {
  return sql`t.token_id as "tokenId", t.kind, t.user_id as "userId", u.bureau_id as "bureauId", t.name,
    t.last4, t.models, t.created_at as "createdAt", t.expires_at as "expiresAt",
    t.last_used_at as "lastUsedAt", t.revoked_at as "revokedAt"`;
}

function fromTokens(sql: Sql) {
  return sql`from gateway.accounts_tokens t join gateway.accounts_users u using (user_id)`;
}

/** Typed by its OID, 25 for text: PostgreSQL cannot infer the type of an empty array. */
function textArray(sql: Sql, values: readonly string[]) {
  return sql.array([...values], 25);
}

function matchesFilter(sql: Sql, filter: TokenFilter) {
  const { tokenId, userId, bureauId, kinds, createdBy, exceptTokenId } = filter;
  return sql`true
    ${tokenId === undefined ? sql`` : sql`and t.token_id = ${tokenId}`}
    ${userId === undefined ? sql`` : sql`and t.user_id = ${userId}`}
    ${bureauId === undefined ? sql`` : sql`and u.bureau_id = ${bureauId}`}
    ${kinds === undefined ? sql`` : sql`and t.kind = any(${textArray(sql, kinds)})`}
    ${createdBy === undefined ? sql`` : sql`and t.maker_id = ${createdBy}`}
    ${exceptTokenId === undefined ? sql`` : sql`and t.token_id <> ${exceptTokenId}`}`;
}

async function ensureUser(
  tx: Tx,
  bureaus: BureauColumns,
  { bureauId, person, newUserId }: { bureauId: string; person: Person; newUserId: string },
): Promise<EnsuredUser> {
  // Serialize the first logins of a person: two concurrent logins would create two users.
  const lockKey = JSON.stringify(['identity', bureauId, person.issuer, person.subject]);
  await tx`select pg_advisory_xact_lock(hashtextextended(${lockKey}, 0))`;
  const [existing] = await tx<{ userId: string; state: UserState }[]>`
    select u.user_id as "userId", u.state
    from gateway.accounts_identities i join gateway.accounts_users u using (user_id)
    where i.bureau_id = ${bureauId} and i.issuer = ${person.issuer} and i.subject = ${person.subject}`;
  const { email, displayName, avatarUrl = null } = person;
  if (existing) {
    // Keep the stored value of a member that the provider no longer sends.
    await tx`
      update gateway.accounts_users
      set email = coalesce(${email}, email), display_name = coalesce(${displayName}, display_name),
        avatar_url = coalesce(${avatarUrl}, avatar_url)
      where user_id = ${existing.userId} and (email, display_name, avatar_url) is distinct from (
        coalesce(${email}, email), coalesce(${displayName}, display_name), coalesce(${avatarUrl}, avatar_url))`;
    return { ...existing, isNew: false, startingCredits: null };
  }
  const [row] = await tx<{ startingCredits: bigint | null }[]>`
    insert into gateway.accounts_users (user_id, bureau_id, email, display_name, avatar_url)
    values (${newUserId}, ${bureauId}, ${email}, ${displayName}, ${avatarUrl})
    returning ${bureaus.startingCreditsOf(tx, 'accounts_users.bureau_id')} as "startingCredits"`;
  await tx`
    insert into gateway.accounts_identities (bureau_id, issuer, subject, user_id)
    values (${bureauId}, ${person.issuer}, ${person.subject}, ${newUserId})`;
  return { userId: newUserId, state: 'active', isNew: true, startingCredits: row?.startingCredits ?? null };
}
