// What each token may still spend, as far as this process has heard of it. It decides nothing: the hold does. It only
// tells whether a hold is so sure to be granted that what it pays for may begin while it is being written down.
import type { Clock } from '../../kernel/clock.ts';

export interface Spendable {
  /** Whether the token has at least twice the amount, besides all that is being held for it at the moment. */
  isSure(tokenId: string, amount: bigint): boolean;
  /** A hold is on its way. Returns what to call when it has ended. */
  begin(tokenId: string, amount: bigint): () => void;
  /** The database has told it just now. */
  note(tokenId: string, available: bigint | null): void;
}

// Other processes spend too; what they did in this time can cost a call that is sent in vain, and nothing else.
const goodMs = 60_000;
const mostKept = 10_000;
const nothing = 0n;

interface Known {
  available: bigint;
  untilMs: number;
}

export function createSpendable({ clock }: { clock: Pick<Clock, 'monotonicMs'> }): Spendable {
  const known = new Map<string, Known>();
  const coming = new Map<string, bigint>();

  return {
    isSure(tokenId, amount) {
      const found = known.get(tokenId);
      if (found === undefined || clock.monotonicMs() > found.untilMs) return false;
      return amount * 2n <= found.available - (coming.get(tokenId) ?? nothing);
    },
    begin(tokenId, amount) {
      coming.set(tokenId, (coming.get(tokenId) ?? nothing) + amount);
      return () => {
        const rest = (coming.get(tokenId) ?? nothing) - amount;
        if (rest > nothing) coming.set(tokenId, rest);
        else coming.delete(tokenId);
      };
    },
    note(tokenId, available) {
      if (available === null) return;
      known.delete(tokenId);
      known.set(tokenId, { available, untilMs: clock.monotonicMs() + goodMs });
      if (known.size > mostKept) known.delete(known.keys().next().value as string);
    },
  };
}
