// Creem, a merchant of record. It sells whole pieces of one product, whose price and currency come
// from Creem's API. If CREEM_CURRENCY names another currency, the provider is off.
import { maxBigInt } from '../../../kernel/bigint.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
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
import { verifyCreemSignature } from './signature.ts';
import { readKey, readWebhookSecrets, type EnvReader, type PaymentProvider } from './provider.ts';

interface Product {
  amount: bigint;
  currency: string;
}

// A stale price does no harm: each payment event is checked against the amount of its order.
const productTtlMs = 300_000;
const failureTtlMs = 15_000;
// Creem's API reference names no maximum. With Stripe's, both providers offer the same largest payment.
const maxAmount = 99_999_999n;

interface CreemOptions {
  env: EnvReader;
  fetch: typeof globalThis.fetch;
  clock: Pick<Clock, 'monotonicMs'>;
  log: Log;
  timeoutMs?: number;
}

export function creemProvider({ env, fetch, clock, log, timeoutMs = 15_000 }: CreemOptions): PaymentProvider {
  const setting = (name: string): string | undefined => readKey(env, name);
  const isConfigured = (): boolean =>
    ['CREEM_API_KEY', 'CREEM_PRODUCT_ID', 'CREEM_WEBHOOK_SECRET'].every(
      (name) => setting(name) !== undefined,
    );
  const request = createApi({ env, fetch, timeoutMs });
  const findProduct = createProductCache({ env, request, clock, log });
  const currentProduct = async (): Promise<Product | null> => (isConfigured() ? findProduct() : null);

  return {
    id: 'creem',
    label: 'Card, through Creem',
    env: requirements,
    isConfigured,
    productId: () => setting('CREEM_PRODUCT_ID') ?? null,
    async tariff(bounds) {
      const product = await currentProduct();
      const creditsPerUnit = product && parseCreditsPerUnit(env.get('CREDITS_PER_UNIT'), product.currency);
      if (!product || !creditsPerUnit) return null;
      const { currency, amount: pieceAmount } = product;
      const units = minorUnits(currency);
      return computeTariff({ currency, units, creditsPerUnit, pieceAmount, maxAmount, ...bounds });
    },
    async createCheckout({ paymentId, amount, successUrl }) {
      return createCheckout(request, {
        product_id: setting('CREEM_PRODUCT_ID'),
        request_id: paymentId,
        units: countPieces(amount, await currentProduct()),
        success_url: successUrl,
        metadata: { payment_id: paymentId },
      });
    },
    async poll(checkoutId, now) {
      const checkout = await request(`/v1/checkouts?checkout_id=${encodeURIComponent(checkoutId)}`);
      const status = readText(checkout['status']) ?? '';
      if (status !== 'completed' && status !== 'expired') return null;
      // All polls that find the same state share an event ID, so only the first of them is applied.
      // Do not change the format: earlier releases have stored events with such IDs.
      const id = `look ${checkoutId} ${status}`;
      return readEvent({ id, eventType: `checkout.${status}`, created_at: now.getTime() }, checkout);
    },
    parseWebhook({ body, signature }) {
      if (!verifyCreemSignature(body, signature, { secrets: readWebhookSecrets(env, 'CREEM') }))
        throw invalidSignature();
      const event = parseEvent(body);
      return readEvent(event, asRecord(event['object']));
    },
  };
}

/** Throws 502 unless the product can be sold and the amount buys whole pieces of it. */
function countPieces(amount: bigint, product: Product | null): number {
  if (product !== null && amount % product.amount === 0n) return Number(amount / product.amount);
  throw new Problem('upstream_failed', 'upstream_failed', 'Creem cannot sell this amount at the moment.');
}

async function createCheckout(request: CreemRequest, body: object): Promise<Checkout> {
  const checkout = await request('/v1/checkouts', body);
  const checkoutId = readText(checkout['id']);
  const checkoutUrl = readUrl(checkout['checkout_url']);
  if (checkoutId === null || checkoutUrl === null)
    throw new Problem('upstream_failed', 'upstream_failed', 'Creem created a checkout without an address.');
  return { checkoutId, checkoutUrl, isLive: checkout['mode'] === 'prod' };
}

type CreemRequest = (path: string, body?: object) => Promise<JsonRecord>;

/** Sends a request to Creem's API. Throws 502 or 504. */
function createApi({
  env,
  fetch,
  timeoutMs,
}: Pick<CreemOptions, 'env' | 'fetch'> & { timeoutMs: number }): CreemRequest {
  async function send(path: string, body: object | undefined): Promise<Response> {
    try {
      return await fetch(`${readBaseUrl(env)}${path}`, {
        method: body === undefined ? 'GET' : 'POST',
        headers: {
          'x-api-key': readKey(env, 'CREEM_API_KEY') ?? '',
          accept: 'application/json',
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        redirect: 'error',
        signal: AbortSignal.timeout(timeoutMs),
      });
    } catch (error) {
      throw explainError(error);
    }
  }

  return async (path, body) => {
    const response = await send(path, body);
    try {
      if (response.ok) return asRecord(await response.json());
      await response.body?.cancel();
    } catch (error) {
      throw explainError(error);
    }
    if (response.status === 401 || response.status === 403)
      throw new Problem('upstream_failed', 'provider_credentials', 'Creem refused the configured API key.');
    throw new Problem(
      'upstream_failed',
      'upstream_failed',
      `Creem refused the request (${response.status}).`,
    );
  };
}

function readBaseUrl(env: EnvReader): string {
  const isTest = readKey(env, 'CREEM_API_KEY')?.startsWith('creem_test_') ?? false;
  const baseUrl =
    readKey(env, 'CREEM_BASE_URL') ?? (isTest ? 'https://test-api.creem.io' : 'https://api.creem.io');
  return baseUrl.replace(/\/+$/, '');
}

function explainError(cause: unknown): Problem {
  const isTimeout = cause instanceof Error && cause.name === 'TimeoutError';
  return isTimeout
    ? new Problem('upstream_timeout', 'upstream_timeout', 'Creem did not answer in time.', { cause })
    : new Problem('upstream_failed', 'upstream_failed', 'Creem could not be reached.', { cause });
}

/** Caches the configured product. Null while it cannot be sold; the reason is in the log. */
function createProductCache({
  env,
  request,
  clock,
  log,
}: Pick<CreemOptions, 'env' | 'clock' | 'log'> & { request: CreemRequest }): () => Promise<Product | null> {
  let cachedProduct: { key: string; untilMs: number; product: Promise<Product | null> } | undefined;

  async function fetchProduct(productId: string): Promise<Product | null> {
    try {
      const product = await request(`/v1/products?product_id=${encodeURIComponent(productId)}`);
      const check = checkProduct(product, {
        productId,
        expectedCurrency: readKey(env, 'CREEM_CURRENCY'),
      });
      if (check.message === null) return { amount: check.amount, currency: check.currency };
      log.error(
        { alert: 'payments_product_unfit', provider: 'creem', productId, fault: check.message },
        `the product cannot be sold: ${check.message}`,
      );
    } catch (error) {
      log.warn({ err: error, provider: 'creem', productId }, 'the product could not be read');
    }
    return null;
  }

  return async () => {
    const productId = readKey(env, 'CREEM_PRODUCT_ID') ?? '';
    const settings = [readKey(env, 'CREEM_API_KEY'), readKey(env, 'CREEM_CURRENCY'), readBaseUrl(env)];
    const cacheKey = [productId, ...settings].join('\n');
    if (cachedProduct?.key !== cacheKey || clock.monotonicMs() >= cachedProduct.untilMs) {
      const entry = {
        key: cacheKey,
        untilMs: clock.monotonicMs() + productTtlMs,
        product: fetchProduct(productId),
      };
      cachedProduct = entry;
      if ((await entry.product) === null) entry.untilMs = clock.monotonicMs() + failureTtlMs;
    }
    return cachedProduct.product;
  };
}

/** Why the product cannot be sold; if it can, the message is null, and the price is returned. */
function checkProduct(
  product: JsonRecord,
  { productId, expectedCurrency }: { productId: string; expectedCurrency: string | undefined },
): { message: string } | ({ message: null } & Product) {
  const amount = readAmount(product['price']);
  const currency = parseCurrency(readText(product['currency']) ?? '');
  if (readText(product['id']) !== productId) return { message: 'Creem has answered with another product' };
  if (amount === null || amount === 0n || currency === null) return { message: 'it has no price' };
  if (product['billing_type'] !== 'onetime') return { message: 'it is not a one-time purchase' };
  if (product['tax_mode'] !== 'inclusive') return { message: 'its price does not include tax' };
  if ((product['status'] ?? 'active') !== 'active') return { message: 'it is not active' };
  const expected = parseCurrency(expectedCurrency ?? currency);
  if (expected !== currency)
    return { message: `its currency is ${currency}, but CREEM_CURRENCY is ${expected}` };
  return { message: null, amount, currency };
}

const requirements = [
  { key: 'CREEM_API_KEY', description: 'Creem: the key that creates checkouts.', required: false },
  {
    key: 'CREEM_PRODUCT_ID',
    description: 'Creem: the product that is sold; a one-time purchase whose price includes tax.',
    required: false,
    secret: false,
  },
  {
    key: 'CREEM_CURRENCY',
    description:
      'Creem: the expected currency of the product; Creem is off if the product has another currency.',
    required: false,
    secret: false,
  },
  {
    key: 'CREEM_WEBHOOK_SECRET',
    description: 'Creem: the signing secret of the webhook; without it Creem is off.',
    required: false,
  },
  {
    key: 'CREEM_WEBHOOK_SECRET_PREVIOUS',
    description: 'Creem: the previous signing secret, while it is being replaced.',
    required: false,
  },
  {
    key: 'CREEM_BASE_URL',
    description: 'Creem: the address of its API, if not the usual one.',
    required: false,
    secret: false,
  },
] as const;

function readEvent(event: JsonRecord, object: JsonRecord): ProviderEvent | null {
  const type = readText(event['eventType']) ?? '';
  const isCheckout = type.startsWith('checkout.');
  const fact = readFact(type, object);
  if (fact === 'irrelevant') return null;
  const checkout = isCheckout ? object : asRecord(object['checkout']);
  const order = asRecord(object['order']);
  const time = readTime(event['created_at'], { unitMs: 1 });
  const isPaid = fact?.kind === 'paid';
  return {
    provider: 'creem',
    eventId: readText(event['id']) ?? '',
    type,
    // When the time is missing, the fact is null, and this placeholder is not used.
    at: time ?? new Date(0),
    isLive: object['mode'] === 'prod',
    checkoutId: isCheckout ? readText(object['id']) : readId(object['checkout']),
    reference: readId(object['order']) ?? readId(asRecord(object['transaction'])['order']),
    echoes: [checkout['request_id'], asRecord(checkout['metadata'])['payment_id']].flatMap(
      (echo) => readText(echo) ?? [],
    ),
    amount: isPaid ? (readAmount(order['amount_paid']) ?? readAmount(order['amount'])) : null,
    currency: isPaid
      ? readCurrency(order['currency'])
      : readCurrency(object['refund_currency'] ?? object['currency']),
    product: isPaid ? (readId(order['product']) ?? readId(object['product'])) : null,
    fact: time === null ? null : fact,
  };
}

function readFact(type: string, object: JsonRecord): Fact | null | 'irrelevant' {
  switch (type) {
    case 'checkout.completed':
      return asRecord(object['order'])['status'] === 'paid' ? { kind: 'paid' } : 'irrelevant';
    case 'checkout.expired':
      return { kind: 'expired' };
    case 'refund.created': {
      if (readText(object['status']) !== 'succeeded') return 'irrelevant';
      // The transaction has the total of all refunds; the event itself has only its own amount.
      const amounts = [
        readAmount(asRecord(object['transaction'])['refunded_amount']),
        readAmount(object['refund_amount']),
      ].filter((amount) => amount !== null);
      return amounts.length === 0
        ? null
        : {
            kind: 'refunded',
            amount: amounts.reduce(maxBigInt),
          };
    }
    case 'dispute.created': {
      const disputeId = readText(object['id']);
      const amount = readAmount(object['amount']);
      return disputeId === null || amount === null ? null : { kind: 'disputed', disputeId, amount };
    }
    default:
      return 'irrelevant';
  }
}
