// The table of login attempts, and the only file that names it. Whether one has expired is judged here, by the
// database's clock.
import type { Database, Sql } from '../../../kernel/data/database.ts';
import type { BureauState } from '../../bureaus/index.ts';
import type { BureauStates, UserState } from '../store.ts';

export interface Attempt {
  bureauId: string;
  bureauState: BureauState;
  provider: string;
  state: 'pending' | 'done' | 'failed';
  awaits: 'input' | 'redirect' | null;
  error: string | null;
  inputsLeft: number;
  sealedMemory: Buffer | null;
  redirectTo: string | null;
  codeChallenge: string | null;
  loginCodeDigest: Buffer | null;
  userId: string | null;
  userState: UserState | null;
  isExpired: boolean;
  wasRead: boolean;
  /** Whether the first read was so short ago that another may have the token. */
  isReadable: boolean;
  tokenId: string | null;
  sealedToken: Buffer | null;
}

export interface NewAttempt {
  digest: Buffer;
  bureauId: string;
  provider: string;
  ttlSeconds: number;
  maxInputs: number;
  /** Done already, or waiting for something. */
  userId?: string;
  awaits?: 'input' | 'redirect';
  redirectTo?: string;
  codeChallenge?: string;
}

/** What can be done on one connection, in a transaction or alone. Moves are without effect, and say so, unless the attempt is pending and alive. */
export interface AttemptQueries {
  insert(attempt: NewAttempt): Promise<void>;
  find(digest: Buffer): Promise<Attempt | null>;
  /** Nobody else can read the attempt until the transaction ends. */
  lock(digest: Buffer, rereadSeconds: number): Promise<Attempt | null>;
  /** Uses up one input and says how many are left; null when there is none, or nothing is asked for. */
  countInput(digest: Buffer): Promise<number | null>;
  giveInputBack(digest: Buffer): Promise<void>;
  remember(digest: Buffer, sealedMemory: Buffer): Promise<void>;
  finish(digest: Buffer, end: { userId: string; loginCodeDigest?: Buffer }): Promise<boolean>;
  fail(digest: Buffer, error: string): Promise<boolean>;
  noteFirstRead(digest: Buffer, token: { tokenId: string; sealedToken: Buffer }): Promise<void>;
  dropSealedToken(digest: Buffer): Promise<void>;
  forgetUser(userId: string): Promise<void>;
  /** Likewise for all users of a Bureau. */
  forgetBureau(bureauId: string): Promise<void>;
  /** Forgets some attempts that ended more than a day ago. */
  forgetOld(): Promise<void>;
}

export interface AttemptStore extends AttemptQueries {
  within(sql: Sql): AttemptQueries;
}

export function attemptStore({ sql }: Database, bureaus: BureauStates): AttemptStore {
  return { ...queries(sql, bureaus), within: (own) => queries(own, bureaus) };
}

function queries(sql: Sql, bureaus: BureauStates): AttemptQueries {
  const isPending = () => sql`state = 'pending' and expires_at > gateway.townhall_now()`;

  async function read(digest: Buffer, rereadSeconds: number): Promise<Attempt | null> {
    const [found] = await sql<Attempt[]>`
      select a.bureau_id as "bureauId", ${bureaus.stateOf(sql, 'a.bureau_id')} as "bureauState", a.provider, a.state,
        a.awaits, a.error, a.inputs_left as "inputsLeft", a.sealed_memory as "sealedMemory", a.redirect_to as "redirectTo",
        a.code_challenge as "codeChallenge", a.login_code_digest as "loginCodeDigest", a.user_id as "userId",
        (select u.state from gateway.accounts_users u where u.user_id = a.user_id) as "userState",
        a.expires_at <= gateway.townhall_now() as "isExpired",
        a.first_read_at is not null as "wasRead",
        coalesce(a.first_read_at > gateway.townhall_now() - make_interval(secs => ${rereadSeconds}), false) as "isReadable",
        a.token_id as "tokenId", a.sealed_token as "sealedToken"
      from gateway.accounts_login_attempts a where a.digest = ${digest}`;
    return found ?? null;
  }

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
        values (${digest}, ${bureauId}, ${provider}, ${userId === undefined ? 'pending' : 'done'}, ${userId ?? null}, ${awaits ?? null},
          ${maxInputs}, ${redirectTo ?? null}, ${codeChallenge ?? null},
          gateway.townhall_now() + make_interval(secs => ${ttlSeconds}))`;
    },
    find: (digest) => read(digest, 0),
    async lock(digest, rereadSeconds) {
      // Two statements: one that waits for the lock sees the row as it is then, but a user whom the other
      // transaction made not yet.
      await sql`select 1 from gateway.accounts_login_attempts where digest = ${digest} for update`;
      return read(digest, rereadSeconds);
    },
    async countInput(digest) {
      const [counted] = await sql<{ left: number }[]>`
        update gateway.accounts_login_attempts set inputs_left = inputs_left - 1
        where digest = ${digest} and ${isPending()} and awaits = 'input' and inputs_left > 0
        returning inputs_left as left`;
      return counted?.left ?? null;
    },
    async giveInputBack(digest) {
      await sql`update gateway.accounts_login_attempts set inputs_left = inputs_left + 1 where digest = ${digest} and ${isPending()}`;
    },
    async remember(digest, sealedMemory) {
      await sql`update gateway.accounts_login_attempts set sealed_memory = ${sealedMemory} where digest = ${digest} and ${isPending()}`;
    },
    async finish(digest, { userId, loginCodeDigest }) {
      const done = await sql`
        update gateway.accounts_login_attempts
        set state = 'done', user_id = ${userId}, login_code_digest = ${loginCodeDigest ?? null}, sealed_memory = null, awaits = null
        where digest = ${digest} and ${isPending()} returning 1`;
      return done.length > 0;
    },
    async fail(digest, error) {
      const failed = await sql`
        update gateway.accounts_login_attempts set state = 'failed', error = ${error}, sealed_memory = null, awaits = null
        where digest = ${digest} and ${isPending()} returning 1`;
      return failed.length > 0;
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
    async forgetBureau(bureauId) {
      await sql`delete from gateway.accounts_login_attempts where bureau_id = ${bureauId} and user_id is not null`;
    },
    async forgetUser(userId) {
      await sql`delete from gateway.accounts_login_attempts where user_id = ${userId}`;
    },
    async forgetOld() {
      // A few at a time, so that no caller pays for many; two replicas do not wait for each other.
      await sql`
        delete from gateway.accounts_login_attempts where digest in (
          select digest from gateway.accounts_login_attempts
          where expires_at < gateway.townhall_now() - interval '1 day'
          order by expires_at limit 100 for update skip locked)`;
    },
  };
}
