// Shared by the fault scripts of payments: gateways on one PostgreSQL and doubles of both
// providers.
import { randomBytes } from 'node:crypto';
import { createGatewayClient, type GatewayClient } from '@townhall/gateway';
import { startCreem, type CreemDouble, type CreemEvent } from '../support/creem.ts';
import { startStripe, type StripeDouble, type StripeEvent } from '../support/stripe.ts';

export interface ProviderDoubles {
  stripe: StripeDouble;
  creem: CreemDouble;
}

const masterKey = randomBytes(32).toString('base64');

export function gatewayEnv(url: string, doubles: ProviderDoubles): Record<string, string> {
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

export async function startProviderDoubles(): Promise<ProviderDoubles> {
  return { stripe: await startStripe(), creem: await startCreem() };
}

export async function closeProviderDoubles({ stripe, creem }: ProviderDoubles): Promise<void> {
  await Promise.all([stripe.close(), creem.close()]);
}

/** A paid checkout. */
export interface Sale {
  paymentId: string;
  credits: number;
  method: 'stripe' | 'creem';
  event: StripeEvent | CreemEvent;
}

/** Creates a checkout and pays it at the provider. The event is not delivered. */
export async function sell(
  client: GatewayClient,
  method: 'stripe' | 'creem',
  doubles: ProviderDoubles,
): Promise<Sale> {
  const checkout = await client.payments.createCheckout({ method, amount: 1_000 });
  const event = doubles[method].pay(checkout.checkout_url?.split('/').at(-1) ?? '');
  return { paymentId: checkout.payment_id, credits: checkout.credits, method, event };
}

/** Delivers an event; returns the status and the outcome, status 0 without an answer. */
export async function deliver(
  url: string,
  { method, event }: Pick<Sale, 'method' | 'event'>,
  doubles: ProviderDoubles,
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
    const { outcome, error } = (await answer.json()) as { outcome?: string; error?: { code: string } };
    return { status: answer.status, outcome: outcome ?? error?.code ?? '' };
  } catch {
    return { status: 0, outcome: 'no answer' };
  }
}

export function clientOf(url: string, token: string): GatewayClient {
  return createGatewayClient({ baseUrl: url, token });
}
