// Balance changes outside of calls: payments, grants, deductions and the first credits of a
// new user. They run in the transaction of their cause, so that both commit or neither does.
import { Problem } from '../../kernel/problem.ts';
import type { Balances } from './core/ports.ts';
import type { CreditsStore } from './core/store.ts';

export function createBalances(
  store: Pick<CreditsStore, 'post' | 'takeBack'>,
  { recallIdle }: Pick<Balances, 'recallIdle'>,
): Balances {
  return {
    recallIdle,
    async post(tx, entry) {
      requireNonNegative(entry.credits);
      const isNew = await store.post(tx, entry);
      if (isNew === null) throw userNotFound();
      return { isNew };
    },
    async takeBack(tx, entry) {
      requireNonNegative(entry.credits);
      const result = await store.takeBack(tx, entry);
      if (result === null) throw userNotFound();
      const { taken: takenCredits, owed: debt, lacking } = result;
      if (lacking > 0n) {
        const appliedCredits = entry.credits - lacking;
        throw new Problem(
          'insufficient_credits',
          'insufficient_credits',
          `The account has ${appliedCredits} credits available, not ${entry.credits}.`,
          {
            param: 'credits',
            details: [
              { path: 'needed_credits', message: String(entry.credits) },
              { path: 'affordable_credits', message: String(appliedCredits) },
            ],
          },
        );
      }
      return { taken: takenCredits, owed: debt };
    },
  };
}

export function userNotFound(): Problem {
  return new Problem('not_found', 'user_not_found', 'There is no such user.', { param: 'user_id' });
}

function requireNonNegative(credits: bigint): void {
  if (credits < 0n)
    throw new Error('The amount must not be negative: the kind of the entry decides its direction.');
}
