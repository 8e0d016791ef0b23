// A double of Creem's API with the parts that the gateway calls: one product, checkouts of whole
// pieces of it, and events with Creem's signature.
import { createHmac, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

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

export interface CreemDouble {
  url: string;
  apiKey: string;
  webhookSecret: string;
  env: Record<string, string>;
  product: {
    id: string;
    price: number;
    currency: string;
    billing_type: string;
    tax_mode: string;
    status: string;
  };
  checkouts: Map<string, CreemCheckout>;
  requests: { method: string; path: string; body: Record<string, unknown> }[];
  failures: (number | 'hang')[];
  pay(checkoutId: string): CreemEvent;
  event(type: string, object: Record<string, unknown>, overrides?: Partial<CreemEvent>): CreemEvent;
  refund(checkoutId: string, refunded: number, inAll?: number): CreemEvent;
  dispute(checkoutId: string, amount?: number): CreemEvent;
  sign(event: CreemEvent | string, secret?: string): { body: string; signature: string };
  close(): Promise<void>;
}

export async function startCreem(): Promise<CreemDouble> {
  const apiKey = `creem_test_CANARY${randomBytes(12).toString('hex')}`;
  const webhookSecret = `whsec_CANARY${randomBytes(12).toString('hex')}`;
  const product = {
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
  const checkouts = new Map<string, CreemCheckout>();
  const requests: CreemDouble['requests'] = [];
  const failures: CreemDouble['failures'] = [];

  const server = createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const text = Buffer.concat(chunks).toString('utf8');
      const body = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>;
      const url = new URL(request.url ?? '/', 'http://creem');
      requests.push({ method: request.method ?? '', path: url.pathname, body });
      const answer = (status: number, value: object): void => {
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(JSON.stringify(value));
      };
      const failure = failures.shift();
      if (failure === 'hang') return;
      if (failure !== undefined) return answer(failure, { status: failure, error: 'No.' });
      if (request.headers['x-api-key'] !== apiKey) return answer(403, { status: 403, error: 'Forbidden' });
      if (url.pathname === '/v1/products' && url.searchParams.get('product_id') === product.id)
        return answer(200, product);
      if (url.pathname === '/v1/checkouts' && request.method === 'POST') return answer(200, create(body));
      const checkout = checkouts.get(url.searchParams.get('checkout_id') ?? '');
      return url.pathname === '/v1/checkouts' && checkout
        ? answer(200, checkout)
        : answer(404, { status: 404, error: 'Not found' });
    })();
  });

  function create(body: Record<string, unknown>): CreemCheckout {
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
    checkouts.set(id, checkout);
    return checkout;
  }

  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const event: CreemDouble['event'] = (eventType, object, members = {}) => ({
    id: `evt_${randomBytes(11).toString('hex')}`,
    eventType,
    created_at: Date.now(),
    object,
    ...members,
  });

  function checkoutOf(id: string): CreemCheckout {
    const checkout = checkouts.get(id);
    if (!checkout) throw new Error(`There is no checkout ${id}.`);
    return checkout;
  }

  function orderOf(id: string): Record<string, unknown> {
    const { units } = checkoutOf(id);
    const amount = product.price * units;
    return {
      id: `ord_${id.slice(3)}`,
      object: 'order',
      product: product.id,
      amount,
      amount_due: amount,
      amount_paid: amount,
      currency: product.currency,
      status: 'paid',
      type: 'onetime',
      transaction: `tran_${id.slice(3)}`,
      mode: 'test',
    };
  }

  function transactionOf(id: string, refunded: number): Record<string, unknown> {
    const order = orderOf(id);
    return {
      id: order['transaction'],
      object: 'transaction',
      amount: order['amount'],
      amount_paid: order['amount_paid'],
      currency: product.currency,
      refunded_amount: refunded,
      order: order['id'],
      mode: 'test',
    };
  }

  return {
    url,
    apiKey,
    webhookSecret,
    env: {
      CREEM_API_KEY: apiKey,
      CREEM_WEBHOOK_SECRET: webhookSecret,
      CREEM_PRODUCT_ID: product.id,
      CREEM_CURRENCY: 'EUR',
      CREEM_BASE_URL: url,
    },
    product,
    checkouts,
    requests,
    failures,
    event,
    pay(id) {
      const checkout = checkoutOf(id);
      Object.assign(checkout, { status: 'completed', order: orderOf(id) });
      return event('checkout.completed', { ...checkout, product: { ...product } });
    },
    refund(id, refunded, inAll = refunded) {
      const { request_id, metadata } = checkoutOf(id);
      return event('refund.created', {
        id: `ref_${randomBytes(11).toString('hex')}`,
        object: 'refund',
        status: 'succeeded',
        refund_amount: refunded,
        refund_currency: product.currency,
        transaction: transactionOf(id, inAll),
        order: orderOf(id),
        checkout: { id, object: 'checkout', request_id, metadata, status: 'completed', mode: 'test' },
        mode: 'test',
      });
    },
    dispute(id, amount = Number(orderOf(id)['amount_paid'])) {
      const { units } = checkoutOf(id);
      return event('dispute.created', {
        id: `disp_${id.slice(3)}`,
        object: 'dispute',
        amount,
        currency: product.currency,
        transaction: transactionOf(id, amount),
        order: orderOf(id),
        checkout: { id, object: 'checkout', product: product.id, units, status: 'completed', mode: 'test' },
        mode: 'test',
      });
    },
    sign(payload, secret = webhookSecret) {
      const body = typeof payload === 'string' ? payload : JSON.stringify(payload);
      return { body, signature: createHmac('sha256', secret).update(body).digest('hex') };
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
