// The life of a login attempt: started, done, read, spent. An attempt gives one token, minted by the first
// read; an answer that got lost on its way can be read again for a short while.
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import { token, tokenDigest } from '../../kernel/secret.ts';
import type { BureauState } from '../bureaus/index.ts';
import type { Person } from './login-provider.ts';
import { loginDigest, newLoginId, openToken, sealToken } from './login-secret.ts';
import type { AccountsQueries, AccountsStore, Attempt, NewToken, User } from './store.ts';

export interface LoginTimes {
  /** How long an attempt lives. */
  attemptSeconds: number;
  /** How long after its first read a result can be read again. */
  rereadSeconds: number;
  /** How long the token of a login lives. */
  tokenSeconds: number;
}

export const defaultLoginTimes: LoginTimes = { attemptSeconds: 600, rereadSeconds: 60, tokenSeconds: 30 * 86_400 };

export type LoginOutcome =
  | { status: 'pending' | 'failed' | 'expired' }
  | { status: 'done'; userToken: string; expiresAt: Date; user: User };

/** A fresh user token with what is stored of it. */
export function newUserToken(userId: string, name: string | null, ttlSeconds: number): { userToken: string; record: NewToken } {
  const userToken = token('usr');
  const record = { tokenId: id('tok'), userId, digest: tokenDigest(userToken), last4: userToken.slice(-4), name, ttlSeconds };
  return { userToken, record };
}

/** Stores an attempt that is done already, and returns its `login_id`, which is kept nowhere else. */
export async function startDoneAttempt(
  store: AccountsStore,
  attempt: { bureauId: string; provider: string; person: Person },
  times: LoginTimes,
): Promise<string> {
  const { bureauId, provider, person } = attempt;
  const { userId } = await store.ensureUser(bureauId, person, id('usr'));
  const loginId = newLoginId();
  await store.insertAttempt({ digest: loginDigest(loginId), bureauId, provider, userId, ttlSeconds: times.attemptSeconds });
  return loginId;
}

/** Throws 404 `login_not_found`, 410 `login_spent`, or what `refuseUnlessActive` throws for the Bureau. */
export async function readLogin(
  store: AccountsStore,
  loginId: string,
  options: { times: LoginTimes; refuseUnlessActive: (state: BureauState) => void },
): Promise<LoginOutcome> {
  const { times, refuseUnlessActive } = options;
  const digest = loginDigest(loginId);
  const outcome = await store.tx(async (queries): Promise<LoginOutcome | 'spent'> => {
    const attempt = await queries.lockAttempt(digest, times.rereadSeconds);
    if (!attempt) throw new Problem('not_found', 'login_not_found', 'There is no such login attempt.', { param: 'login_id' });
    refuseUnlessActive(attempt.bureauState);
    if (attempt.wasRead) return readAgain(queries, loginId, attempt);
    if (attempt.isExpired) return { status: 'expired' };
    if (attempt.state !== 'done' || attempt.userId === null) return { status: attempt.state === 'pending' ? 'pending' : 'failed' };
    // Blocked since the attempt was started: the attempt comes to nothing.
    if (attempt.userState !== 'active') return { status: 'failed' };
    const { userToken, record } = newUserToken(attempt.userId, null, times.tokenSeconds);
    const { expiresAt } = await queries.insertToken(record);
    await queries.noteFirstRead(digest, { tokenId: record.tokenId, sealedToken: sealToken(loginId, userToken) });
    return done(queries, attempt.userId, userToken, expiresAt);
  });
  // After the transaction, which had to commit for the sealed token to be gone.
  if (outcome === 'spent') {
    throw new Problem('gone', 'login_spent', 'This login was read already; log in again for another token.', { param: 'login_id' });
  }
  return outcome;
}

async function readAgain(queries: AccountsQueries, loginId: string, attempt: Attempt): Promise<LoginOutcome | 'spent'> {
  const { isReadable, sealedToken, tokenId, userId } = attempt;
  if (!isReadable || sealedToken === null || tokenId === null || userId === null) {
    if (sealedToken !== null) await queries.dropSealedToken(loginDigest(loginId));
    return 'spent';
  }
  if (attempt.userState !== 'active') return { status: 'failed' };
  const stored = await queries.findToken(tokenId);
  if (!stored) return 'spent';
  return done(queries, userId, openToken(loginId, sealedToken), stored.expiresAt);
}

async function done(queries: AccountsQueries, userId: string, userToken: string, expiresAt: Date): Promise<LoginOutcome> {
  const user = await queries.findUser(userId);
  if (!user) throw new Error('A login attempt outlived its user.');
  return { status: 'done', userToken, expiresAt, user };
}
