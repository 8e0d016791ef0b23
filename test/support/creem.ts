// A double of Creem's API with the parts that the gateway calls: one product, checkouts of whole
// units of it, and events with Creem's signature.
import { createHmac, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { closeServer, listen, readBody } from './local-server.ts';

export interface CreemCheckout {
  id: string;
  object: 'checkout';
  mode: string;
  status: 'pending' | 'completed' | 'expired';
  request_id: string;
  units: number;
  success_url: string;
  checkout_url: string;
  metadata: Record<string, unknown>;
  product: string;
  order?: Record<string, unknown>;
}

export interface CreemEvent {
  id: string;
  eventType: string;
  created_at: number;
  object: Record<string, unknown>;
}

interface CreemOrder {
  id: string;
  object: 'order';
  product: string;
  amount: number;
  amount_due: number;
  amount_paid: number;
  currency: string;
  status: string;
  type: string;
  transaction: string;
  mode: 'test';
}

interface CreemTransaction {
  id: string;
  object: 'transaction';
  amount: number;
  amount_paid: number;
  currency: string;
  refunded_amount: number;
  order: string;
  mode: 'test';
}

export async function startCreem(): Promise<CreemDouble> {
  const creem = new CreemDouble();
  await creem.listen();
  return creem;
}

export class CreemDouble {
  url = '';
  readonly apiKey = `creem_test_CANARY${randomBytes(12).toString('hex')}`;
  readonly webhookSecret = `whsec_CANARY${randomBytes(12).toString('hex')}`;
  /** Tests change it. */
  readonly product = {
    id: 'prod_credits',
    object: 'product',
    name: 'Credits',
    price: 500,
    currency: 'EUR',
    billing_type: 'onetime',
    tax_mode: 'inclusive',
    status: 'active',
    mode: 'test',
  };
  readonly checkouts = new Map<string, CreemCheckout>();
  /** The received requests, the newest last. */
  readonly requests: { method: string; path: string; body: Record<string, unknown> }[] = [];
  /** Statuses to answer instead, one for each request; `hang` never answers. */
  readonly failures: (number | 'hang')[] = [];
  readonly #server = createServer((request, response) => {
    this.#serve(request, response).catch(() => response.destroy());
  });

  /** The gateway's settings for this double. */
  get env(): Record<string, string> {
    return {
      CREEM_API_KEY: this.apiKey,
      CREEM_WEBHOOK_SECRET: this.webhookSecret,
      CREEM_PRODUCT_ID: this.product.id,
      CREEM_CURRENCY: 'EUR',
      CREEM_BASE_URL: this.url,
    };
  }

  async listen(): Promise<void> {
    this.url = (await listen(this.#server)).url;
  }

  close(): Promise<void> {
    return closeServer(this.#server);
  }

  /** Pays as the buyer; returns the event that Creem then sends. */
  pay(checkoutId: string): CreemEvent {
    const checkout = this.#checkout(checkoutId);
    Object.assign(checkout, { status: 'completed', order: this.#order(checkoutId) });
    return this.event('checkout.completed', { ...checkout, product: { ...this.product } });
  }

  event(type: string, object: Record<string, unknown>, overrides: Partial<CreemEvent> = {}): CreemEvent {
    return {
      id: `evt_${randomBytes(11).toString('hex')}`,
      eventType: type,
      created_at: Date.now(),
      object,
      ...overrides,
    };
  }

  /** The event of a refund; `total` includes earlier refunds of the payment. */
  refund(checkoutId: string, refunded: number, total = refunded): CreemEvent {
    const { request_id, metadata } = this.#checkout(checkoutId);
    return this.event('refund.created', {
      id: `ref_${randomBytes(11).toString('hex')}`,
      object: 'refund',
      status: 'succeeded',
      refund_amount: refunded,
      refund_currency: this.product.currency,
      transaction: this.#transaction(checkoutId, total),
      order: this.#order(checkoutId),
      checkout: {
        id: checkoutId,
        object: 'checkout',
        request_id,
        metadata,
        status: 'completed',
        mode: 'test',
      },
      mode: 'test',
    });
  }

  dispute(checkoutId: string, amount = this.#order(checkoutId).amount_paid): CreemEvent {
    const { units } = this.#checkout(checkoutId);
    return this.event('dispute.created', {
      id: `disp_${checkoutId.slice(3)}`,
      object: 'dispute',
      amount,
      currency: this.product.currency,
      transaction: this.#transaction(checkoutId, amount),
      order: this.#order(checkoutId),
      checkout: {
        id: checkoutId,
        object: 'checkout',
        product: this.product.id,
        units,
        status: 'completed',
        mode: 'test',
      },
      mode: 'test',
    });
  }

  /** Body and signature header of one delivery. */
  sign(event: CreemEvent | string, secret = this.webhookSecret): { body: string; signature: string } {
    const body = typeof event === 'string' ? event : JSON.stringify(event);
    return { body, signature: createHmac('sha256', secret).update(body).digest('hex') };
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const text = (await readBody(request)).toString('utf8');
    const body = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>;
    const url = new URL(request.url ?? '/', 'http://creem');
    this.requests.push({ method: request.method ?? '', path: url.pathname, body });
    const failure = this.failures.shift();
    if (failure === 'hang') return;
    const [status, value] =
      failure === undefined ? this.#answer(request, url, body) : [failure, { status: failure, error: 'No.' }];
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(value));
  }

  #answer(request: IncomingMessage, url: URL, body: Record<string, unknown>): [number, object] {
    if (request.headers['x-api-key'] !== this.apiKey) return [403, { status: 403, error: 'Forbidden' }];
    if (url.pathname === '/v1/products' && url.searchParams.get('product_id') === this.product.id)
      return [200, this.product];
    if (url.pathname === '/v1/checkouts' && request.method === 'POST') return [200, this.#create(body)];
    const checkout = this.checkouts.get(url.searchParams.get('checkout_id') ?? '');
    return url.pathname === '/v1/checkouts' && checkout
      ? [200, checkout]
      : [404, { status: 404, error: 'Not found' }];
  }

  #create(body: Record<string, unknown>): CreemCheckout {
    const id = `ch_${randomBytes(11).toString('hex')}`;
    const checkout: CreemCheckout = {
      id,
      object: 'checkout',
      mode: 'test',
      status: 'pending',
      request_id: String(body['request_id']),
      units: Number(body['units'] ?? 1),
      success_url: String(body['success_url']),
      checkout_url: `https://creem.test/checkout/${id}`,
      metadata: (body['metadata'] ?? {}) as Record<string, unknown>,
      product: String(body['product_id']),
    };
    this.checkouts.set(id, checkout);
    return checkout;
  }

  #checkout(id: string): CreemCheckout {
    const checkout = this.checkouts.get(id);
    if (!checkout) throw new Error(`There is no checkout ${id}.`);
    return checkout;
  }

  #order(checkoutId: string): CreemOrder {
    const amount = this.product.price * this.#checkout(checkoutId).units;
    return {
      id: `ord_${checkoutId.slice(3)}`,
      object: 'order',
      product: this.product.id,
      amount,
      amount_due: amount,
      amount_paid: amount,
      currency: this.product.currency,
      status: 'paid',
      type: 'onetime',
      transaction: `tran_${checkoutId.slice(3)}`,
      mode: 'test',
    };
  }

  #transaction(checkoutId: string, refunded: number): CreemTransaction {
    const { id, transaction, amount, amount_paid } = this.#order(checkoutId);
    return {
      id: transaction,
      object: 'transaction',
      amount,
      amount_paid,
      currency: this.product.currency,
      refunded_amount: refunded,
      order: id,
      mode: 'test',
    };
  }
}
