// The facts about a payment, and its state and credits computed from them. Facts only grow,
// and the computation uses all of them, so every order of events leads to the same result.

export interface Dispute {
  /** The disputed amount, in minor units. */
  amount: bigint;
  disputedAt: Date | null;
  wonAt: Date | null;
}

/** The facts of one payment; amounts are in minor units. */
export interface PaymentFacts {
  amount: bigint;
  /** The credits for the whole amount. */
  credits: bigint;
  paidAt: Date | null;
  expiredAt: Date | null;
  failedAt: Date | null;
  canceledAt: Date | null;
  /** The largest total of refunds that an event has reported. */
  refundedAmount: bigint;
  disputes: readonly Dispute[];
}

export type PaymentState =
  | 'pending'
  | 'expired'
  | 'failed'
  | 'canceled'
  | 'paid'
  | 'partially_refunded'
  | 'refunded'
  | 'disputed';

export function stateOf(facts: PaymentFacts): PaymentState {
  // A payment that arrives after its checkout expired counts too.
  if (facts.paidAt !== null) {
    if (disputedAmount(facts) > 0n) return 'disputed';
    if (facts.refundedAmount >= facts.amount) return 'refunded';
    return facts.refundedAmount > 0n ? 'partially_refunded' : 'paid';
  }
  if (facts.failedAt !== null) return 'failed';
  if (facts.canceledAt !== null) return 'canceled';
  return facts.expiredAt === null ? 'pending' : 'expired';
}

/** The sum of disputes that are open or lost. */
export function disputedAmount({ disputes }: Pick<PaymentFacts, 'disputes'>): bigint {
  return disputes.reduce(
    (sum, { amount, disputedAt, wonAt }) => (disputedAt !== null && wonAt === null ? sum + amount : sum),
    0n,
  );
}

/** The credits that the payment is worth now, rounded down. */
export function netCredits(facts: PaymentFacts): bigint {
  if (facts.paidAt === null) return 0n;
  const returnedAmount = facts.refundedAmount + disputedAmount(facts);
  const remainingAmount = returnedAmount < facts.amount ? facts.amount - returnedAmount : 0n;
  return (facts.credits * remainingAmount) / facts.amount;
}

/**
 * The time of the first dispute, and the time when the last dispute was won; the latter is null
 * while any dispute is open or lost.
 */
export function disputeTimes({ disputes }: Pick<PaymentFacts, 'disputes'>): {
  disputedAt: Date | null;
  wonAt: Date | null;
} {
  const toMs = (dates: readonly (Date | null)[]): number[] =>
    dates.flatMap((date) => (date === null ? [] : [date.getTime()]));
  const disputedMs = toMs(disputes.map(({ disputedAt }) => disputedAt));
  const wonMs = toMs(disputes.map(({ wonAt }) => wonAt));
  const isAllWon = wonMs.length > 0 && disputes.every(({ wonAt }) => wonAt !== null);
  return {
    disputedAt: disputedMs.length > 0 ? new Date(Math.min(...disputedMs)) : null,
    wonAt: isAllWon ? new Date(Math.max(...wonMs)) : null,
  };
}
