// Administrators: login, sessions and credentials. A login attempt is counted before its password is
// checked. An unknown ID takes the same time and gets the same answer as a wrong password.
import { createBackground, type Background } from '../../kernel/background.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { networkOf } from '../../kernel/http/address.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { invalidToken, Problem } from '../../kernel/problem.ts';
import { parseToken, createToken, tokenDigest } from '../../kernel/secrets/secret.ts';
import {
  createConcurrencyLimit,
  defaultConcurrency,
  type ConcurrencyLimit,
} from '../../kernel/secrets/concurrency-limit.ts';
import type { AuditEntry } from '../audit/index.ts';
import { originOf, type Identity, type Origin } from '../identity.ts';
import type { Service } from '../service.ts';
import { defaultAttemptLimits, type AdminAttemptLimits } from './attempt-limits.ts';
import { createCredentials, type Credentials } from './credentials.ts';
import { createMachines, identityOf, type Machines, type ScopeOperations } from './machines.ts';
import { createPasswordCheck, type CheckPassword } from './password-check.ts';
import type { LoginSource } from './attempt-counters-store.ts';
import type { AdminStore } from './store.ts';

export interface SessionLimits {
  /** A session expires this long after its login. */
  ttlSeconds: number;
  /**
   * A session expires after this long without a request. Requests are recorded at most once a minute, so it
   * may expire up to a minute early.
   */
  idleSeconds: number;
  /** Live sessions of one administrator. One login more revokes the oldest session. */
  maxSessions: number;
}

export interface AdminOptions {
  store: AdminStore;
  log: Log;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void>; note(entry: AuditEntry): Promise<void> };
  changes: { bump(tx: Tx): Promise<void> };
  /** A machine credential is created for one existing Bureau. */
  bureaus: { find(bureauId: string): Promise<object | null> };
  /** The user tokens that machine credentials issue. */
  tokens: { revokeCreatedBy(tx: Tx, credentialId: string): Promise<number> };
  /** The operations that each scope of a machine credential allows, from the contract. */
  scopeOperations: ScopeOperations;
  sessions?: Partial<SessionLimits>;
  attemptLimits?: Partial<AdminAttemptLimits>;
  /**
   * Rounds of PBKDF2 for new digests, at least 600,000. A digest with fewer rounds is replaced at the next
   * login.
   */
  passwordRounds?: number;
  /** Limits concurrent password checks. Share one among everything in the process that checks passwords. */
  concurrencyLimit?: ConcurrencyLimit;
}

export interface Admin extends Service<'admin'>, Credentials {
  /**
   * The administrator of a session or machine credential, or null for an invalid
   * one. Checks the token's shape and checksum before it queries the database.
   */
  identify(bearer: string): Promise<AdminIdentity | null>;
  /** The credentials of products' backends. */
  machines: Machines;
}

type AdminIdentity = Extract<Identity, { kind: 'admin' }>;
type LoginCall = Parameters<Service<'admin'>['handlers']['admin.login']>[0];

const defaultSessionLimits: SessionLimits = { ttlSeconds: 12 * 3600, idleSeconds: 2 * 3600, maxSessions: 5 };

/** The dependencies that the functions of the login share. */
interface Shared {
  store: AdminStore;
  audit: AdminOptions['audit'];
  sessions: SessionLimits;
  attemptLimits: AdminAttemptLimits;
  background: Background;
  checkPassword: CheckPassword;
  scopeOperations: ScopeOperations;
}

export function admin(options: AdminOptions): Admin {
  const { store, log, audit, changes, scopeOperations } = options;
  const sessions = { ...defaultSessionLimits, ...options.sessions };
  const attemptLimits = { ...defaultAttemptLimits, ...options.attemptLimits };
  const background = createBackground(log);
  const checkPassword = createPasswordCheck({
    store,
    attemptLimits,
    concurrencyLimit: options.concurrencyLimit ?? createConcurrencyLimit(defaultConcurrency),
    rounds: options.passwordRounds,
  });
  const shared = { store, audit, sessions, attemptLimits, background, checkPassword, scopeOperations };

  return {
    name: 'admin',
    title: 'Administration',
    env: [],
    handlers: {
      'admin.login': (call) => logIn(shared, call),
      'admin.getSession': async (call) => {
        const session = await store.findSession({ sessionId: call.identity.tokenId }, sessions.idleSeconds);
        // The session ended after the request was authenticated.
        if (!session) throw invalidToken();
        return {
          status: 200,
          body: {
            admin_id: session.adminId,
            expires_at: session.expiresAt.toISOString(),
            created_at: session.createdAt.toISOString(),
          },
        };
      },
      'admin.logout': async (call) => {
        const { adminId, tokenId } = call.identity;
        await store.revokeSession(tokenId, async (tx) => {
          const target = { kind: 'administrator', id: adminId };
          await audit.record(tx, { ...originOf(call), action: call.operationId, target, outcome: 'ok' });
          await changes.bump(tx);
        });
        return { status: 200, body: { revoked: true } };
      },
    },
    identify: createIdentify(shared),
    machines: createMachines(options),
    ...createCredentials({ store, log, audit, changes, rounds: options.passwordRounds }),
    close: () => background.untilSettled(),
  };
}

async function logIn(
  { store, audit, sessions, attemptLimits, background, checkPassword }: Shared,
  call: LoginCall,
) {
  const { admin_id: adminId, password } = call.body;
  const source = { adminId, network: networkOf(call.remoteAddress) };
  const passwordDigest = await checkPassword(source, password);
  background.run('delete old attempt counters', () => store.deleteOldCounters(attemptLimits.forgetSeconds));
  const entry = { ...originOf(call), action: call.operationId };
  if (passwordDigest === null) {
    background.run(call.requestId, () => recordFailedLogin({ store, audit, attemptLimits }, source, entry));
    throw wrongCredentials();
  }
  const sessionToken = createToken('adm');
  const sessionId = id('adm');
  const session = await store.openSession(
    { sessionId, adminId, digest: tokenDigest(sessionToken), last4: sessionToken.slice(-4), ...sessions },
    source,
    {
      passwordDigest,
      writeAudit: (tx) =>
        audit.record(tx, {
          ...entry,
          target: { kind: 'administrator', id: adminId },
          outcome: 'ok',
          diff: { session_id: sessionId },
        }),
    },
  );
  // The password was replaced after the check.
  if (!session) throw wrongCredentials();
  call.log.info({ adminId, sessionId }, 'an administrator logged in');
  return {
    status: 200 as const,
    headers: { 'cache-control': 'no-store' },
    body: {
      admin_id: adminId,
      session_token: sessionToken,
      expires_at: session.expiresAt.toISOString(),
    },
  };
}

/**
 * Audits a failed login. The entry names the ID only if it exists: an unknown ID may be a password that was
 * typed into the wrong field.
 */
async function recordFailedLogin(
  { store, audit, attemptLimits }: Pick<Shared, 'store' | 'audit' | 'attemptLimits'>,
  source: LoginSource,
  entry: Origin & { action: string },
): Promise<void> {
  const exists = (await store.findPasswordDigest(source.adminId)) !== null;
  const target = exists ? { kind: 'administrator', id: source.adminId } : null;
  await audit.note({ ...entry, target, outcome: 'failed' });
  const waitSeconds = await store.waitSeconds(source, attemptLimits);
  if (waitSeconds === 0) return;
  await audit.note({
    ...entry,
    action: 'admin.lock',
    target,
    outcome: 'ok',
    diff: { wait_seconds: waitSeconds },
  });
}

function createIdentify({ store, sessions, background, scopeOperations }: Shared): Admin['identify'] {
  async function identifyMachine(digest: Buffer): Promise<AdminIdentity | null> {
    const machine = await store.findMachine(digest);
    if (!machine) return null;
    const { credentialId } = machine;
    if (machine.isUseStale) background.run(credentialId, () => store.recordMachineUse(credentialId));
    return identityOf(machine, scopeOperations);
  }

  return async (bearer) => {
    if (parseToken(bearer) !== 'adm') return null;
    const digest = tokenDigest(bearer);
    const session = await store.findSession({ digest }, sessions.idleSeconds);
    if (!session) return identifyMachine(digest);
    const { adminId, sessionId } = session;
    if (session.isUseStale) background.run(sessionId, () => store.recordUse(sessionId));
    return { kind: 'admin', adminId, tokenId: sessionId };
  };
}

function wrongCredentials(): Problem {
  return new Problem(
    'unauthenticated',
    'invalid_credentials',
    'The administrator ID or the password is wrong.',
    { headers: { 'www-authenticate': 'Bearer' } },
  );
}
