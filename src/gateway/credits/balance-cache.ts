// Cache of balances. It decides whether a request may go to the provider while its hold is still being written; the hold
// itself decides whether the call is paid for.
import type { Clock } from '../../kernel/clock.ts';

export interface BalanceCache {
  /**
   * Whether the call may be sent before its hold is written: user and token have twice the amount besides all holds that
   * this process is writing for the user, and those holds together with this one stay within `mostUnconfirmed`.
   */
  canSkipHoldWait(payer: Payer, amount: bigint): boolean;
  /** A hold is being written. Returns a function to call when it has ended. */
  beginHold(payer: Payer, amount: bigint): () => void;
  /** The database has answered with what the token may spend; null where it did not say. */
  recordAvailable(payer: Payer, available: bigint | null): void;
  /** A hold of the payer was made larger. */
  recordRaise(payer: Payer, credits: bigint): void;
  /** The database has refused a hold that was sure: other processes spend the same credits. */
  recordRefusal(payer: Payer): void;
}

export interface Payer {
  userId: string;
  tokenId: string;
}

/**
 * Credits of one user that this process sends to providers before their holds are written: three cents. Another process
 * may have spent the balance in that moment, so this is what each replica can lose at once.
 */
export const maximumUnconfirmed = 30_000n;
const entryLifetimeMs = 60_000;
const maximumEntries = 10_000;
const nothing = 0n;

interface CachedBalance {
  available: bigint;
  untilMs: number;
}

export function createBalanceCache({ clock }: { clock: Pick<Clock, 'monotonicMs'> }): BalanceCache {
  // A token's entry has its cap as well; the user's entry is the newest of all of the user's tokens.
  const tokens = new Map<string, CachedBalance>();
  const users = new Map<string, CachedBalance>();
  const refusedUntilMs = new Map<string, number>();
  const pending = new Map<string, bigint>();

  function readAvailable(balances: Map<string, CachedBalance>, id: string): bigint | undefined {
    const balance = balances.get(id);
    return balance === undefined || clock.monotonicMs() > balance.untilMs ? undefined : balance.available;
  }

  function setNewest<T>(entries: Map<string, T>, id: string, entry: T): void {
    entries.delete(id);
    entries.set(id, entry);
    if (entries.size > maximumEntries) entries.delete(entries.keys().next().value as string);
  }

  return {
    canSkipHoldWait({ userId, tokenId }, amount) {
      const [userAvailable, tokenAvailable] = [readAvailable(users, userId), readAvailable(tokens, tokenId)];
      if (userAvailable === undefined || tokenAvailable === undefined) return false;
      if (clock.monotonicMs() < (refusedUntilMs.get(userId) ?? 0)) return false;
      const unconfirmed = pending.get(userId) ?? nothing;
      if (unconfirmed + amount > maximumUnconfirmed) return false;
      return amount * 2n <= (userAvailable < tokenAvailable ? userAvailable : tokenAvailable) - unconfirmed;
    },
    beginHold({ userId }, amount) {
      pending.set(userId, (pending.get(userId) ?? nothing) + amount);
      return () => {
        const rest = (pending.get(userId) ?? nothing) - amount;
        if (rest > nothing) pending.set(userId, rest);
        else pending.delete(userId);
      };
    },
    recordAvailable({ userId, tokenId }, available) {
      if (available === null) return;
      const untilMs = clock.monotonicMs() + entryLifetimeMs;
      setNewest(users, userId, { available, untilMs });
      setNewest(tokens, tokenId, { available, untilMs });
    },
    recordRaise({ userId, tokenId }, credits) {
      for (const balance of [users.get(userId), tokens.get(tokenId)])
        if (balance !== undefined) balance.available -= credits;
    },
    recordRefusal({ userId }) {
      setNewest(refusedUntilMs, userId, clock.monotonicMs() + entryLifetimeMs);
    },
  };
}
