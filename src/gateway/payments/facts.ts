// What is known of a payment, and what follows from it. Facts only ever grow, whatever the order in which a provider
// tells of them; state and credits are computed from all of them each time. So every order of events ends alike.

export interface Dispute {
  /** What it takes back, in the smallest unit of the currency. */
  amount: bigint;
  disputedAt: Date | null;
  wonAt: Date | null;
}

/** The facts of one payment; amounts in the smallest unit of the currency. */
export interface PaymentFacts {
  amount: bigint;
  /** What the whole amount buys. */
  credits: bigint;
  paidAt: Date | null;
  expiredAt: Date | null;
  failedAt: Date | null;
  canceledAt: Date | null;
  /** The most that was ever said to be refunded. */
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
  // Money that came is there, however late: an expired payment may still be paid.
  if (facts.paidAt !== null) {
    if (disputedAmount(facts) > 0n) return 'disputed';
    if (facts.refundedAmount >= facts.amount) return 'refunded';
    return facts.refundedAmount > 0n ? 'partially_refunded' : 'paid';
  }
  if (facts.failedAt !== null) return 'failed';
  if (facts.canceledAt !== null) return 'canceled';
  return facts.expiredAt === null ? 'pending' : 'expired';
}

/** What disputes that are open or lost take back. */
export function disputedAmount({ disputes }: Pick<PaymentFacts, 'disputes'>): bigint {
  return disputes.reduce(
    (sum, { amount, disputedAt, wonAt }) => (disputedAt !== null && wonAt === null ? sum + amount : sum),
    0n,
  );
}

/** The credits that the payment should have brought by now, rounded down. */
export function netCredits(facts: PaymentFacts): bigint {
  if (facts.paidAt === null) return 0n;
  const gone = facts.refundedAmount + disputedAmount(facts);
  const left = gone < facts.amount ? facts.amount - gone : 0n;
  return (facts.credits * left) / facts.amount;
}

/** When the first dispute came, and when the last was won: null while one is open or lost. */
export function disputeTimes({ disputes }: Pick<PaymentFacts, 'disputes'>): {
  disputedAt: Date | null;
  wonAt: Date | null;
} {
  const times = (of: readonly (Date | null)[]): number[] =>
    of.flatMap((at) => (at === null ? [] : [at.getTime()]));
  const opened = times(disputes.map(({ disputedAt }) => disputedAt));
  const won = times(disputes.map(({ wonAt }) => wonAt));
  const isAllWon = won.length > 0 && disputes.every(({ wonAt }) => wonAt !== null);
  return {
    disputedAt: opened.length > 0 ? new Date(Math.min(...opened)) : null,
    wonAt: isAllWon ? new Date(Math.max(...won)) : null,
  };
}
