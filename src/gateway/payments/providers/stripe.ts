// Stripe. A payment is a Checkout Session with one line item. Refunds and disputes arrive later as
// events about the charge, which name the payment intent but not the session. No other file imports
// Stripe's package.
import type Stripe from 'stripe';
import { unixSeconds } from '../../../kernel/clock.ts';
import { asRecord, type JsonRecord } from '../../../kernel/json-value.ts';
import { Problem } from '../../../kernel/problem.ts';
import { parseCurrency, minorUnits } from '../orders/currency.ts';
import type { Fact, ProviderEvent } from '../orders/event.ts';
import type { Checkout } from '../orders/order.ts';
import {
  invalidSignature,
  parseEvent,
  readAmount,
  readCurrency,
  readId,
  readText,
  readTime,
  readUrl,
} from './json.ts';
import { parseCreditsPerUnit, computeTariff } from '../orders/price.ts';
import { verifyStripeSignature } from './signature.ts';
import {
  readKey,
  readWebhookSecrets,
  type CheckoutRequest,
  type EnvReader,
  type PaymentProvider,
} from './provider.ts';

// Stripe Checkout Sessions charge 99,999,999 minor units at most, in any currency.
const maxAmount = 99_999_999n;
const defaultBaseUrl = 'https://api.stripe.com';

export function stripeProvider({
  env,
  fetch,
  timeoutMs = 15_000,
}: {
  env: EnvReader;
  fetch: typeof globalThis.fetch;
  timeoutMs?: number;
}): PaymentProvider {
  const setting = (name: string): string | undefined => readKey(env, name);
  const currency = (): string | null => parseCurrency(setting('STRIPE_CURRENCY') ?? 'usd');
  const isConfigured = (): boolean =>
    setting('STRIPE_SECRET_KEY') !== undefined && setting('STRIPE_WEBHOOK_SECRET') !== undefined;
  const client = createClientCache({ env, fetch, timeoutMs });

  return {
    id: 'stripe',
    label: 'Card, through Stripe',
    env: requirements,
    isConfigured,
    productId: () => null,
    async tariff(bounds) {
      const code = currency();
      const creditsPerUnit = code && parseCreditsPerUnit(env.get('CREDITS_PER_UNIT'), code);
      if (!code || !creditsPerUnit || !isConfigured()) return null;
      return computeTariff({ currency: code, units: minorUnits(code), creditsPerUnit, maxAmount, ...bounds });
    },
    createCheckout: (request) => explainErrors(async () => createSession(await client(), request)),
    poll: (checkoutId, now) => explainErrors(async () => pollSession(await client(), checkoutId, now)),
    parseWebhook({ body, signature, now }) {
      if (!verifyStripeSignature(body, signature, { secrets: readWebhookSecrets(env, 'STRIPE'), now }))
        throw invalidSignature();
      const event = parseEvent(body);
      return readEvent(event, asRecord(asRecord(event['data'])['object']));
    },
  };
}

async function createSession({ checkout }: Stripe, request: CheckoutRequest): Promise<Checkout> {
  const session = await checkout.sessions.create(sessionParams(request), {
    idempotencyKey: request.paymentId,
  });
  const checkoutId = readText(session.id);
  const checkoutUrl = readUrl(session.url);
  if (checkoutId === null || checkoutUrl === null)
    throw new Error('Stripe created a checkout without an address.');
  return { checkoutId, checkoutUrl, isLive: session.livemode };
}

/** Null while the person has neither paid nor let the checkout expire. */
async function pollSession(
  { checkout }: Stripe,
  checkoutId: string,
  now: Date,
): Promise<ProviderEvent | null> {
  const session = await checkout.sessions.retrieve(checkoutId);
  if (session.status === 'open') return null;
  const type = session.status === 'expired' ? 'checkout.session.expired' : 'checkout.session.completed';
  const event = {
    // All polls that find the same state share an event ID, so only the first of them is applied.
    // Do not change the format: earlier releases have stored events with such IDs.
    id: `look ${checkoutId} ${type}`,
    type,
    created: unixSeconds(now),
    livemode: session.livemode,
  };
  return readEvent(event, asRecord(session));
}

/**
 * Returns a function that resolves with the SDK's client for the current keys, and creates a new
 * client when a key changes. The package is loaded by the first call, as most servers take no
 * payments.
 */
function createClientCache({
  env,
  fetch,
  timeoutMs,
}: {
  env: EnvReader;
  fetch: typeof globalThis.fetch;
  timeoutMs: number;
}): () => Promise<Stripe> {
  let cachedClient: { key: string; client: Promise<Stripe> } | undefined;

  async function createClient(secretKey: string, baseUrl: string): Promise<Stripe> {
    const { default: Client } = await import('stripe');
    const { hostname, port, protocol } = new URL(baseUrl);
    return new Client(secretKey, {
      host: hostname,
      ...(port === '' ? {} : { port }),
      protocol: protocol === 'http:' ? 'http' : 'https',
      httpClient: Client.createFetchHttpClient(fetch),
      timeout: timeoutMs,
      // The idempotency key is the payment ID, so a retry cannot create a second checkout.
      maxNetworkRetries: 1,
      telemetry: false,
    });
  }

  return () => {
    const secretKey = readKey(env, 'STRIPE_SECRET_KEY') ?? '';
    const baseUrl = readKey(env, 'STRIPE_BASE_URL') ?? defaultBaseUrl;
    const cacheKey = `${secretKey}\n${baseUrl}`;
    if (cachedClient?.key !== cacheKey)
      cachedClient = { key: cacheKey, client: createClient(secretKey, baseUrl) };
    return cachedClient.client;
  };
}

const requirements = [
  {
    key: 'STRIPE_SECRET_KEY',
    description: 'Stripe: the secret key that creates checkouts.',
    required: false,
  },
  {
    key: 'STRIPE_WEBHOOK_SECRET',
    description: 'Stripe: the signing secret of the webhook endpoint; without it Stripe is off.',
    required: false,
  },
  {
    key: 'STRIPE_WEBHOOK_SECRET_PREVIOUS',
    description: 'Stripe: the previous signing secret, while it is being replaced.',
    required: false,
  },
  {
    key: 'STRIPE_CURRENCY',
    description: 'Stripe: the currency of payments, such as eur; usd when absent.',
    required: false,
    secret: false,
  },
  {
    key: 'STRIPE_BASE_URL',
    description: 'Stripe: the address of its API, if not the usual one.',
    required: false,
    secret: false,
  },
] as const;

function sessionParams({
  paymentId,
  amount,
  currency,
  title,
  successUrl,
  cancelUrl,
}: CheckoutRequest): Stripe.Checkout.SessionCreateParams {
  return {
    mode: 'payment',
    client_reference_id: paymentId,
    metadata: { payment_id: paymentId },
    payment_intent_data: { metadata: { payment_id: paymentId } },
    line_items: [
      { quantity: 1, price_data: { currency, unit_amount: Number(amount), product_data: { name: title } } },
    ],
    // Charge the amount of the order in its own currency, without conversion.
    adaptive_pricing: { enabled: false },
    success_url: successUrl,
    cancel_url: cancelUrl,
  };
}

/** Null for an event that does not concern a payment of the gateway. */
function readEvent(event: JsonRecord, object: JsonRecord): ProviderEvent | null {
  const type = readText(event['type']) ?? '';
  const time = readTime(event['created'], { unitMs: 1_000 });
  const metadata = asRecord(object['metadata']);
  const isSession = type.startsWith('checkout.session.');
  // The account may also sell subscriptions; those sessions are not payments of the gateway.
  if (isSession && object['mode'] !== 'payment') return null;
  const fact = readFact(type, object);
  if (fact === 'irrelevant') return null;
  return {
    provider: 'stripe',
    eventId: readText(event['id']) ?? '',
    type,
    // When the time is missing, the fact is null, and this placeholder is not used.
    at: time ?? new Date(0),
    isLive: event['livemode'] === true,
    checkoutId: isSession ? readText(object['id']) : null,
    reference: type.startsWith('payment_intent.') ? readText(object['id']) : readId(object['payment_intent']),
    echoes: [object['client_reference_id'], metadata['payment_id']].flatMap((echo) => readText(echo) ?? []),
    amount: readPaymentAmount(type, object),
    currency: readCurrency(object['currency']),
    product: null,
    fact: time === null ? null : fact,
  };
}

/** The amount of the whole payment; null for a dispute, which names only the disputed amount. */
function readPaymentAmount(type: string, object: JsonRecord): bigint | null {
  if (type.startsWith('checkout.session.')) return readAmount(object['amount_total']);
  return type.startsWith('charge.dispute.') ? null : readAmount(object['amount']);
}

/** Null when the content cannot be read; the caller then quarantines the event for the operator. */
function readFact(type: string, object: JsonRecord): Fact | null | 'irrelevant' {
  switch (type) {
    case 'checkout.session.completed':
      // With a delayed payment method the money arrives later, with an async_payment event.
      return object['payment_status'] === 'unpaid' ? 'irrelevant' : { kind: 'paid' };
    case 'checkout.session.async_payment_succeeded':
      return { kind: 'paid' };
    case 'checkout.session.async_payment_failed':
      return { kind: 'failed' };
    case 'checkout.session.expired':
      return { kind: 'expired' };
    case 'payment_intent.canceled':
      return { kind: 'canceled' };
    case 'charge.refunded': {
      const amount = readAmount(object['amount_refunded']);
      return amount === null ? null : { kind: 'refunded', amount };
    }
    case 'charge.dispute.created':
    case 'charge.dispute.funds_withdrawn':
    case 'charge.dispute.funds_reinstated':
    case 'charge.dispute.closed':
      return readDispute(type, object);
    default:
      return 'irrelevant';
  }
}

function readDispute(type: string, object: JsonRecord): Fact | null | 'irrelevant' {
  const disputeId = readText(object['id']);
  const amount = readAmount(object['amount']);
  const status = readText(object['status']) ?? '';
  // An inquiry (warning_*) moves no money.
  if (status.startsWith('warning_')) return 'irrelevant';
  if (disputeId === null || amount === null) return null;
  const isWon =
    type === 'charge.dispute.funds_reinstated' || (type === 'charge.dispute.closed' && status === 'won');
  return { kind: isWon ? 'dispute_won' : 'disputed', disputeId, amount };
}

async function explainErrors<Result>(work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    throw explainError(error);
  }
}

/**
 * Maps errors of the SDK to Problems. SDK messages may quote the request, so only the log gets
 * them.
 */
function explainError(error: unknown): Problem {
  const { type, code, statusCode, detail } = asRecord(error);
  if (error instanceof Problem) return error;
  if (type === 'StripeAuthenticationError' || type === 'StripePermissionError') {
    return new Problem('upstream_failed', 'provider_credentials', 'Stripe refused the configured API key.', {
      cause: error,
    });
  }
  if (code === 'amount_too_small' || code === 'amount_too_large') {
    return new Problem('impossible', 'amount_not_payable', 'Stripe does not accept this amount.', {
      cause: error,
      param: 'amount',
    });
  }
  // A connection error of the SDK has the error of the network in `detail`.
  const networkError = asRecord(detail);
  if (code === 'ETIMEDOUT' || networkError['code'] === 'ETIMEDOUT')
    return new Problem('upstream_timeout', 'upstream_timeout', 'Stripe did not answer in time.', {
      cause: error,
    });
  const status = typeof statusCode === 'number' ? ` (${statusCode})` : '';
  const message = `Stripe could not be reached or refused the request${status}.`;
  return new Problem('upstream_failed', 'upstream_failed', message, { cause: error });
}
