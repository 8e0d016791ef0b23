// Shared by the fault scripts of payments: gateways on one PostgreSQL and doubles of both
// providers.
import { randomBytes } from 'node:crypto';
import { createGatewayClient, type GatewayClient } from '@townhall/gateway';
import type { CreemDouble, CreemEvent } from '../support/creem.ts';
import type { StripeDouble, StripeEvent } from '../support/stripe.ts';

export const masterKey = randomBytes(32).toString('base64');

export function gatewayEnv(
  url: string,
  doubles: { stripe: StripeDouble; creem: CreemDouble },
): Record<string, string> {
  return {
    HOST: '127.0.0.1',
    PORT: '0',
    LOG_LEVEL: 'silent',
    DATABASE_URL: url,
    TOWNHALL_MASTER_KEY: masterKey,
    TOWNHALL_CITY_BASE_URL: 'https://city.example.test',
    RATE_LIMIT_GUEST: 'off',
    RATE_LIMIT_USER: 'off',
    CREDITS_PER_UNIT: '1000000',
    STARTING_CREDITS: '0',
    ...doubles.stripe.env,
    ...doubles.creem.env,
  };
}

export interface Sold {
  paymentId: string;
  credits: number;
  method: 'stripe' | 'creem';
  event: StripeEvent | CreemEvent;
}

/** Makes a payment at the provider; its event is not delivered yet. */
export async function sell(
  client: GatewayClient,
  method: 'stripe' | 'creem',
  doubles: { stripe: StripeDouble; creem: CreemDouble },
): Promise<Sold> {
  const checkout = await client.payments.createCheckout({ method, amount: 1_000 });
  const event = doubles[method].pay(checkout.checkout_url?.split('/').at(-1) ?? '');
  return { paymentId: checkout.payment_id, credits: checkout.credits, method, event };
}

/** Delivers an event; returns the status and the outcome, status 0 without an answer. */
export async function deliver(
  url: string,
  { method, event }: Pick<Sold, 'method' | 'event'>,
  doubles: { stripe: StripeDouble; creem: CreemDouble },
): Promise<{ status: number; outcome: string }> {
  const { body, signature } =
    method === 'stripe' ? doubles.stripe.sign(event as StripeEvent) : doubles.creem.sign(event as CreemEvent);
  try {
    const answer = await fetch(`${url}/v1/payments/webhook/${method}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', [`${method}-signature`]: signature },
      body,
      signal: AbortSignal.timeout(15_000),
    });
    const read = (await answer.json()) as { outcome?: string; error?: { code: string } };
    return { status: answer.status, outcome: read.outcome ?? read.error?.code ?? '' };
  } catch {
    return { status: 0, outcome: 'no answer' };
  }
}

export function clientOf(url: string, token: string): GatewayClient {
  return createGatewayClient({ baseUrl: url, token });
}
