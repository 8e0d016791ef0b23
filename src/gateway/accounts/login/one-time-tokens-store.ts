// SQL for one-time tokens. The database's clock decides whether a token has expired.
import type { Database, Sql } from '../../../kernel/data/database.ts';

export type OneTimeTokenPurpose =
  | 'oauth_state'
  | 'confirmation'
  | 'registration'
  | 'password_reset'
  | 'login_code';

export interface StoredOneTimeToken {
  /** The digest of the login attempt that the token belongs to, if any. */
  attemptDigest: Buffer | null;
  sealed: Buffer;
}

export interface NewOneTimeToken extends StoredOneTimeToken {
  digest: Buffer;
  purpose: OneTimeTokenPurpose;
  maxAttempts: number;
  ttlSeconds: number;
}

export interface OneTimeTokenQueries {
  insert(token: NewOneTimeToken): Promise<{ expiresAt: Date }>;
  /** Deletes and returns the token. Only one of several concurrent calls gets it. */
  consume(digest: Buffer, purpose: OneTimeTokenPurpose): Promise<StoredOneTimeToken | null>;
  /** Counts one attempt and returns the token, which stays. Null when no attempt is left. */
  useAttempt(digest: Buffer, purpose: OneTimeTokenPurpose): Promise<StoredOneTimeToken | null>;
  /** Deletes up to 100 expired tokens. */
  deleteExpired(): Promise<void>;
}

export interface OneTimeTokenStore extends OneTimeTokenQueries {
  /** The same queries on a transaction's connection. */
  withSql(sql: Sql): OneTimeTokenQueries;
}

export function oneTimeTokenStore({ sql }: Database): OneTimeTokenStore {
  return { ...createQueries(sql), withSql: createQueries };
}

function createQueries(sql: Sql): OneTimeTokenQueries {
  return {
    async insert({ digest, purpose, attemptDigest, sealed, maxAttempts, ttlSeconds }) {
      const [row] = await sql<{ expiresAt: Date }[]>`
        insert into gateway.accounts_tickets (digest, purpose, attempt_digest, sealed, tries_left, expires_at)
        values (${digest}, ${purpose}, ${attemptDigest}, ${sealed}, ${maxAttempts},
          gateway.townhall_now() + make_interval(secs => ${ttlSeconds}))
        returning expires_at as "expiresAt"`;
      if (!row) throw new Error('The one-time token was not stored.');
      return row;
    },
    async consume(digest, purpose) {
      const [row] = await sql<(StoredOneTimeToken & { isLive: boolean })[]>`
        delete from gateway.accounts_tickets where digest = ${digest} and purpose = ${purpose}
        returning attempt_digest as "attemptDigest", sealed, expires_at > gateway.townhall_now() as "isLive"`;
      return row?.isLive ? row : null;
    },
    async useAttempt(digest, purpose) {
      const [row] = await sql<StoredOneTimeToken[]>`
        update gateway.accounts_tickets set tries_left = tries_left - 1
        where digest = ${digest} and purpose = ${purpose} and tries_left > 0 and expires_at > gateway.townhall_now()
        returning attempt_digest as "attemptDigest", sealed`;
      return row ?? null;
    },
    async deleteExpired() {
      await sql`
        delete from gateway.accounts_tickets where digest in (
          select digest from gateway.accounts_tickets where expires_at < gateway.townhall_now()
          order by expires_at limit 100 for update skip locked)`;
    },
  };
}
