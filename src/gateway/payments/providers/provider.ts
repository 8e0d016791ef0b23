// The interface of payment providers. Keys are read again for each request, so that a change needs
// no restart.
import type { Requirement } from '../../service.ts';
import type { ProviderEvent } from '../orders/event.ts';
import type { Checkout, ProviderId } from '../orders/order.ts';
import type { Tariff } from '../orders/price.ts';

/** Reads the current values of the keys that a provider declares in its `env`. */
export interface EnvReader {
  get(key: string): string | undefined;
}

export interface CheckoutRequest {
  paymentId: string;
  amount: bigint;
  currency: string;
  /** The title that the user sees, such as `10,000,000 credits, Example`. */
  title: string;
  successUrl: string;
  cancelUrl: string;
}

/** A webhook request. */
export interface WebhookDelivery {
  body: Uint8Array;
  signature: string | undefined;
  now: Date;
}

export interface PaymentProvider {
  id: ProviderId;
  label: string;
  env: readonly Requirement[];
  /** Whether the keys for checkouts and for webhook signatures are set. */
  isConfigured(): boolean;
  /** The tariff between the bounds in credits; null while the provider cannot take payments. */
  tariff(bounds: { minimumCredits: bigint; maximumCredits: bigint }): Promise<Tariff | null>;
  /** The provider's product that is sold; null where the provider needs none. */
  productId(): string | null;
  /** Throws 502 or 504 when the provider fails, and 422 when it does not accept the amount. */
  createCheckout(request: CheckoutRequest): Promise<Checkout>;
  /** The state of the checkout as an event; null while the payment is pending. */
  poll(checkoutId: string, now: Date): Promise<ProviderEvent | null>;
  /**
   * Null for an event that does not concern a payment. Throws 400 for a wrong signature or a malformed event.
   */
  parseWebhook(delivery: WebhookDelivery): ProviderEvent | null;
}

/** The signing secrets that a webhook may use: the current one and, during a rotation, the previous one. */
export function readWebhookSecrets(env: EnvReader, provider: 'STRIPE' | 'CREEM'): string[] {
  const key = `${provider}_WEBHOOK_SECRET`;
  return [readKey(env, key), readKey(env, `${key}_PREVIOUS`)].filter((secret) => secret !== undefined);
}

/** The value without surrounding spaces; undefined when absent or empty. */
export function readKey(env: EnvReader, key: string): string | undefined {
  const value = env.get(key)?.trim();
  return value === '' ? undefined : value;
}
