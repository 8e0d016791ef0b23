// Answers the polls of a program that waits for its device login. The first poll after the
// confirmation creates the credential, by the rules of API keys: it belongs to the person who
// confirmed, and it expires and is revoked with the token that confirmed.
import type { Tx } from '../../../kernel/data/database.ts';
import { Problem } from '../../../kernel/problem.ts';
import { tokenDigest } from '../../../kernel/secrets/secret.ts';
import type { BureauState } from '../../bureaus/index.ts';
import { insertApiKey } from '../core/api-key.ts';
import type { CreditsPort } from '../core/ports.ts';
import type { AccountsQueries, AccountsStore, Token, TokenKind } from '../core/store.ts';
import { newUserToken } from '../core/user-token.ts';
import type { DeviceLogin, DeviceLoginStore } from './store.ts';

export interface DeviceCredential {
  userToken: string;
  tokenId: string;
  kind: TokenKind;
  userId: string;
  /** The token that confirmed the login. */
  createdBy: string;
  name: string;
  models: readonly string[] | null;
  creditCap: number | null;
  expiresAt: Date;
}

// A poll that is sent too early adds this to the interval (RFC 8628, section 3.5).
const slowDownSeconds = 5;
const maxIntervalSeconds = 600;

type Outcome =
  | { state: 'unknown' | 'expired' | 'denied' | 'spent' }
  | { state: 'pending' | 'too soon'; intervalSeconds: number }
  | { state: 'done'; credential: DeviceCredential };

interface ResultOptions {
  store: AccountsStore;
  deviceLogins: DeviceLoginStore;
  credits: Pick<CreditsPort, 'openKey'>;
  /** The lifetime of a user token, unless the confirming token expires sooner. */
  tokenSeconds: number;
  /** Throws 403 for a Bureau that is paused or archived. */
  refuseUnlessActive: (state: BureauState) => void;
  /** Writes the audit entry of the credential. */
  recordIssue: (tx: Tx, credential: DeviceCredential) => Promise<void>;
}

/** Throws the error codes of RFC 8628 as Problems until there is a credential. */
export async function pollDeviceLogin(options: ResultOptions, deviceCode: string): Promise<DeviceCredential> {
  const { store, deviceLogins } = options;
  const digest = tokenDigest(deviceCode);
  const outcome = await store.tx(async (queries, tx): Promise<Outcome> => {
    const logins = deviceLogins.withSql(tx);
    // Lock the user and the token before the login, as the removal of a user does, whose deletion of tokens
    // also deletes logins: the opposite order could deadlock with it.
    const decidedBy = await logins.findDecider(digest);
    const creator = decidedBy === null ? null : await lockCreator(queries, decidedBy);
    const login = await logins.lock(digest);
    if (login === null) return { state: 'unknown' };
    options.refuseUnlessActive(login.bureauState);
    if (login.state === 'spent' || login.state === 'denied') return { state: login.state };
    if (login.isExpired) return { state: 'expired' };
    if (login.isPolledTooSoon) {
      const intervalSeconds = Math.min(login.intervalSeconds + slowDownSeconds, maxIntervalSeconds);
      await logins.recordPoll(digest, intervalSeconds);
      return { state: 'too soon', intervalSeconds };
    }
    // A login that was confirmed after `findDecider` is pending too: the next poll locks its token.
    if (login.state === 'pending' || login.decidedBy !== decidedBy) {
      await logins.recordPoll(digest, login.intervalSeconds);
      return { state: 'pending', intervalSeconds: login.intervalSeconds };
    }
    await logins.setState(digest, creator === null ? 'denied' : 'spent');
    if (creator === null) return { state: 'denied' };
    const credential = await createCredential(options, { queries, tx, login, creator });
    await options.recordIssue(tx, credential);
    return { state: 'done', credential };
  });
  // Throw after the commit: throwing inside the transaction would roll back the poll's time and interval.
  if (outcome.state !== 'done') throw problemOf(outcome);
  return outcome.credential;
}

/**
 * Locks the token that confirmed the login. Null when the token or its user is no longer valid: the login
 * then counts as denied, as it cannot be confirmed a second time.
 */
async function lockCreator(queries: AccountsQueries, tokenId: string): Promise<Token | null> {
  const creator = await queries.lockLiveToken(tokenId);
  // `accounts.decideDeviceLogin` refuses API keys, so a key never gets here. If one did, it could create
  // tokens without its own limits.
  if (creator === null || creator.kind === 'key') return null;
  return (await queries.findUser(creator.userId))?.state === 'active' ? creator : null;
}

async function createCredential(
  { credits, tokenSeconds }: ResultOptions,
  { queries, tx, login, creator }: { queries: AccountsQueries; tx: Tx; login: DeviceLogin; creator: Token },
): Promise<DeviceCredential> {
  const { name, keyLimits } = login;
  const owner = { userId: creator.userId, createdBy: creator.tokenId, name };
  if (keyLimits !== null) {
    const key = await insertApiKey({ queries, tx, credits }, creator, { name, ...keyLimits });
    return { ...owner, ...key, kind: 'key', models: keyLimits.models, creditCap: keyLimits.creditCap };
  }
  const { kind, models } = creator;
  const { userToken, record } = newUserToken({
    userId: creator.userId,
    kind,
    name,
    models,
    ttlSeconds: tokenSeconds,
    createdBy: creator.tokenId,
    latestExpiry: creator.expiresAt,
  });
  const { expiresAt } = await queries.insertToken(record);
  return { ...owner, userToken, tokenId: record.tokenId, kind, models, creditCap: null, expiresAt };
}

function problemOf(outcome: Exclude<Outcome, { state: 'done' }>): Problem {
  const param = 'device_code';
  switch (outcome.state) {
    case 'pending': {
      const message = `The login has not been confirmed yet; poll again in ${outcome.intervalSeconds} seconds.`;
      return new Problem('bad_request', 'authorization_pending', message);
    }
    case 'too soon': {
      const message = `Wait at least ${outcome.intervalSeconds} seconds between polls.`;
      return new Problem('bad_request', 'slow_down', message);
    }
    case 'denied':
      return new Problem('forbidden', 'login_denied', 'The login was refused; start another one.');
    case 'expired': {
      const message = 'The codes of this login have expired; start another one.';
      return new Problem('gone', 'login_expired', message, { param });
    }
    case 'spent': {
      const message = 'The credential of this login was read already; start another one.';
      return new Problem('gone', 'login_spent', message, { param });
    }
    case 'unknown':
      return new Problem('not_found', 'login_not_found', 'There is no such device login.', { param });
  }
}
