// Creem: a merchant of record, which sells one product of ours, in whole pieces. The product's price and currency are
// its own, so they are asked for; a currency that is not what the operator says it is turns the provider off.
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
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
import { verifyCreemSignature } from './signature.ts';
import { readKey, type EnvReader, type PaymentProvider } from './provider.ts';

export interface CreemNeeds {
  env: EnvReader;
  fetch: typeof globalThis.fetch;
  clock: Pick<Clock, 'monotonicMs'>;
  log: Log;
  deadlineMs?: number;
}

interface Product {
  amount: bigint;
  currency: string;
}

// A price may change at any time; an order is checked against what was charged in the end.
const productMs = 300_000;
const absenceMs = 15_000;
const mostAmount = 99_999_999n;

export function creemProvider({ env, fetch, clock, log, deadlineMs = 15_000 }: CreemNeeds): PaymentProvider {
  let known: { of: string; untilMs: number; product: Promise<Product | null> } | undefined;

  const key = (name: string): string | undefined => readKey(env, name);
  const secrets = (): string[] =>
    [key('CREEM_WEBHOOK_SECRET'), key('CREEM_WEBHOOK_SECRET_PREVIOUS')].filter(
      (secret) => secret !== undefined,
    );
  const isConfigured = (): boolean =>
    ['CREEM_API_KEY', 'CREEM_PRODUCT_ID', 'CREEM_WEBHOOK_SECRET'].every((name) => key(name) !== undefined);

  function baseUrl(): string {
    const own =
      key('CREEM_BASE_URL') ??
      (key('CREEM_API_KEY')?.startsWith('creem_test_')
        ? 'https://test-api.creem.io'
        : 'https://api.creem.io');
    return own.replace(/\/+$/, '');
  }

  async function ask(path: string, body?: object): Promise<JsonObject> {
    let answer: Response;
    try {
      answer = await fetch(`${baseUrl()}${path}`, {
        method: body === undefined ? 'GET' : 'POST',
        headers: {
          'x-api-key': key('CREEM_API_KEY') ?? '',
          accept: 'application/json',
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        redirect: 'error',
        signal: AbortSignal.timeout(deadlineMs),
      });
      if (answer.ok) return readObject(await answer.json());
      await answer.body?.cancel();
    } catch (cause) {
      const isSlow = cause instanceof Error && cause.name === 'TimeoutError';
      if (isSlow) throw new Problem('upstream_timeout', 'upstream_timeout', 'Creem was too slow.', { cause });
      throw new Problem('upstream_failed', 'upstream_failed', 'Creem could not be reached.', { cause });
    }
    if (answer.status === 401 || answer.status === 403)
      throw new Problem(
        'upstream_failed',
        'provider_credentials',
        'Creem refused the key that is configured for it.',
      );
    throw new Problem('upstream_failed', 'upstream_failed', `Creem did not do it (${answer.status}).`);
  }

  /** Null while it cannot be sold; the reason is in the log. */
  async function fetchProduct(productId: string): Promise<Product | null> {
    try {
      const found = await ask(`/v1/products?product_id=${encodeURIComponent(productId)}`);
      const [amount, currency] = [
        readAmount(found['price']),
        parseCurrency(readText(found['currency']) ?? ''),
      ];
      const said = parseCurrency(key('CREEM_CURRENCY') ?? currency ?? '');
      const fault =
        readText(found['id']) !== productId || amount === null || amount === 0n || currency === null
          ? 'it has no price'
          : found['billing_type'] !== 'onetime'
            ? 'it is not sold once'
            : found['tax_mode'] !== 'inclusive'
              ? 'its price is without tax'
              : (found['status'] ?? 'active') !== 'active'
                ? 'it is not active'
                : said !== currency
                  ? `its currency is ${currency}, and CREEM_CURRENCY says ${said}`
                  : null;
      if (fault === null) return { amount: amount as bigint, currency: currency as string };
      log.error(
        { alert: 'payments_product_unfit', provider: 'creem', productId, fault },
        `the product cannot be sold: ${fault}`,
      );
    } catch (error) {
      log.warn({ err: error, provider: 'creem', productId }, 'the product could not be asked for');
    }
    return null;
  }

  async function product(): Promise<Product | null> {
    const productId = key('CREEM_PRODUCT_ID');
    if (!isConfigured() || productId === undefined) return null;
    const of = [productId, key('CREEM_API_KEY'), key('CREEM_CURRENCY'), baseUrl()].join('\n');
    if (known?.of !== of || clock.monotonicMs() >= known.untilMs) {
      const asked = { of, untilMs: clock.monotonicMs() + productMs, product: fetchProduct(productId) };
      known = asked;
      if ((await asked.product) === null) asked.untilMs = clock.monotonicMs() + absenceMs;
    }
    return known.product;
  }

  return {
    id: 'creem',
    label: 'Card, through Creem',
    env: requirements,
    isConfigured,
    productId: () => key('CREEM_PRODUCT_ID') ?? null,
    async tariff(bounds) {
      const found = await product();
      const creditsPerUnit = found && parseCreditsPerUnit(env.get('CREDITS_PER_UNIT'), found.currency);
      if (!found || !creditsPerUnit) return null;
      return computeTariff({
        currency: found.currency,
        units: minorUnits(found.currency),
        creditsPerUnit,
        pieceAmount: found.amount,
        mostAmount,
        ...bounds,
      });
    },
    async createCheckout({ paymentId, amount, successUrl }) {
      const found = await product();
      if (found === null || amount % found.amount !== 0n)
        throw new Problem('upstream_failed', 'upstream_failed', 'Creem cannot sell this now.');
      const made = await ask('/v1/checkouts', {
        product_id: key('CREEM_PRODUCT_ID'),
        request_id: paymentId,
        units: Number(amount / found.amount),
        success_url: successUrl,
        metadata: { payment_id: paymentId },
      });
      const [checkoutId, checkoutUrl] = [readText(made['id']), readUrl(made['checkout_url'])];
      if (checkoutId === null || checkoutUrl === null) {
        throw new Problem('upstream_failed', 'upstream_failed', 'Creem made a checkout without an address.');
      }
      return { checkoutId, checkoutUrl, isLive: made['mode'] === 'prod' };
    },
    async poll(checkoutId, now) {
      const found = await ask(`/v1/checkouts?checkout_id=${encodeURIComponent(checkoutId)}`);
      const status = readText(found['status']) ?? '';
      if (status !== 'completed' && status !== 'expired') return null;
      return readEvent(
        { id: `look ${checkoutId} ${status}`, eventType: `checkout.${status}`, created_at: now.getTime() },
        found,
      );
    },
    parseWebhook({ body, signature }) {
      if (!verifyCreemSignature(body, signature, { secrets: secrets() })) throw invalidSignature();
      const event = parseEvent(body);
      return readEvent(event, readObject(event['object']));
    },
  };
}

const requirements = [
  { key: 'CREEM_API_KEY', description: 'Creem: the key that makes checkouts.', required: false },
  {
    key: 'CREEM_PRODUCT_ID',
    description: 'Creem: the product that is sold, once and with its tax in the price.',
    required: false,
    secret: false,
  },
  {
    key: 'CREEM_CURRENCY',
    description: "Creem: the product's currency; another one turns Creem off.",
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
    description: 'Creem: the signing secret before, while it is being replaced.',
    required: false,
  },
  {
    key: 'CREEM_BASE_URL',
    description: 'Creem: another address of its API.',
    required: false,
    secret: false,
  },
] as const;

function readEvent(event: JsonObject, object: JsonObject): ProviderEvent | null {
  const type = readText(event['eventType']) ?? '';
  const isCheckout = type.startsWith('checkout.');
  const fact = factOf(type, object);
  if (fact === 'nothing') return null;
  const checkout = isCheckout ? object : readObject(object['checkout']);
  const order = readObject(object['order']);
  const at = readTime(event['created_at'], 1);
  const isPaid = fact?.kind === 'paid';
  return {
    provider: 'creem',
    eventId: readText(event['id']) ?? '',
    type,
    at: at ?? new Date(0),
    isLive: object['mode'] === 'prod',
    checkoutId: isCheckout ? readText(object['id']) : readId(object['checkout']),
    reference: readId(object['order']) ?? readId(readObject(object['transaction'])['order']),
    echoes: [checkout['request_id'], readObject(checkout['metadata'])['payment_id']].flatMap(
      (echo) => readText(echo) ?? [],
    ),
    amount: isPaid ? (readAmount(order['amount_paid']) ?? readAmount(order['amount'])) : null,
    currency: isPaid
      ? readCurrency(order['currency'])
      : readCurrency(object['refund_currency'] ?? object['currency']),
    product: isPaid ? (readId(order['product']) ?? readId(object['product'])) : null,
    fact: at === null ? null : fact,
  };
}

function factOf(type: string, object: JsonObject): Fact | null | 'nothing' {
  switch (type) {
    case 'checkout.completed':
      return readObject(object['order'])['status'] === 'paid' ? { kind: 'paid' } : 'nothing';
    case 'checkout.expired':
      return { kind: 'expired' };
    case 'refund.created': {
      if (readText(object['status']) !== 'succeeded') return 'nothing';
      // The transaction counts all refunds of the payment; one event alone only its own.
      const amounts = [
        readAmount(readObject(object['transaction'])['refunded_amount']),
        readAmount(object['refund_amount']),
      ].filter((amount) => amount !== null);
      return amounts.length === 0
        ? null
        : { kind: 'refunded', amount: amounts.reduce((most, amount) => (amount > most ? amount : most)) };
    }
    case 'dispute.created': {
      const [disputeId, amount] = [readText(object['id']), readAmount(object['amount'])];
      return disputeId === null || amount === null ? null : { kind: 'disputed', disputeId, amount };
    }
    default:
      return 'nothing';
  }
}
