// What a payment provider is to the rest: a page to pay on, a look at it, and events. Its keys are looked up for
// every use, so that an operator's change needs no restart.
import type { Requirement } from '../../service.ts';
import type { ProviderEvent } from '../event.ts';
import type { Checkout, ProviderId } from '../order.ts';
import type { Tariff } from '../price.ts';

/** Declared keys as they are now. */
export interface EnvReader {
  get(key: string): string | undefined;
}

/** What a page is made for. */
export interface CheckoutRequest {
  paymentId: string;
  amount: bigint;
  currency: string;
  /** For the person, such as `10,000,000 credits`. */
  title: string;
  successUrl: string;
  cancelUrl: string;
}

/** An event as it was delivered. */
export interface WebhookDelivery {
  body: Uint8Array;
  signature: string | undefined;
  now: Date;
}

export interface PaymentProvider {
  id: ProviderId;
  label: string;
  env: readonly Requirement[];
  /** Whether the keys for taking payments and for believing events are all there. */
  isConfigured(): boolean;
  /** What it charges, for the bounds in credits; null when it cannot take payments now. */
  tariff(bounds: { minimumCredits: bigint; maximumCredits: bigint }): Promise<Tariff | null>;
  /** The product that an order is for; null where the provider needs none. */
  productId(): string | null;
  /** Throws 502 or 504 when the provider did not make it, and 422 when the amount is not one that it takes. */
  createCheckout(request: CheckoutRequest): Promise<Checkout>;
  /** What the page itself says by now, as an event; null when nothing has happened yet. */
  poll(checkoutId: string, now: Date): Promise<ProviderEvent | null>;
  /** Null for an event that says nothing of a payment. Throws 400 when it is not signed, or is no event at all. */
  parseWebhook(delivery: WebhookDelivery): ProviderEvent | null;
}

/** A key's value; undefined where it is absent or empty. */
export function readKey(env: EnvReader, key: string): string | undefined {
  const value = env.get(key)?.trim();
  return value === '' ? undefined : value;
}
