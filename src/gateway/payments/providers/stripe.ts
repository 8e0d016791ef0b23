// Stripe, and the only file that knows its package. A payment is a Checkout Session of one line; what the money does
// later is told by its charge and its disputes, which know the payment intent alone.
import type Stripe from 'stripe';
import { Problem } from '../../../kernel/problem.ts';
import { parseCurrency, minorUnits } from '../currency.ts';
import type { Fact, ProviderEvent } from '../event.ts';
import {
  readAmount,
  readCurrency,
  readId,
  readObject,
  type JsonObject,
  parseEvent,
  readText,
  readTime,
  invalidSignature,
  readUrl,
} from './json.ts';
import { parseCreditsPerUnit, computeTariff } from '../price.ts';
import { verifyStripeSignature } from './signature.ts';
import { readKey, type CheckoutRequest, type EnvReader, type PaymentProvider } from './provider.ts';

export interface StripeNeeds {
  env: EnvReader;
  fetch: typeof globalThis.fetch;
  deadlineMs?: number;
}

// Eight digits are the most that Stripe takes in any currency.
const mostAmount = 99_999_999n;
const defaultBaseUrl = 'https://api.stripe.com';

export function stripeProvider({ env, fetch, deadlineMs = 15_000 }: StripeNeeds): PaymentProvider {
  let current: { of: string; client: Promise<Stripe> } | undefined;

  const key = (name: string): string | undefined => readKey(env, name);
  const currency = (): string | null => parseCurrency(key('STRIPE_CURRENCY') ?? 'usd');
  const secrets = (): string[] =>
    [key('STRIPE_WEBHOOK_SECRET'), key('STRIPE_WEBHOOK_SECRET_PREVIOUS')].filter(
      (secret) => secret !== undefined,
    );
  const isConfigured = (): boolean =>
    key('STRIPE_SECRET_KEY') !== undefined && key('STRIPE_WEBHOOK_SECRET') !== undefined;

  function client(): Promise<Stripe> {
    const secretKey = key('STRIPE_SECRET_KEY') ?? '';
    const baseUrl = key('STRIPE_BASE_URL') ?? defaultBaseUrl;
    const of = `${secretKey}\n${baseUrl}`;
    // Loaded when it is first needed: most servers take no payments, and all of them start.
    if (current?.of !== of) current = { of, client: makeClient(secretKey, baseUrl) };
    return current.client;
  }

  async function makeClient(secretKey: string, baseUrl: string): Promise<Stripe> {
    const { default: Client } = await import('stripe');
    const { hostname, port, protocol } = new URL(baseUrl);
    return new Client(secretKey, {
      host: hostname,
      ...(port === '' ? {} : { port }),
      protocol: protocol === 'http:' ? 'http' : 'https',
      httpClient: Client.createFetchHttpClient(fetch),
      timeout: deadlineMs,
      // With the payment's id as the key of the request, a second try cannot make a second page.
      maxNetworkRetries: 1,
      telemetry: false,
    });
  }

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
      return computeTariff({
        currency: code,
        units: minorUnits(code),
        creditsPerUnit,
        mostAmount,
        ...bounds,
      });
    },
    async createCheckout(request) {
      try {
        const session = await (
          await client()
        ).checkout.sessions.create(sessionOf(request), { idempotencyKey: request.paymentId });
        const [checkoutId, checkoutUrl] = [readText(session.id), readUrl(session.url)];
        if (checkoutId === null || checkoutUrl === null)
          throw new Error('Stripe made a checkout without an address.');
        return { checkoutId, checkoutUrl, isLive: session.livemode };
      } catch (error) {
        throw explainError(error);
      }
    },
    async poll(checkoutId, now) {
      try {
        const session = await (await client()).checkout.sessions.retrieve(checkoutId);
        const type = session.status === 'expired' ? 'checkout.session.expired' : 'checkout.session.completed';
        if (session.status === 'open') return null;
        const event = {
          id: `look ${checkoutId} ${type}`,
          type,
          created: Math.floor(now.getTime() / 1000),
          livemode: session.livemode,
        };
        return readEvent(event, session as unknown as JsonObject);
      } catch (error) {
        throw explainError(error);
      }
    },
    parseWebhook({ body, signature, now }) {
      if (!verifyStripeSignature(body, signature, { secrets: secrets(), now })) throw invalidSignature();
      const event = parseEvent(body);
      return readEvent(event, readObject(readObject(event['data'])['object']));
    },
  };
}

const requirements = [
  { key: 'STRIPE_SECRET_KEY', description: 'Stripe: the secret key that makes checkouts.', required: false },
  {
    key: 'STRIPE_WEBHOOK_SECRET',
    description: 'Stripe: the signing secret of the webhook endpoint; without it Stripe is off.',
    required: false,
  },
  {
    key: 'STRIPE_WEBHOOK_SECRET_PREVIOUS',
    description: 'Stripe: the signing secret before, while it is being replaced.',
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
    description: 'Stripe: another address of its API.',
    required: false,
    secret: false,
  },
] as const;

function sessionOf({
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
    // What is charged is what we asked for, in the currency in which we asked.
    adaptive_pricing: { enabled: false },
    success_url: successUrl,
    cancel_url: cancelUrl,
  };
}

function readEvent(event: JsonObject, object: JsonObject): ProviderEvent | null {
  const type = readText(event['type']) ?? '';
  const at = readTime(event['created'], 1_000);
  const metadata = readObject(object['metadata']);
  const isSession = type.startsWith('checkout.session.');
  // Subscriptions and set-ups of the same account are somebody else's.
  if (isSession && object['mode'] !== 'payment') return null;
  const fact = factOf(type, object);
  if (fact === 'nothing') return null;
  return {
    provider: 'stripe',
    eventId: readText(event['id']) ?? '',
    type,
    at: at ?? new Date(0),
    isLive: event['livemode'] === true,
    checkoutId: isSession ? readText(object['id']) : null,
    reference: type.startsWith('payment_intent.') ? readText(object['id']) : readId(object['payment_intent']),
    echoes: [object['client_reference_id'], metadata['payment_id']].flatMap((echo) => readText(echo) ?? []),
    amount: isSession
      ? readAmount(object['amount_total'])
      : type.startsWith('charge.dispute.')
        ? null
        : readAmount(object['amount']),
    currency: readCurrency(object['currency']),
    product: null,
    fact: at === null ? null : fact,
  };
}

function factOf(type: string, object: JsonObject): Fact | null | 'nothing' {
  switch (type) {
    case 'checkout.session.completed':
      // The money of a slow method comes later, with an event of its own.
      return object['payment_status'] === 'unpaid' ? 'nothing' : { kind: 'paid' };
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
      return disputeOf(type, object);
    default:
      return 'nothing';
  }
}

function disputeOf(type: string, object: JsonObject): Fact | null | 'nothing' {
  const [disputeId, amount, status] = [
    readText(object['id']),
    readAmount(object['amount']),
    readText(object['status']) ?? '',
  ];
  // An inquiry moves no money.
  if (status.startsWith('warning_')) return 'nothing';
  if (disputeId === null || amount === null) return null;
  const isWon =
    type === 'charge.dispute.funds_reinstated' || (type === 'charge.dispute.closed' && status === 'won');
  return { kind: isWon ? 'dispute_won' : 'disputed', disputeId, amount };
}

/** What the package throws, in our words; its messages may quote what we sent. */
function explainError(error: unknown): Problem {
  const { type, code, statusCode } = readObject(error);
  if (error instanceof Problem) return error;
  if (type === 'StripeAuthenticationError' || type === 'StripePermissionError') {
    return new Problem(
      'upstream_failed',
      'provider_credentials',
      'Stripe refused the key that is configured for it.',
      { cause: error },
    );
  }
  if (code === 'amount_too_small' || code === 'amount_too_large') {
    return new Problem('impossible', 'amount_not_payable', 'Stripe does not take this amount.', {
      cause: error,
      param: 'amount',
    });
  }
  const cause = readObject(readObject(error)['detail']);
  if (code === 'ETIMEDOUT' || cause['code'] === 'ETIMEDOUT')
    return new Problem('upstream_timeout', 'upstream_timeout', 'Stripe was too slow.', { cause: error });
  return new Problem(
    'upstream_failed',
    'upstream_failed',
    `Stripe could not be reached or did not do it${typeof statusCode === 'number' ? ` (${statusCode})` : ''}.`,
    { cause: error },
  );
}
