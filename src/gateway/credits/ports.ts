// Interfaces of the ledger for other slices: hold and settle credits for a call, and post to a balance.
import type { Tx } from '../../kernel/data/database.ts';
import type { SettlementAnswer } from '../../kernel/data/idempotency.ts';
import type { UsageFacts } from '../usage/index.ts';

/** Who pays for a call, and what it is. */
export interface PaidCall {
  requestId: string;
  userId: string;
  bureauId: string;
  tokenId: string;
  action: string;
  model: string | null;
  provider: string | null;
}

/** A call of an administrator, which is not charged. */
export type FreeCall = Omit<PaidCall, 'userId' | 'bureauId'> & { userId: null; bureauId: null };

/**
 * What is written in the transaction that charges for a call. An answer goes to the journal with the charge when the
 * database is away. Work cannot: such a settlement is charged only while its hold is open, as another process may do the
 * work again under a hold of its own.
 */
export type Alongside = { answer: () => SettlementAnswer } | { work: (tx: Tx) => Promise<void> };

export interface Ledger {
  /**
   * Holds the amount and marks it sent, in one round trip, before anything goes upstream. Batched over
   * concurrent calls. Throws 402 `insufficient_credits`, its details naming what is affordable. An amount of 0n
   * needs no balance. `isSent: false` is for a job that waits: until it is resumed, it costs nothing if its process dies.
   */
  hold(call: PaidCall, amount: bigint, options?: { isSent?: boolean }): Promise<Hold>;
  /**
   * Whether the cached balance lets the request go upstream while its hold is written. The answer must still wait for the
   * hold, which can be refused.
   */
  canSkipHoldWait(call: PaidCall, amount: bigint): boolean;
  /** What the token may spend now, by its user's balance and its own cap; for sizing an output limit that the caller did not send. */
  available(userId: string, tokenId: string): Promise<bigint>;
  /** Records the usage of a call that is not charged. */
  record(call: FreeCall, facts: UsageFacts): Promise<void>;
  /** Resumes a hold that outlives its process, such as a job's, and marks it sent; null when it is resolved. */
  resume(holdId: string): Promise<Hold | null>;
}

export interface Hold {
  readonly holdId: string;
  /** Grows with `raise`. */
  readonly amount: bigint;
  /** Makes the hold at least so large, for a dearer fallback. Throws 402 as `hold` does, and changes nothing then. */
  raise(amount: bigint): Promise<void>;
  /**
   * The price of what was produced so far, and its facts. Kept in memory and written with the next batched
   * heartbeat: every 2 s, or at once when 256 output tokens came since the last one; `outputTokens` counts all of the call so far.
   */
  checkpoint(credits: bigint, facts: Partial<UsageFacts>, outputTokens: number): void;
  /**
   * Charges min(credits, hold + available); the operator absorbs the rest, with an alarm. Resolves after the commit,
   * or after the fsync of the local journal when the database is away. A hold that another process has resolved
   * meanwhile is charged what is available. A second call has no effect and answers as the first. Nothing was
   * produced: `settle(0n, …)`.
   */
  settle(credits: bigint, facts: UsageFacts, alongside?: Alongside): Promise<{ charged: bigint }>;
}

/** Changes of a balance that no call causes, in the transaction of what does: a payment, a grant, a new user. */
export interface Balances {
  /** Adds credits, once per (kind, ref). What the user owes is paid of them first. */
  post(
    tx: Tx,
    entry: {
      userId: string;
      kind: 'grant' | 'payment' | 'starting';
      ref: string;
      credits: bigint;
      reason: string;
    },
  ): Promise<{ isNew: boolean }>;
  /**
   * Takes back min(credits, posted − held), once per (kind, ref); the rest becomes a debt that blocks new holds.
   * With `partial: false` it throws 402 when the balance does not have it all. Repeated, it answers as it did.
   */
  takeBack(
    tx: Tx,
    entry: {
      userId: string;
      kind: 'deduct' | 'refund' | 'dispute';
      ref: string;
      credits: bigint;
      reason: string;
      partial: boolean;
    },
  ): Promise<{ taken: bigint; owed: bigint }>;
}
