// An event of any provider, as far as it concerns a payment, and what in it must agree with the payment that we made.
import type { PaymentOrder, ProviderId } from './order.ts';

/** One thing that an event says; amounts in the smallest unit of the currency. */
export type Fact =
  | { kind: 'paid' | 'expired' | 'failed' | 'canceled' }
  /** In all, not by this event alone. */
  | { kind: 'refunded'; amount: bigint }
  | { kind: 'disputed' | 'dispute_won'; disputeId: string; amount: bigint };

export interface ProviderEvent {
  provider: ProviderId;
  eventId: string;
  type: string;
  /** When it happened. */
  at: Date;
  isLive: boolean;
  /** The provider's page; null in an event that knows only the payment. */
  checkoutId: string | null;
  /** The provider's own name for the payment. */
  reference: string | null;
  /** What comes back of the ids that we sent along. */
  echoes: readonly string[];
  /** What it says of the whole payment; null where it says nothing. */
  amount: bigint | null;
  currency: string | null;
  product: string | null;
  /** Null when the event is of a known kind and cannot be read. */
  fact: Fact | null;
}

export type Mismatch = 'amount' | 'currency' | 'product' | 'mode' | 'reference' | 'payment_id' | 'unreadable';

/** What does not agree; null when all does. */
export function findMismatch(event: ProviderEvent, order: PaymentOrder): Mismatch | null {
  if (event.fact === null) return 'unreadable';
  if (event.echoes.some((echo) => echo !== order.paymentId)) return 'payment_id';
  if (order.isLive !== null && event.isLive !== order.isLive) return 'mode';
  if (order.reference !== null && event.reference !== null && event.reference !== order.reference)
    return 'reference';
  if (event.currency !== null && event.currency !== order.currency) return 'currency';
  if (event.amount !== null && event.amount !== order.amount) return 'amount';
  if (order.product !== null && event.product !== null && event.product !== order.product) return 'product';
  // Money is believed only where it is said how much of which.
  if (event.fact.kind === 'paid' && (event.amount === null || event.currency === null)) return 'unreadable';
  if (event.fact.kind === 'refunded' && event.fact.amount > order.amount) return 'amount';
  return null;
}

/** Two events with the same key say the same thing of a payment. */
export function factKey(fact: Fact): string {
  if (fact.kind === 'refunded') return `refunded ${fact.amount}`;
  if (fact.kind === 'disputed' || fact.kind === 'dispute_won')
    return `${fact.kind} ${fact.disputeId} ${fact.amount}`;
  return fact.kind;
}

/** As JSON, for an event whose payment is not known yet. */
export function serializeEvent(event: ProviderEvent): Record<string, unknown> {
  return JSON.parse(
    JSON.stringify(event, (_name, value: unknown) => (typeof value === 'bigint' ? String(value) : value)),
  ) as Record<string, unknown>;
}

export function parseStoredEvent(packed: Record<string, unknown>): ProviderEvent {
  const event = packed as unknown as Omit<ProviderEvent, 'at' | 'amount' | 'fact'> & {
    at: string;
    amount: string | null;
    fact: (Fact & { amount?: string }) | null;
  };
  const fact =
    event.fact === null
      ? null
      : ({
          ...event.fact,
          ...(event.fact.amount === undefined ? {} : { amount: BigInt(event.fact.amount) }),
        } as Fact);
  return {
    ...event,
    at: new Date(event.at),
    amount: event.amount === null ? null : BigInt(event.amount),
    fact,
  };
}
