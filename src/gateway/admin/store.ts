// SQL for administrators and their sessions. The database's clock decides whether a session has expired.
import type { Database, Sql } from '../../kernel/data/database.ts';
import {
  attemptCounterStore,
  deleteAllCounters,
  uncountAttempt,
  type AttemptCounterStore,
  type LoginSource,
} from './attempt-counters-store.ts';
import { machineStore, type MachineStore, type AuditWrite } from './machines-store.ts';

export interface Session {
  sessionId: string;
  adminId: string;
  createdAt: Date;
  expiresAt: Date;
  /** The last recorded use is more than a minute old. */
  isUseStale: boolean;
}

export interface NewSession {
  sessionId: string;
  adminId: string;
  digest: Buffer;
  last4: string;
  ttlSeconds: number;
  /** A session expires after this long without use. */
  idleSeconds: number;
  /** Live sessions of the administrator, including the new one. The oldest sessions above it are revoked. */
  maxSessions: number;
}

export interface AdminStore extends AttemptCounterStore, MachineStore {
  exists(): Promise<boolean>;
  /** Inserts the first administrator. Returns false, and changes nothing, when there is one already. */
  insertFirst(adminId: string, passwordDigest: string, writeAudit: AuditWrite): Promise<boolean>;
  /**
   * Makes these the only credentials and revokes every session. Also deletes all attempt counters: the
   * operator may have used up the attempts with a forgotten password.
   */
  replaceAndRevokeSessions(adminId: string, passwordDigest: string, writeAudit: AuditWrite): Promise<void>;
  findPasswordDigest(adminId: string): Promise<string | null>;
  /** Replaces the digest if it still is `from`. Returns whether it was replaced. */
  changePasswordDigest(adminId: string, from: string, to: string): Promise<boolean>;
  /**
   * Opens a session and takes back the attempt counted for it. Null when the stored digest is no longer
   * `passwordDigest`, so that a login cannot outlive a concurrent reset.
   */
  openSession(
    session: NewSession,
    source: LoginSource,
    proof: { passwordDigest: string; writeAudit: AuditWrite },
  ): Promise<{ expiresAt: Date } | null>;
  findSession(by: { digest: Buffer } | { sessionId: string }, idleSeconds: number): Promise<Session | null>;
  recordUse(sessionId: string): Promise<void>;
  /** Returns whether the session was live. */
  revokeSession(sessionId: string, writeAudit: AuditWrite): Promise<boolean>;
}

export function adminStore(database: Database): AdminStore {
  return {
    ...administratorStore(database),
    ...sessionStore(database),
    ...attemptCounterStore(database),
    ...machineStore(database),
  };
}

function administratorStore(
  database: Database,
): Pick<
  AdminStore,
  'exists' | 'insertFirst' | 'replaceAndRevokeSessions' | 'findPasswordDigest' | 'changePasswordDigest'
> {
  const { sql } = database;
  return {
    async exists() {
      const rows = await sql`select 1 from gateway.admin_administrators limit 1`;
      return rows.length > 0;
    },
    insertFirst: (adminId, passwordDigest, writeAudit) =>
      database.tx(async (tx) => {
        // Without the lock, two concurrent starts with different IDs would both find the table empty.
        await tx`lock table gateway.admin_administrators in share row exclusive mode`;
        const rows = await tx`
          insert into gateway.admin_administrators (admin_id, password_digest)
          select ${adminId}, ${passwordDigest}
          where not exists (select 1 from gateway.admin_administrators)
          returning 1`;
        if (rows.length > 0) await writeAudit(tx);
        return rows.length > 0;
      }),
    replaceAndRevokeSessions: (adminId, passwordDigest, writeAudit) =>
      database.tx(async (tx) => {
        await tx`lock table gateway.admin_administrators in share row exclusive mode`;
        // The delete waits for a login that holds the row's lock to open its session, which is revoked below.
        await tx`delete from gateway.admin_administrators`;
        await tx`
          insert into gateway.admin_administrators (admin_id, password_digest)
          values (${adminId}, ${passwordDigest})`;
        await tx`
          update gateway.admin_sessions set revoked_at = gateway.townhall_now() where revoked_at is null`;
        await deleteAllCounters(tx);
        await writeAudit(tx);
      }),
    async findPasswordDigest(adminId) {
      const [row] = await sql<{ passwordDigest: string }[]>`
        select password_digest as "passwordDigest" from gateway.admin_administrators where admin_id = ${adminId}`;
      return row?.passwordDigest ?? null;
    },
    async changePasswordDigest(adminId, from, to) {
      const rows = await sql`
        update gateway.admin_administrators set password_digest = ${to}, updated_at = gateway.townhall_now()
        where admin_id = ${adminId} and password_digest = ${from} returning 1`;
      return rows.length > 0;
    },
  };
}

function sessionStore(
  database: Database,
): Pick<AdminStore, 'openSession' | 'findSession' | 'recordUse' | 'revokeSession'> {
  const { sql } = database;
  return {
    openSession: (session, source, { passwordDigest, writeAudit }) =>
      database.tx(async (tx) => {
        const { adminId, idleSeconds, maxSessions } = session;
        // The row lock also serializes the logins of one administrator: each sees the sessions of the others.
        const [administrator] = await tx`
          select 1 from gateway.admin_administrators
          where admin_id = ${adminId} and password_digest = ${passwordDigest} for update`;
        if (!administrator) return null;
        await tx`
          update gateway.admin_sessions set revoked_at = gateway.townhall_now()
          where session_id in (
            select session_id from gateway.admin_sessions
            where admin_id = ${adminId} and ${isLive(tx, idleSeconds)}
            order by created_at desc, session_id desc offset ${maxSessions - 1})`;
        const [row] = await tx<{ expiresAt: Date }[]>`
          insert into gateway.admin_sessions (session_id, admin_id, digest, last4, expires_at)
          values (${session.sessionId}, ${adminId}, ${session.digest}, ${session.last4},
            gateway.townhall_now() + make_interval(secs => ${session.ttlSeconds}))
          returning expires_at as "expiresAt"`;
        await uncountAttempt(tx, source);
        await writeAudit(tx);
        return row ?? null;
      }),
    async findSession(by, idleSeconds) {
      const [session] = await sql<Session[]>`
        select s.session_id as "sessionId", s.admin_id as "adminId", s.created_at as "createdAt",
          s.expires_at as "expiresAt", s.last_used_at <= gateway.townhall_now() - interval '1 minute' as "isUseStale"
        from gateway.admin_sessions s join gateway.admin_administrators a using (admin_id)
        where ${'digest' in by ? sql`s.digest = ${by.digest}` : sql`s.session_id = ${by.sessionId}`}
          and ${isLive(sql, idleSeconds)}`;
      return session ?? null;
    },
    async recordUse(sessionId) {
      await sql`
        update gateway.admin_sessions set last_used_at = gateway.townhall_now()
        where session_id = ${sessionId} and last_used_at <= gateway.townhall_now() - interval '1 minute'`;
    },
    revokeSession: (sessionId, writeAudit) =>
      database.tx(async (tx) => {
        const rows = await tx`
          update gateway.admin_sessions set revoked_at = gateway.townhall_now()
          where session_id = ${sessionId} and revoked_at is null returning 1`;
        if (rows.length > 0) await writeAudit(tx);
        return rows.length > 0;
      }),
  };
}

function isLive(sql: Sql, idleSeconds: number) {
  return sql`revoked_at is null and expires_at > gateway.townhall_now()
    and last_used_at > gateway.townhall_now() - make_interval(secs => ${idleSeconds})`;
}
