// The result of a login attempt. The first read issues the token; a client that lost
// the answer can read the same token again for a short time.
import { createHash } from 'node:crypto';
import { invalidMember, Problem } from '../../../kernel/problem.ts';
import { secretsEqual, tokenDigest } from '../../../kernel/secrets/secret.ts';
import type { BureauState } from '../../bureaus/index.ts';
import type { AccountsQueries, AccountsStore, User } from '../core/store.ts';
import { newUserToken } from '../core/user-token.ts';
import { requireAttempt, type LoginTimes } from './attempts.ts';
import { seal, unseal } from './sealed-secrets.ts';
import type { LoginAttempt, LoginAttemptQueries, LoginAttemptStore } from './store.ts';

export type LoginOutcome =
  | { status: 'pending' | 'expired' }
  | { status: 'failed'; error: string | null }
  | { status: 'done'; userToken: string; expiresAt: Date; user: User };

/**
 * Proves that the reader started the attempt (PKCE verifier) and that its browser finished it (login code).
 */
export interface Proof {
  loginCode: string | undefined;
  codeVerifier: string | undefined;
}

/** Throws 404 `login_not_found`, 410 `login_spent`, 401 for a wrong proof, 400 for a missing one. */
export type ReadLoginResult = (loginId: string, proof: Proof) => Promise<LoginOutcome>;

export function createResultReader({
  store,
  loginAttempts,
  times,
  refuseUnlessActive,
}: {
  store: AccountsStore;
  loginAttempts: LoginAttemptStore;
  times: Pick<LoginTimes, 'rereadSeconds' | 'tokenSeconds'>;
  refuseUnlessActive: (state: BureauState) => void;
}): ReadLoginResult {
  async function readLocked(
    loginId: string,
    proof: Proof,
    queries: AccountsQueries,
    attempts: LoginAttemptQueries,
  ): Promise<LoginOutcome | 'spent' | 'unproven' | 'finished meanwhile'> {
    const digest = tokenDigest(loginId);
    const { userId } = requireAttempt(await attempts.find(digest));
    // Lock the user before the attempt, as password resets and removals do: storing a token locks the
    // user too, and the opposite order could deadlock with them.
    if (userId !== null) await queries.lockUser(userId);
    const attempt = requireAttempt(await attempts.lock(digest, times.rereadSeconds));
    refuseUnlessActive(attempt.bureauState);
    if (attempt.isExpired && !attempt.wasRead) return { status: 'expired' };
    if (attempt.state === 'pending') return { status: 'pending' };
    // Its user is not locked, so a token cannot be stored in this transaction.
    if (attempt.userId !== userId) return 'finished meanwhile';
    if (attempt.state === 'failed' || attempt.userId === null)
      return { status: 'failed', error: attempt.error };
    if (!isProven(attempt, proof)) return 'unproven';
    if (attempt.wasRead) return readAgain(queries, attempts, { loginId, digest, attempt });
    // The user was blocked after the attempt was finished.
    if (attempt.userState !== 'active') return { status: 'failed', error: null };
    const { userToken, record } = newUserToken({
      userId: attempt.userId,
      kind: 'user',
      ttlSeconds: times.tokenSeconds,
    });
    const { expiresAt } = await queries.insertToken(record);
    await attempts.recordFirstRead(digest, {
      tokenId: record.tokenId,
      sealedToken: seal(loginId, 'login result', userToken),
    });
    return doneOutcome(queries, attempt.userId, userToken, expiresAt);
  }

  return async (loginId, proof) => {
    const read = () =>
      store.tx(async (queries, tx) => readLocked(loginId, proof, queries, loginAttempts.withSql(tx)));
    let outcome = await read();
    // An attempt is finished once, so the loop ends after the second read.
    while (outcome === 'finished meanwhile') outcome = await read();
    // Throw after the commit: throwing inside the transaction would restore a spent attempt's sealed token.
    if (outcome === 'unproven') throw unprovenProblem(proof);
    if (outcome === 'spent') throw alreadyRead();
    return outcome;
  };
}

async function readAgain(
  queries: AccountsQueries,
  attempts: LoginAttemptQueries,
  { loginId, digest, attempt }: { loginId: string; digest: Buffer; attempt: LoginAttempt },
): Promise<LoginOutcome | 'spent'> {
  const { isReadable, sealedToken, tokenId, userId } = attempt;
  if (!isReadable || sealedToken === null || tokenId === null || userId === null) {
    if (sealedToken !== null) await attempts.dropSealedToken(digest);
    return 'spent';
  }
  if (attempt.userState !== 'active') return { status: 'failed', error: null };
  const token = await queries.findToken(tokenId);
  if (!token) return 'spent';
  return doneOutcome(queries, userId, unseal(loginId, 'login result', sealedToken), token.expiresAt);
}

async function doneOutcome(
  queries: AccountsQueries,
  userId: string,
  userToken: string,
  expiresAt: Date,
): Promise<LoginOutcome> {
  const user = await queries.findUser(userId);
  if (!user) throw new Error('The user of a finished login attempt does not exist.');
  return { status: 'done', userToken, expiresAt, user };
}

/** Throws 400 for a missing proof and 401 for a wrong one. */
export function requireProof(attempt: LoginAttempt, proof: Proof): void {
  if (!isProven(attempt, proof)) throw unprovenProblem(proof);
}

function isProven(
  { codeChallenge, loginCodeDigest }: LoginAttempt,
  { loginCode, codeVerifier }: Proof,
): boolean {
  if (codeChallenge === null) return true;
  if (loginCode === undefined || codeVerifier === undefined || loginCodeDigest === null) return false;
  const challenge = createHash('sha256').update(codeVerifier, 'ascii').digest('base64url');
  const isCode = secretsEqual(tokenDigest(loginCode).toString('hex'), loginCodeDigest.toString('hex'));
  return secretsEqual(challenge, codeChallenge) && isCode;
}

function unprovenProblem({ loginCode, codeVerifier }: Proof): Problem {
  const [missingProof] = Object.entries({ login_code: loginCode, code_verifier: codeVerifier })
    .filter(([, value]) => value === undefined)
    .map(([name]) => name);
  if (missingProof === undefined) {
    return new Problem('unauthenticated', 'invalid_credentials', 'The code or its verifier is wrong.', {
      headers: { 'www-authenticate': 'Bearer' },
    });
  }
  return invalidMember(missingProof, 'is required to read this login');
}

function alreadyRead(): Problem {
  return new Problem(
    'gone',
    'login_spent',
    'The result of this login was read already; log in again for another token.',
    { param: 'login_id' },
  );
}
