// Checks an administrator's password: limits attempts, and takes the same time for an ID that does not exist.
import { tooManyAttempts } from '../../kernel/problem.ts';
import { checkPassword, digestPassword, dummyDigest, minimumRounds } from '../../kernel/secrets/password.ts';
import type { ConcurrencyLimit } from '../../kernel/secrets/concurrency-limit.ts';
import type { AdminAttemptLimits } from './attempt-limits.ts';
import type { LoginSource } from './attempt-counters-store.ts';
import type { AdminStore } from './store.ts';

/**
 * The stored digest that the password matches, or null. Throws 429 when an attempt limit is reached or
 * the queue of checks is full.
 */
export type CheckPassword = (source: LoginSource, password: string) => Promise<string | null>;

export function createPasswordCheck({
  store,
  attemptLimits,
  concurrencyLimit,
  rounds = minimumRounds,
}: {
  store: Pick<AdminStore, 'countAttempt' | 'findPasswordDigest' | 'changePasswordDigest'>;
  attemptLimits: AdminAttemptLimits;
  concurrencyLimit: ConcurrencyLimit;
  rounds: number | undefined;
}): CheckPassword {
  const unknownAdminDigest = dummyDigest(rounds);

  async function check(source: LoginSource, password: string): Promise<string | null> {
    const { adminId } = source;
    const storedDigest = await store.findPasswordDigest(adminId);
    const result = await checkPassword(password, storedDigest ?? unknownAdminDigest);
    if (storedDigest === null || !result.matches) return null;
    if (result.rounds >= rounds) return storedDigest;
    const newDigest = await digestPassword(password, rounds);
    if (await store.changePasswordDigest(adminId, storedDigest, newDigest)) return newDigest;
    // A concurrent login or a reset has replaced the digest, so check the password against the new one.
    return check(source, password);
  }

  return async (source, password) => {
    // Join the queue before counting: a request that the full queue rejects is not an attempt.
    const slot = concurrencyLimit.tryAcquire();
    if (!slot) throw tooManyAttempts(1);
    try {
      const count = await store.countAttempt(source, attemptLimits);
      if (count !== 'counted') throw tooManyAttempts(count.retryAfterSeconds);
      await slot.start();
      return await check(source, password);
    } finally {
      slot.release();
    }
  };
}
