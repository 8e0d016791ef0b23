// The passwords of users: how one is checked, and that checking costs the same for an address that nobody has.
import {
  checkPassword,
  digestPassword,
  dummyDigest,
  minimumRounds,
  passwordError,
} from '../../../kernel/secrets/password.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { ConcurrencyLimit } from '../../../kernel/secrets/concurrency-limit.ts';
import { tooMany, type GuessAt, type Guesses } from '../attempt-limits.ts';
import type { AccountsStore } from '../store.ts';

export interface PasswordNeeds {
  store: AccountsStore;
  guesses: Guesses;
  /** How many digests are made at once. */
  turnstile: ConcurrencyLimit;
  /** Rounds of PBKDF2 for new digests; a digest with fewer is renewed at the next login. */
  rounds?: number;
}

export interface Passwords {
  /** Throws 400 for an unfit password. */
  requireFit(password: string, param: string, email: string | null): void;
  /** What is stored of it. Throws 429 when too many are at work. */
  digest(password: string): Promise<string>;
  /**
   * The account that has the password, after the guess was counted. Null when it is wrong, or when there is
   * no such account. Throws 429 when there were too many guesses.
   */
  check(at: GuessAt, password: string): Promise<{ userId: string; passwordDigest: string } | null>;
}

export function createPasswords(needs: PasswordNeeds): Passwords {
  const { store, guesses, turnstile } = needs;
  const rounds = needs.rounds ?? minimumRounds;
  const nobodysDigest = dummyDigest(rounds);

  async function inTurn<T>(work: (turn: () => Promise<void>) => Promise<T>): Promise<T> {
    const place = turnstile.tryAcquire();
    if (!place) throw tooMany(1);
    try {
      return await work(() => place.start());
    } finally {
      place.release();
    }
  }

  return {
    requireFit(password, param, email) {
      const fault = passwordError(password, email === null ? [] : [email, ...email.split('@')]);
      if (fault !== null)
        throw new Problem('bad_request', 'invalid_request', fault, {
          param,
          details: [{ path: param, message: fault }],
        });
    },
    digest: (password) =>
      inTurn(async (turn) => {
        await turn();
        return digestPassword(password, rounds);
      }),
    check: (at, password) =>
      // The place first: who is sent away at the door has not guessed.
      inTurn(async (turn) => {
        await guesses.count('passwords', at);
        await turn();
        const account = await store.findEmailAccount(at.bureauId, at.email);
        const stored = account?.passwordDigest ?? null;
        const check = await checkPassword(password, stored ?? nobodysDigest);
        if (!account || stored === null || !check.matches) return null;
        let passwordDigest = stored;
        if (check.rounds < rounds) {
          passwordDigest = await digestPassword(password, rounds);
          await store.changePassword(account.userId, stored, passwordDigest);
        }
        await guesses.succeed('passwords', at);
        return { userId: account.userId, passwordDigest };
      }),
  };
}
