// Checks and digests the passwords of users. A check takes the same time for an address without an account.
import {
  checkPassword,
  digestPassword,
  dummyDigest,
  minimumRounds,
  passwordError,
} from '../../../kernel/secrets/password.ts';
import { Problem, tooManyAttempts } from '../../../kernel/problem.ts';
import type { ConcurrencyLimit } from '../../../kernel/secrets/concurrency-limit.ts';
import type { AttemptLimits, AttemptSource } from '../core/attempt-limits.ts';
import type { AccountsStore } from '../core/store.ts';

export interface Passwords {
  /** Throws 400 for a password that is too short, too common or part of the address. */
  requireAcceptable(password: string, param: string, email: string | null): void;
  /** Throws 429 when too many digests are being computed. */
  digest(password: string): Promise<string>;
  /**
   * Counts an attempt and checks the password. Null when it is wrong or the address
   * has no account. Throws 429 after too many attempts.
   */
  check(source: AttemptSource, password: string): Promise<{ userId: string; passwordDigest: string } | null>;
}

export function createPasswords({
  store,
  attemptLimits,
  concurrencyLimit,
  rounds = minimumRounds,
}: {
  store: Pick<AccountsStore, 'findEmailAccount' | 'changePassword'>;
  attemptLimits: Pick<AttemptLimits, 'count' | 'recordSuccess'>;
  /** Limits how many digests are computed at once. */
  concurrencyLimit: ConcurrencyLimit;
  /** Rounds of PBKDF2 for new digests. A digest with fewer rounds is replaced at the next login. */
  rounds?: number;
}): Passwords {
  const unknownAccountDigest = dummyDigest(rounds);

  async function verify(
    source: AttemptSource,
    password: string,
  ): Promise<{ userId: string; passwordDigest: string } | null> {
    const account = await store.findEmailAccount(source.bureauId, source.email);
    const storedDigest = account?.passwordDigest ?? null;
    const result = await checkPassword(password, storedDigest ?? unknownAccountDigest);
    if (!account || storedDigest === null || !result.matches) return null;
    const { userId } = account;
    if (result.rounds >= rounds) return { userId, passwordDigest: storedDigest };
    const passwordDigest = await digestPassword(password, rounds);
    if (await store.changePassword(userId, storedDigest, passwordDigest)) return { userId, passwordDigest };
    // A concurrent login or password change has replaced the digest, so check the password against the new
    // one.
    return verify(source, password);
  }

  return {
    requireAcceptable(password, param, email) {
      const message = passwordError(password, email === null ? [] : [email, ...email.split('@')]);
      if (message === null) return;
      throw new Problem('bad_request', 'invalid_request', message, {
        param,
        details: [{ path: param, message }],
      });
    },
    digest: (password) =>
      runQueued(concurrencyLimit, async (waitForTurn) => {
        await waitForTurn();
        return digestPassword(password, rounds);
      }),
    check: (source, password) =>
      // Join the queue before counting: a request that the full queue rejects is not an attempt.
      runQueued(concurrencyLimit, async (waitForTurn) => {
        await attemptLimits.count('passwords', source);
        await waitForTurn();
        const account = await verify(source, password);
        if (account !== null) await attemptLimits.recordSuccess('passwords', source);
        return account;
      }),
  };
}

/**
 * Joins the queue for digests and runs the work. The work calls `waitForTurn` before it computes a
 * digest. Throws 429 when the queue is full.
 */
async function runQueued<T>(
  concurrencyLimit: ConcurrencyLimit,
  work: (waitForTurn: () => Promise<void>) => Promise<T>,
): Promise<T> {
  const slot = concurrencyLimit.tryAcquire();
  if (!slot) throw tooManyAttempts(1);
  try {
    return await work(() => slot.start());
  } finally {
    slot.release();
  }
}
