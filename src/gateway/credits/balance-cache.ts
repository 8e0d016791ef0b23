// Cache of balances, which decides one thing: whether a provider may be asked while the hold of the call is still being
// written. The hold itself decides whether the call is paid for.
import type { Clock } from '../../kernel/clock.ts';

export interface Spendable {
  /**
   * Whether the call may be sent before its hold is written: user and token have twice the amount besides all holds that
   * this process is writing for the user, and those holds together with this one stay within `mostUnconfirmed`.
   */
  isSure(payer: Payer, amount: bigint): boolean;
  /** A hold is being written. Returns a function to call when it has ended. */
  begin(payer: Payer, amount: bigint): () => void;
  /** The database has answered with what the token may spend; null where it did not say. */
  note(payer: Payer, available: bigint | null): void;
  /** A hold of the payer was made larger. */
  spend(payer: Payer, credits: bigint): void;
  /** The database has refused a hold that was sure: other processes spend the same credits. */
  refuse(payer: Payer): void;
}

export interface Payer {
  userId: string;
  tokenId: string;
}

/**
 * Credits of one user that this process sends to providers before their holds are written: three cents. Another process
 * may have spent the balance in that moment, so this is what each replica can lose at once.
 */
export const mostUnconfirmed = 30_000n;
const goodMs = 60_000;
const mostEntries = 10_000;
const nothing = 0n;

interface Balance {
  available: bigint;
  untilMs: number;
}

export function createSpendable({ clock }: { clock: Pick<Clock, 'monotonicMs'> }): Spendable {
  // A token's entry has its cap as well; the user's entry is the newest of all of the user's tokens.
  const tokens = new Map<string, Balance>();
  const users = new Map<string, Balance>();
  const refusedUntilMs = new Map<string, number>();
  const pending = new Map<string, bigint>();

  function availableOf(balances: Map<string, Balance>, id: string): bigint | undefined {
    const balance = balances.get(id);
    return balance === undefined || clock.monotonicMs() > balance.untilMs ? undefined : balance.available;
  }

  function put<T>(entries: Map<string, T>, id: string, entry: T): void {
    entries.delete(id);
    entries.set(id, entry);
    if (entries.size > mostEntries) entries.delete(entries.keys().next().value as string);
  }

  return {
    isSure({ userId, tokenId }, amount) {
      const [ofUser, ofToken] = [availableOf(users, userId), availableOf(tokens, tokenId)];
      if (ofUser === undefined || ofToken === undefined) return false;
      if (clock.monotonicMs() < (refusedUntilMs.get(userId) ?? 0)) return false;
      const unconfirmed = pending.get(userId) ?? nothing;
      if (unconfirmed + amount > mostUnconfirmed) return false;
      return amount * 2n <= (ofUser < ofToken ? ofUser : ofToken) - unconfirmed;
    },
    begin({ userId }, amount) {
      pending.set(userId, (pending.get(userId) ?? nothing) + amount);
      return () => {
        const rest = (pending.get(userId) ?? nothing) - amount;
        if (rest > nothing) pending.set(userId, rest);
        else pending.delete(userId);
      };
    },
    note({ userId, tokenId }, available) {
      if (available === null) return;
      const untilMs = clock.monotonicMs() + goodMs;
      put(users, userId, { available, untilMs });
      put(tokens, tokenId, { available, untilMs });
    },
    spend({ userId, tokenId }, credits) {
      for (const balance of [users.get(userId), tokens.get(tokenId)])
        if (balance !== undefined) balance.available -= credits;
    },
    refuse({ userId }) {
      put(refusedUntilMs, userId, clock.monotonicMs() + goodMs);
    },
  };
}
