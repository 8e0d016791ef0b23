// The tables of administrators, their sessions and the counters of guesses, and the only file that names
// them. Whether a session has ended is judged here, by the database's clock.
import { createHash } from 'node:crypto';
import type { Database, Sql, Tx } from '../../kernel/data/database.ts';
import {
  guessScopes,
  judgeGuess,
  type Counter,
  type Counters,
  type GuessBudgets,
  type GuessScope,
} from './attempt-limits.ts';

export interface Session {
  sessionId: string;
  adminId: string;
  createdAt: Date;
  expiresAt: Date;
  /** Its last use was noted so long ago that this one should be. */
  isUseStale: boolean;
}

export interface NewSession {
  sessionId: string;
  adminId: string;
  digest: Buffer;
  last4: string;
  ttlSeconds: number;
  /** Without use for so long, a session has ended. */
  idleSeconds: number;
  /** Live sessions of the administrator, this one included; the oldest beyond are revoked. */
  maxSessions: number;
}

/** Who is guessing at whom. */
export interface Guess {
  adminId: string;
  network: string;
}

/** The credential of a product's backend. */
export interface Machine {
  credentialId: string;
  bureauId: string;
  scopes: string[];
  last4: string;
  createdAt: Date;
  expiresAt: Date;
  revokedAt: Date | null;
  lastUsedAt: Date | null;
}

/** What else belongs into a transaction, such as the entry in the audit log. */
export type Within = (tx: Tx) => Promise<void>;

export interface AdminStore {
  exists(): Promise<boolean>;
  /** Whether there was none before; otherwise nothing is changed. */
  insertFirst(adminId: string, passwordDigest: string, within: Within): Promise<boolean>;
  /** Makes these the only credentials, revokes every session, and forgets all guesses: whoever resets has often made some. */
  replaceAll(adminId: string, passwordDigest: string, within: Within): Promise<void>;
  findPasswordDigest(adminId: string): Promise<string | null>;
  /** Without effect when the digest is not `from` any more. */
  changePasswordDigest(adminId: string, from: string, to: string): Promise<void>;
  /**
   * Opens a session and takes the guess back that it began with; null when the password digest is not
   * `passwordDigest` any more, so that a login cannot outlive a reset that ran beside it.
   */
  openSession(
    session: NewSession,
    guess: Guess,
    proof: { passwordDigest: string; within: Within },
  ): Promise<{ expiresAt: Date } | null>;
  findSession(by: { digest: Buffer } | { sessionId: string }, idleSeconds: number): Promise<Session | null>;
  noteUse(sessionId: string): Promise<void>;
  /** Whether it lived. */
  revokeSession(sessionId: string, within: Within): Promise<boolean>;
  /** Counts the guess, or says after how many seconds one would be counted. Of any number at once, no more are counted than the budgets allow. */
  countGuess(guess: Guess, budgets: GuessBudgets): Promise<{ retryAfterSeconds: number } | 'counted'>;
  /** After how many seconds a guess would be counted, 0 for at once. Counts nothing. */
  waitSeconds(guess: Guess, budgets: GuessBudgets): Promise<number>;
  /** Forgets some counters that nobody touched for so long. */
  forgetOldGuesses(seconds: number): Promise<void>;
  insertMachine(
    machine: {
      credentialId: string;
      bureauId: string;
      scopes: readonly string[];
      digest: Buffer;
      last4: string;
      ttlSeconds: number;
    },
    within: Within,
  ): Promise<Machine>;
  findMachine(digest: Buffer): Promise<(Machine & { isUseStale: boolean }) | null>;
  /** The credential while it is good; its revocation waits until the transaction ends. */
  lockLiveMachine(tx: Tx, credentialId: string): Promise<Machine | null>;
  noteMachineUse(credentialId: string): Promise<void>;
  /** All of them, the revoked too, in the order in which they were made. */
  listMachines(): Promise<Machine[]>;
  /** Null when there is none of that id; otherwise whether it lived. */
  revokeMachine(credentialId: string, within: Within): Promise<boolean | null>;
}

export function adminStore(database: Database): AdminStore {
  const { sql } = database;
  return {
    async exists() {
      const [found] = await sql`select 1 from gateway.admin_administrators limit 1`;
      return found !== undefined;
    },
    insertFirst: (adminId, passwordDigest, within) =>
      database.tx(async (tx) => {
        // Two starters with different IDs would otherwise both find the table empty.
        await tx`lock table gateway.admin_administrators in share row exclusive mode`;
        const made = await tx`
          insert into gateway.admin_administrators (admin_id, password_digest)
          select ${adminId}, ${passwordDigest}
          where not exists (select 1 from gateway.admin_administrators)
          returning 1`;
        if (made.length > 0) await within(tx);
        return made.length > 0;
      }),
    replaceAll: (adminId, passwordDigest, within) =>
      database.tx(async (tx) => {
        await tx`lock table gateway.admin_administrators in share row exclusive mode`;
        // Waits for a login that is opening its session, whose row lock it needs; that session is revoked below.
        await tx`delete from gateway.admin_administrators`;
        await tx`insert into gateway.admin_administrators (admin_id, password_digest) values (${adminId}, ${passwordDigest})`;
        await tx`update gateway.admin_sessions set revoked_at = gateway.townhall_now() where revoked_at is null`;
        // Whole, since row by row it could wait in a circle with a guess that is being counted.
        await tx`lock table gateway.admin_guesses in exclusive mode`;
        await tx`delete from gateway.admin_guesses`;
        await within(tx);
      }),
    async findPasswordDigest(adminId) {
      const [found] = await sql<{ passwordDigest: string }[]>`
        select password_digest as "passwordDigest" from gateway.admin_administrators where admin_id = ${adminId}`;
      return found?.passwordDigest ?? null;
    },
    async changePasswordDigest(adminId, from, to) {
      await sql`
        update gateway.admin_administrators set password_digest = ${to}, updated_at = gateway.townhall_now()
        where admin_id = ${adminId} and password_digest = ${from}`;
    },
    openSession: (session, guess, { passwordDigest, within }) =>
      database.tx(async (tx) => {
        const { adminId, idleSeconds, maxSessions } = session;
        // The row lock also makes logins of one administrator count their sessions one after the other.
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
        const [made] = await tx<{ expiresAt: Date }[]>`
          insert into gateway.admin_sessions (session_id, admin_id, digest, last4, expires_at)
          values (${session.sessionId}, ${adminId}, ${session.digest}, ${session.last4},
            gateway.townhall_now() + make_interval(secs => ${session.ttlSeconds}))
          returning expires_at as "expiresAt"`;
        await takeGuessBack(tx, guess);
        await within(tx);
        return made ?? null;
      }),
    async findSession(by, idleSeconds) {
      const [found] = await sql<Session[]>`
        select s.session_id as "sessionId", s.admin_id as "adminId", s.created_at as "createdAt", s.expires_at as "expiresAt",
          s.last_used_at <= gateway.townhall_now() - interval '1 minute' as "isUseStale"
        from gateway.admin_sessions s join gateway.admin_administrators a using (admin_id)
        where ${'digest' in by ? sql`s.digest = ${by.digest}` : sql`s.session_id = ${by.sessionId}`} and ${isLive(sql, idleSeconds)}`;
      return found ?? null;
    },
    async noteUse(sessionId) {
      await sql`
        update gateway.admin_sessions set last_used_at = gateway.townhall_now()
        where session_id = ${sessionId} and last_used_at <= gateway.townhall_now() - interval '1 minute'`;
    },
    revokeSession: (sessionId, within) =>
      database.tx(async (tx) => {
        const revoked = await tx`
          update gateway.admin_sessions set revoked_at = gateway.townhall_now()
          where session_id = ${sessionId} and revoked_at is null returning 1`;
        if (revoked.length > 0) await within(tx);
        return revoked.length > 0;
      }),
    async countGuess(guess, budgets) {
      // First without a lock: a flood of guesses that must wait anyway costs one read each.
      const seen = judgeGuess(await readCounters(sql, guess), budgets);
      if (!seen.admitted) return { retryAfterSeconds: seen.retryAfterSeconds };
      return database.tx(async (tx) => {
        const keys = keysOf(guess);
        // The rows are made before they are locked, and always in this order, so that two tries cannot wait
        // for each other in a circle.
        await tx`
          insert into gateway.admin_guesses (scope, key)
          values ('address', ${keys.address}), ('id', ${keys.id}), ('pair', ${keys.pair})
          on conflict (scope, key) do nothing`;
        const verdict = judgeGuess(await readCounters(tx, guess, tx`for update`), budgets);
        if (!verdict.admitted) return { retryAfterSeconds: verdict.retryAfterSeconds };
        const { tries, opensWindow } = verdict;
        await tx`
          update gateway.admin_guesses set
            tries = case scope when 'address' then ${tries.address}::integer when 'id' then ${tries.id}::integer else ${tries.pair}::integer end,
            opened_at = case when scope = 'address' and ${opensWindow} then gateway.townhall_now() else opened_at end,
            -- Time stands still in a transaction, so one that began earlier may be counted later.
            last_try_at = greatest(last_try_at, gateway.townhall_now())
          where ${areOf(tx, keys)}`;
        return 'counted';
      });
    },
    async waitSeconds(guess, budgets) {
      const verdict = judgeGuess(await readCounters(sql, guess), budgets);
      return verdict.admitted ? 0 : verdict.retryAfterSeconds;
    },
    insertMachine: ({ credentialId, bureauId, scopes, digest, last4, ttlSeconds }, within) =>
      database.tx(async (tx) => {
        const [made] = await tx<Machine[]>`
          insert into gateway.admin_machines (credential_id, bureau_id, scopes, digest, last4, expires_at)
          values (${credentialId}, ${bureauId}, ${scopes}::text[], ${digest}, ${last4},
            gateway.townhall_now() + make_interval(secs => ${ttlSeconds}::float8))
          returning ${machineColumns(tx)}`;
        if (!made) throw new Error('The machine credential was not stored.');
        await within(tx);
        return made;
      }),
    async findMachine(digest) {
      const [found] = await sql<(Machine & { isUseStale: boolean })[]>`
        select ${machineColumns(sql)},
          (last_used_at is null or last_used_at <= gateway.townhall_now() - interval '1 minute') as "isUseStale"
        from gateway.admin_machines
        where digest = ${digest} and ${isLiveMachine(sql)}`;
      return found ?? null;
    },
    async lockLiveMachine(tx, credentialId) {
      const [machine] = await tx<Machine[]>`
        select ${machineColumns(tx)} from gateway.admin_machines
        where credential_id = ${credentialId} and ${isLiveMachine(tx)} for share`;
      return machine ?? null;
    },
    async noteMachineUse(credentialId) {
      await sql`
        update gateway.admin_machines set last_used_at = gateway.townhall_now()
        where credential_id = ${credentialId}
          and (last_used_at is null or last_used_at <= gateway.townhall_now() - interval '1 minute')`;
    },
    async listMachines() {
      return [
        ...(await sql<
          Machine[]
        >`select ${machineColumns(sql)} from gateway.admin_machines order by created_at, credential_id`),
      ];
    },
    revokeMachine: (credentialId, within) =>
      database.tx(async (tx) => {
        const [found] = await tx<{ lives: boolean }[]>`
          select revoked_at is null as lives from gateway.admin_machines where credential_id = ${credentialId} for update`;
        if (!found?.lives) return found?.lives ?? null;
        await tx`update gateway.admin_machines set revoked_at = gateway.townhall_now() where credential_id = ${credentialId}`;
        await within(tx);
        return true;
      }),
    async forgetOldGuesses(seconds) {
      await sql`
        delete from gateway.admin_guesses where (scope, key) in (
          select scope, key from gateway.admin_guesses
          where succeeded_at is null and last_try_at < gateway.townhall_now() - make_interval(secs => ${seconds})
          order by last_try_at limit 100 for update skip locked)`;
    },
  };
}

function machineColumns(sql: Sql) {
  return sql`credential_id as "credentialId", bureau_id as "bureauId", scopes, last4, created_at as "createdAt",
    ${machineEnd(sql)} as "expiresAt", revoked_at as "revokedAt", last_used_at as "lastUsedAt"`;
}

// A replica of an earlier release can still insert a credential without an end while both run.
function machineEnd(sql: Sql) {
  return sql`coalesce(expires_at, created_at + interval '365 days')`;
}

function isLiveMachine(sql: Sql) {
  return sql`revoked_at is null and ${machineEnd(sql)} > gateway.townhall_now()`;
}

function isLive(sql: Sql, idleSeconds: number) {
  return sql`revoked_at is null and expires_at > gateway.townhall_now()
    and last_used_at > gateway.townhall_now() - make_interval(secs => ${idleSeconds})`;
}

type GuessKeys = Record<GuessScope, Buffer>;

function keysOf({ adminId, network }: Guess): GuessKeys {
  const key = (...parts: string[]) => createHash('sha256').update(JSON.stringify(parts)).digest();
  return { address: key(network), id: key(adminId), pair: key(adminId, network) };
}

function areOf(sql: Sql, { address, id, pair }: GuessKeys) {
  return sql`((scope = 'address' and key = ${address}) or (scope = 'id' and key = ${id}) or (scope = 'pair' and key = ${pair}))`;
}

async function readCounters(sql: Sql, guess: Guess, lock = sql``): Promise<Counters> {
  // A try that waited for the lock is judged by the time at which it came, which is never more lenient.
  const rows = await sql<(Counter & { scope: GuessScope })[]>`
    select scope, tries, succeeded_at is not null as "hasSucceeded",
      extract(epoch from gateway.townhall_now() - opened_at)::float8 as "ageSeconds",
      extract(epoch from gateway.townhall_now() - last_try_at)::float8 as "idleSeconds"
    from gateway.admin_guesses where ${areOf(sql, keysOf(guess))}
    order by scope ${lock}`;
  const untouched: Counter = { tries: 0, ageSeconds: 0, idleSeconds: 0, hasSucceeded: false };
  const byScope = new Map(rows.map((row) => [row.scope, row]));
  return Object.fromEntries(guessScopes.map((scope) => [scope, byScope.get(scope) ?? untouched])) as Counters;
}

/** A login was no guess: the counters are as if it had not been tried, and the network is known from now on. */
async function takeGuessBack(tx: Tx, guess: Guess): Promise<void> {
  const keys = keysOf(guess);
  await tx`select 1 from gateway.admin_guesses where ${areOf(tx, keys)} order by scope for update`;
  // A known network was not counted among the strangers of the ID.
  await tx`
    update gateway.admin_guesses set tries = greatest(tries - 1, 0)
    where (scope = 'address' and key = ${keys.address})
      or (scope = 'id' and key = ${keys.id} and not exists (
        select 1 from gateway.admin_guesses where scope = 'pair' and key = ${keys.pair} and succeeded_at is not null))`;
  await tx`
    update gateway.admin_guesses set tries = 0, succeeded_at = gateway.townhall_now()
    where scope = 'pair' and key = ${keys.pair}`;
}
