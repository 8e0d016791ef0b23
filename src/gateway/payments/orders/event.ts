// Provider events in a common form, and the check that an event agrees with the payment order.
import type { PaymentOrder, ProviderId } from './order.ts';

/** The fact that an event reports; amounts are in minor units. */
export type Fact =
  | { kind: 'paid' | 'expired' | 'failed' | 'canceled' }
  /** The total of all refunds so far, not of this event alone. */
  | { kind: 'refunded'; amount: bigint }
  | { kind: 'disputed' | 'dispute_won'; disputeId: string; amount: bigint };

export interface ProviderEvent {
  provider: ProviderId;
  eventId: string;
  type: string;
  /** Time of the event at the provider. */
  at: Date;
  isLive: boolean;
  /** The provider's checkout; null in an event that names only the charge. */
  checkoutId: string | null;
  /** The provider's ID of the payment, such as Stripe's payment intent. */
  reference: string | null;
  /**
   * The gateway's payment ID, as the provider returns it: once for each member of the checkout in
   * which the gateway sent it. The name is part of the parked events in the database.
   */
  echoes: readonly string[];
  /** The amount of the whole payment; null where the event does not contain it. */
  amount: bigint | null;
  currency: string | null;
  product: string | null;
  /** Null when the type is known but the content cannot be read: the event is quarantined. */
  fact: Fact | null;
}

export type Mismatch = 'amount' | 'currency' | 'product' | 'mode' | 'reference' | 'payment_id' | 'unreadable';

/** What does not agree between event and order: the first mismatch, or null. */
export function findMismatch(event: ProviderEvent, order: PaymentOrder): Mismatch | null {
  if (event.fact === null) return 'unreadable';
  if (event.echoes.some((echo) => echo !== order.paymentId)) return 'payment_id';
  if (order.isLive !== null && event.isLive !== order.isLive) return 'mode';
  if (order.reference !== null && event.reference !== null && event.reference !== order.reference)
    return 'reference';
  if (event.currency !== null && event.currency !== order.currency) return 'currency';
  if (event.amount !== null && event.amount !== order.amount) return 'amount';
  if (order.product !== null && event.product !== null && event.product !== order.product) return 'product';
  // A payment is only applied if both its amount and its currency could be compared.
  if (event.fact.kind === 'paid' && (event.amount === null || event.currency === null)) return 'unreadable';
  if (event.fact.kind === 'refunded' && event.fact.amount > order.amount) return 'amount';
  return null;
}

/** Events with the same key report the same fact about a payment. */
export function factKey(fact: Fact): string {
  if (fact.kind === 'refunded') return `refunded ${fact.amount}`;
  if (fact.kind === 'disputed' || fact.kind === 'dispute_won')
    return `${fact.kind} ${fact.disputeId} ${fact.amount}`;
  return fact.kind;
}

/** Serializes the event for the database, which keeps every event and replays parked ones. */
export function serializeEvent(event: ProviderEvent): Record<string, unknown> {
  return JSON.parse(
    JSON.stringify(event, (_name, value: unknown) => (typeof value === 'bigint' ? String(value) : value)),
  ) as Record<string, unknown>;
}

/** A fact as JSON, in which its amount is a decimal string. */
type StoredFact = Fact & { amount?: string };

export function parseStoredEvent(storedEvent: Record<string, unknown>): ProviderEvent {
  const event = storedEvent as unknown as Omit<ProviderEvent, 'at' | 'amount' | 'fact'> & {
    at: string;
    amount: string | null;
    fact: StoredFact | null;
  };
  return {
    ...event,
    at: new Date(event.at),
    amount: event.amount === null ? null : BigInt(event.amount),
    fact: event.fact === null ? null : parseStoredFact(event.fact),
  };
}

function parseStoredFact(storedFact: StoredFact): Fact {
  const { amount, ...fact } = storedFact;
  return (amount === undefined ? fact : { ...fact, amount: BigInt(amount) }) as Fact;
}
