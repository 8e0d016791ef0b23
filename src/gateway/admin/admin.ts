// The administrators: their login, their sessions, and their credentials. The rule it keeps: a guess is
// counted before its password is looked at, and a wrong ID gets the same work and the same answer as a wrong
// password.
import { networkOf } from '../../kernel/http/address.ts';
import { createBackground } from '../../kernel/background.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import {
  checkPassword,
  digestPassword,
  dummyDigest,
  isShortPassword,
  minimumRounds,
  passwordError,
} from '../../kernel/secrets/password.ts';
import { Problem } from '../../kernel/problem.ts';
import { parseToken, token, tokenDigest } from '../../kernel/secrets/secret.ts';
import {
  createConcurrencyLimit,
  defaultConcurrency,
  type ConcurrencyLimit,
} from '../../kernel/secrets/concurrency-limit.ts';
import type { Tx } from '../../kernel/data/database.ts';
import type { AuditEntry } from '../audit/index.ts';
import { adminIdError, originOf, systemOrigin, type Identity, type Origin } from '../identity.ts';
import type { Service } from '../service.ts';
import { defaultGuessBudgets, type GuessBudgets } from './attempt-limits.ts';
import { createMachines, identityOf, type Machines } from './machines.ts';
import type { AdminStore, Guess } from './store.ts';

export interface SessionLimits {
  /** A session ends after this at the latest. */
  ttlSeconds: number;
  /** It ends after this without use. Uses are noted once a minute, so it may end that much sooner. */
  idleSeconds: number;
  /** Live sessions of one administrator; a login beyond revokes the oldest. */
  maxSessions: number;
}

export interface AdminNeeds {
  store: AdminStore;
  log: Log;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void>; note(entry: AuditEntry): Promise<void> };
  changes: { bump(tx: Tx): Promise<void> };
  /** Whom machine credentials may act for. */
  bureaus: { find(bureauId: string): Promise<object | null> };
  /** The user tokens that machine credentials issue. */
  tokens: { revokeMadeBy(tx: Tx, makerId: string): Promise<number> };
  sessions?: Partial<SessionLimits>;
  attemptLimits?: Partial<GuessBudgets>;
  /** Rounds of PBKDF2 for new digests, 600,000 or more; a digest with fewer is renewed at the next login. */
  passwordRounds?: number;
  /** Where passwords wait for their check; the same one wherever this process checks any. */
  turnstile?: ConcurrencyLimit;
}

/** `isShort`: the password is accepted, but has fewer than the fifteen characters that are advised. */
export interface CredentialsSet {
  adminId: string;
  isShort: boolean;
}

export interface Admin extends Service<'admin'> {
  /** The administrator whose session it is, or null when it is nobody's. Shape and checksum are looked at before the database. */
  identify(bearer: string): Promise<Extract<Identity, { kind: 'admin' }> | null>;
  /** Whether there is an administrator. */
  exists(): Promise<boolean>;
  /** Makes the first administrator. Throws 400 for an unfit ID or password and 409 when there is one already. */
  setup(adminId: string, password: string): Promise<CredentialsSet>;
  /** Replaces the credentials, whatever they were, and revokes every session. Throws 400 like `setup`. */
  reset(adminId: string, password: string): Promise<CredentialsSet>;
  /** The credentials of products' backends. */
  machines: Machines;
}

const defaultSessionLimits: SessionLimits = { ttlSeconds: 12 * 3600, idleSeconds: 2 * 3600, maxSessions: 5 };

export function admin(needs: AdminNeeds): Admin {
  const { store, log, audit, changes } = needs;
  const limits = { ...defaultSessionLimits, ...needs.sessions };
  const budgets = { ...defaultGuessBudgets, ...needs.attemptLimits };
  const rounds = needs.passwordRounds ?? minimumRounds;
  const turnstile = needs.turnstile ?? createConcurrencyLimit(defaultConcurrency);
  const background = createBackground(log);
  const nobodysDigest = dummyDigest(rounds);

  async function credentials(
    adminId: string,
    password: string,
  ): Promise<CredentialsSet & { digest: string }> {
    const idFault = adminIdError(adminId);
    if (idFault !== null) throw unfit('admin_id', idFault);
    const fault = passwordError(password, [adminId]);
    if (fault !== null) throw unfit('password', fault);
    return { adminId, isShort: isShortPassword(password), digest: await digestPassword(password, rounds) };
  }

  /** The digest that the password has, or null when the pair is wrong. Takes a place for the whole time. */
  async function checkCounted(guess: Guess, password: string): Promise<string | null> {
    const place = turnstile.tryAcquire();
    if (!place) throw tooMany(1);
    try {
      const counted = await store.countGuess(guess, budgets);
      if (counted !== 'counted') throw tooMany(counted.retryAfterSeconds);
      await place.start();
      const stored = await store.findPasswordDigest(guess.adminId);
      const check = await checkPassword(password, stored ?? nobodysDigest);
      if (stored === null || !check.matches) return null;
      if (check.rounds >= rounds) return stored;
      const renewed = await digestPassword(password, rounds);
      await store.changePasswordDigest(guess.adminId, stored, renewed);
      return renewed;
    } finally {
      place.release();
    }
  }

  function done(origin: Origin, action: string, target: AuditEntry['target']) {
    return (tx: Tx) => audit.record(tx, { ...origin, action, target, outcome: 'ok' });
  }

  /** What somebody typed as an ID may be a password in the wrong field, so that only a known ID is written down. */
  async function noteWrongGuess(guess: Guess, entry: Omit<AuditEntry, 'outcome' | 'target'>): Promise<void> {
    const isKnown = (await store.findPasswordDigest(guess.adminId)) !== null;
    const target = isKnown ? { kind: 'administrator', id: guess.adminId } : null;
    await audit.note({ ...entry, target, outcome: 'failed' });
    const waitSeconds = await store.waitSeconds(guess, budgets);
    if (waitSeconds > 0)
      await audit.note({
        ...entry,
        action: 'admin.lock',
        target,
        outcome: 'ok',
        diff: { wait_seconds: waitSeconds },
      });
  }

  return {
    name: 'admin',
    title: 'Administration',
    env: [],
    handlers: {
      'admin.login': async (call) => {
        const { admin_id: adminId, password } = call.body;
        const guess = { adminId, network: networkOf(call.remoteAddress) };
        const passwordDigest = await checkCounted(guess, password);
        background.run('forget old guesses', () => store.forgetOldGuesses(budgets.forgetSeconds));
        const entry = { ...originOf(call), action: call.operationId };
        if (passwordDigest === null) {
          background.run(call.requestId, () => noteWrongGuess(guess, entry));
          throw wrong();
        }
        const sessionToken = token('adm');
        const session = {
          sessionId: id('adm'),
          adminId,
          digest: tokenDigest(sessionToken),
          last4: sessionToken.slice(-4),
          ...limits,
        };
        const opened = await store.openSession(session, guess, {
          passwordDigest,
          within: (tx) =>
            audit.record(tx, {
              ...entry,
              target: { kind: 'administrator', id: adminId },
              outcome: 'ok',
              diff: { session_id: session.sessionId },
            }),
        });
        if (!opened) throw wrong();
        call.log.info({ adminId, sessionId: session.sessionId }, 'an administrator logged in');
        return {
          status: 200,
          headers: { 'cache-control': 'no-store' },
          body: {
            admin_id: adminId,
            session_token: sessionToken,
            expires_at: opened.expiresAt.toISOString(),
          },
        };
      },
      'admin.getSession': async (call) => {
        const session = await store.findSession({ sessionId: call.identity.tokenId }, limits.idleSeconds);
        // Ended since the credential was looked at, a moment ago.
        if (!session) {
          throw new Problem('unauthenticated', 'invalid_token', 'The credential is not valid.', {
            headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
          });
        }
        const { adminId, expiresAt, createdAt } = session;
        return {
          status: 200,
          body: {
            admin_id: adminId,
            expires_at: expiresAt.toISOString(),
            created_at: createdAt.toISOString(),
          },
        };
      },
      'admin.logout': async (call) => {
        const { adminId, tokenId } = call.identity;
        await store.revokeSession(tokenId, async (tx) => {
          await done(originOf(call), call.operationId, { kind: 'administrator', id: adminId })(tx);
          await changes.bump(tx);
        });
        return { status: 200, body: { revoked: true } };
      },
    },
    async identify(bearer) {
      if (parseToken(bearer) !== 'adm') return null;
      const digest = tokenDigest(bearer);
      const session = await store.findSession({ digest }, limits.idleSeconds);
      if (!session) return identifyMachine(digest);
      const { adminId, sessionId } = session;
      if (session.isUseStale) background.run(sessionId, () => store.noteUse(sessionId));
      return { kind: 'admin', adminId, tokenId: sessionId };
    },
    machines: createMachines(needs),
    exists: () => store.exists(),
    async setup(adminId, password) {
      const { digest, ...set } = await credentials(adminId, password);
      if (
        !(await store.insertFirst(
          adminId,
          digest,
          done(systemOrigin, 'admin.setup', { kind: 'administrator', id: adminId }),
        ))
      ) {
        throw new Problem(
          'conflict',
          'conflict',
          'There is an administrator already; `townhall admin reset` replaces the credentials.',
        );
      }
      log.info({ adminId }, 'made the first administrator');
      return set;
    },
    async reset(adminId, password) {
      const { digest, ...set } = await credentials(adminId, password);
      await store.replaceAll(adminId, digest, async (tx) => {
        await done(systemOrigin, 'admin.reset', { kind: 'administrator', id: adminId })(tx);
        await changes.bump(tx);
      });
      log.info({ adminId }, 'replaced the administrator and revoked every session');
      return set;
    },
    close: () => background.settled(),
  };

  async function identifyMachine(digest: Buffer): Promise<Extract<Identity, { kind: 'admin' }> | null> {
    const machine = await store.findMachine(digest);
    if (!machine) return null;
    const { credentialId } = machine;
    if (machine.isUseStale) background.run(credentialId, () => store.noteMachineUse(credentialId));
    return identityOf(machine);
  }
}

function unfit(param: string, message: string): Problem {
  return new Problem('bad_request', 'invalid_request', message, { param });
}

function wrong(): Problem {
  return new Problem(
    'unauthenticated',
    'invalid_credentials',
    'The administrator ID or the password is wrong.',
    {
      headers: { 'www-authenticate': 'Bearer' },
    },
  );
}

// The same words whatever ran out, so that the answer says nothing about which IDs exist.
function tooMany(retryAfterSeconds: number): Problem {
  return new Problem('rate_limited', 'rate_limited', 'Too many attempts; try again later.', {
    headers: { 'retry-after': String(retryAfterSeconds) },
  });
}
