// Interfaces of the ledger for other slices: hold and settle credits for a
// call, and post to a balance.
import type { Tx } from '../../../kernel/data/database.ts';
import type { SettlementAnswer } from '../../../kernel/data/idempotency.ts';
import type { UsageFacts } from '../../usage/index.ts';

/** The payer of a call and the call's identity. */
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
 * What a settlement writes in the transaction that charges for a call. An answer goes to the
 * journal with the charge during an outage of the database. Work cannot: such a settlement is
 * charged only while its hold is open, as another process may do the work again under a hold of its
 * own.
 */
export type Alongside = { answer: () => SettlementAnswer } | { work: (tx: Tx) => Promise<void> };

export interface Ledger {
  /**
   * Reserves the bound of a call before anything goes upstream. Returns at once while the credits
   * that this process has set aside for the token are enough. Throws 402 `insufficient_credits`,
   * its details naming the affordable amount, 503 `credits_busy` while other gateways do not give
   * back idle credits, and 503 `database_unavailable`. An amount of 0n needs no balance.
   */
  reserve(call: PaidCall, amount: bigint): Reservation | Promise<Reservation>;
  /**
   * Writes a hold of exactly this amount to the database and marks it sent, in one round trip:
   * for jobs, and for calls with an Idempotency-Key. Throws as `reserve` does. `isSent: false`
   * is for a job that waits: until it is resumed, it costs nothing if its process dies.
   */
  hold(call: PaidCall, amount: bigint, options?: { isSent?: boolean }): Promise<Hold>;
  /**
   * Credits that the token may reserve now, by its user's balance and its own cap;
   * for sizing an output limit that the caller did not send.
   */
  available(userId: string, tokenId: string): Promise<bigint>;
  /** Records the usage of a call that is not charged. */
  record(call: FreeCall, facts: UsageFacts): Promise<void>;
  /**
   * Resumes a hold that outlives its process, such as a job's, and marks it sent;
   * null when it is resolved.
   */
  resume(holdId: string): Promise<Hold | null>;
}

/** An attempt that is about to be sent to a provider. */
export interface SentAttempt {
  model: string;
  provider: string | null;
  /** Estimated price of the input: charged if this process dies before the answer ends. */
  inputCredits: bigint;
  facts: Partial<UsageFacts>;
}

/**
 * The bound of one call, taken from the payer's credits until the call is settled or
 * the reservation released.
 */
export interface Reservation {
  /** Grows with `raise`. */
  readonly amount: bigint;
  /**
   * Raises the reservation to at least this amount, for a more expensive fallback.
   * Throws 402 as `reserve` does, and changes nothing then.
   */
  raise(amount: bigint): void | Promise<void>;
  /**
   * Marks the call as sent, before each attempt is written upstream: a call that was sent is
   * charged even if this process dies. Throws 503 `credits_busy` when the lease on the reserved
   * credits has ended.
   */
  markSent(attempt: SentAttempt): void;
  /**
   * The price of the answer so far, and its facts: charged if this process dies. Written
   * every 2 s, or at once when 256 output tokens came since the last one; `outputTokens`
   * counts all of the call so far.
   */
  checkpoint(credits: bigint, facts: Partial<UsageFacts>, outputTokens: number): void;
  /**
   * Charges once; a repeated call returns the first result. Resolves when the charge is
   * durable: after fsync of the journal, or after the commit of a hold. A price above the
   * reservation is charged as far as credits are available; the operator absorbs the rest,
   * with an alarm. `settle(0n, …)` records the usage of a call that produced nothing.
   */
  settle(credits: bigint, facts: UsageFacts, alongside?: Alongside): Promise<{ charged: bigint }>;
  /**
   * Gives the amount back: nothing went upstream. Returns at once and never throws;
   * no effect after `settle`.
   */
  release(): void;
}

/** A reservation that is a row of the database. Its lease is renewed until it is settled. */
export interface Hold extends Reservation {
  readonly holdId: string;
  raise(amount: bigint): Promise<void>;
}

/**
 * Balance changes outside of calls, in the transaction of their cause: a
 * payment, a grant, a new user.
 */
export interface Balances {
  /**
   * Makes all gateways return the idle credits of the user's tokens, for a second at most, before a
   * transaction that takes credits back. Must not run within a transaction.
   */
  recallIdle(userId: string): Promise<void>;
  /** Adds credits, once per (kind, ref). Pays the user's debt first. */
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
   * Takes back min(credits, posted − held), once per (kind, ref); the rest becomes a
   * debt that blocks new holds. With `partial: false` it throws 402 when the balance
   * is too small. A repetition returns the first result.
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
