// A double of Stripe's API with the parts that the gateway calls: Checkout Sessions in form
// encoding with idempotency, and events signed by Stripe's own package.
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { randomBytes } from 'node:crypto';
import Stripe from 'stripe';

export interface StripeSession {
  id: string;
  object: 'checkout.session';
  amount_total: number;
  currency: string;
  client_reference_id: string | null;
  livemode: boolean;
  metadata: Record<string, string>;
  mode: string;
  payment_intent: string | null;
  payment_status: 'paid' | 'unpaid';
  status: 'open' | 'complete' | 'expired';
  success_url: string;
  cancel_url: string;
  url: string;
}

export interface StripeEvent {
  id: string;
  object: 'event';
  type: string;
  created: number;
  livemode: boolean;
  data: { object: Record<string, unknown> };
}

export interface StripeDouble {
  url: string;
  secretKey: string;
  webhookSecret: string;
  /** The gateway's settings for this double. */
  env: Record<string, string>;
  sessions: Map<string, StripeSession>;
  /** The forms that it received, the newest last. */
  requests: { path: string; form: Record<string, string>; headers: IncomingMessage['headers'] }[];
  /** Errors to answer instead, one for each request. */
  failures: ({ status: number; code?: string; type?: string } | 'hang')[];
  /** Pays as the buyer; returns the event that Stripe then sends. */
  pay(sessionId: string): StripeEvent;
  event(type: string, object: Record<string, unknown>, overrides?: Partial<StripeEvent>): StripeEvent;
  refund(sessionId: string, refunded: number): StripeEvent;
  dispute(
    type: 'created' | 'closed' | 'funds_withdrawn' | 'funds_reinstated',
    sessionId: string,
    members?: Record<string, unknown>,
  ): StripeEvent;
  /** Body and signature header of one delivery. */
  sign(
    event: StripeEvent | string,
    options?: { secret?: string; atSeconds?: number; scheme?: string },
  ): { body: string; signature: string };
  close(): Promise<void>;
}

export async function startStripe(): Promise<StripeDouble> {
  const secretKey = `sk_test_CANARY${randomBytes(12).toString('hex')}`;
  const webhookSecret = `whsec_CANARY${randomBytes(12).toString('hex')}`;
  const signer = new Stripe(secretKey);
  const sessions = new Map<string, StripeSession>();
  const byKey = new Map<string, { form: string; id: string }>();
  const requests: StripeDouble['requests'] = [];
  const failures: StripeDouble['failures'] = [];
  const nowSeconds = (): number => Math.floor(Date.now() / 1000);

  const server = createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const text = Buffer.concat(chunks).toString('utf8');
      const form = Object.fromEntries(new URLSearchParams(text));
      const path = new URL(request.url ?? '/', 'http://stripe').pathname;
      requests.push({ path, form, headers: request.headers });
      const answer = (status: number, body: object): void => {
        response.writeHead(status, { 'content-type': 'application/json', 'request-id': 'req_test' });
        response.end(JSON.stringify(body));
      };
      const failure = failures.shift();
      if (failure === 'hang') return;
      if (failure)
        return answer(failure.status, {
          error: { type: failure.type ?? 'api_error', code: failure.code, message: 'No.' },
        });
      if (request.headers.authorization !== `Bearer ${secretKey}`)
        return answer(401, {
          error: {
            type: 'invalid_request_error',
            message: `Invalid API Key provided: ${String(request.headers.authorization)}`,
          },
        });
      if (request.method === 'POST' && path === '/v1/checkout/sessions')
        return create(request, { text, form, answer });
      const session = sessions.get(/^\/v1\/checkout\/sessions\/(\w+)$/.exec(path)?.[1] ?? '');
      return session
        ? answer(200, session)
        : answer(404, { error: { type: 'invalid_request_error', message: 'No such session.' } });
    })();
  });

  function create(
    request: IncomingMessage,
    {
      text,
      form,
      answer,
    }: { text: string; form: Record<string, string>; answer: (status: number, body: object) => void },
  ): void {
    const key = String(request.headers['idempotency-key'] ?? '');
    const earlierRequest = byKey.get(key);
    if (earlierRequest && earlierRequest.form !== text)
      return answer(400, {
        error: {
          type: 'idempotency_error',
          message: 'Keys for idempotent requests can only be used with the same parameters.',
        },
      });
    if (earlierRequest) return answer(200, sessions.get(earlierRequest.id) as StripeSession);
    const amount =
      Number(form['line_items[0][price_data][unit_amount]']) * Number(form['line_items[0][quantity]']);
    if (!Number.isInteger(amount) || amount < 50)
      return answer(400, {
        error: {
          type: 'invalid_request_error',
          code: 'amount_too_small',
          message: 'The amount must be at least 50 cents.',
        },
      });
    const id = `cs_test_${randomBytes(12).toString('hex')}`;
    const session: StripeSession = {
      id,
      object: 'checkout.session',
      amount_total: amount,
      currency: form['line_items[0][price_data][currency]'] ?? '',
      client_reference_id: form['client_reference_id'] ?? null,
      livemode: false,
      metadata: { payment_id: form['metadata[payment_id]'] ?? '' },
      mode: form['mode'] ?? '',
      payment_intent: null,
      payment_status: 'unpaid',
      status: 'open',
      success_url: form['success_url'] ?? '',
      cancel_url: form['cancel_url'] ?? '',
      url: `https://checkout.stripe.test/c/pay/${id}`,
    };
    sessions.set(id, session);
    if (key !== '') byKey.set(key, { form: text, id });
    return answer(200, session);
  }

  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  function sessionOf(id: string): StripeSession {
    const session = sessions.get(id);
    if (!session) throw new Error(`There is no session ${id}.`);
    return session;
  }

  /** Stripe creates the payment intent when the buyer pays. */
  function intentOf(id: string): string {
    const session = sessionOf(id);
    session.payment_intent ??= `pi_${id.slice(8)}`;
    return session.payment_intent;
  }

  const event: StripeDouble['event'] = (type, object, members = {}) => ({
    id: `evt_${randomBytes(12).toString('hex')}`,
    object: 'event',
    type,
    created: nowSeconds(),
    livemode: false,
    data: { object },
    ...members,
  });

  return {
    url,
    secretKey,
    webhookSecret,
    env: { STRIPE_SECRET_KEY: secretKey, STRIPE_WEBHOOK_SECRET: webhookSecret, STRIPE_BASE_URL: url },
    sessions,
    requests,
    failures,
    event,
    pay(id) {
      const session = sessionOf(id);
      intentOf(id);
      Object.assign(session, { payment_status: 'paid', status: 'complete' });
      return event('checkout.session.completed', { ...session });
    },
    refund(id, refunded) {
      const { amount_total: amount, currency, metadata } = sessionOf(id);
      return event('charge.refunded', {
        id: `ch_${id.slice(8)}`,
        object: 'charge',
        amount,
        amount_refunded: refunded,
        currency,
        metadata,
        payment_intent: intentOf(id),
      });
    },
    dispute(type, id, members = {}) {
      const { amount_total: amount, currency } = sessionOf(id);
      const dispute = {
        id: `dp_${id.slice(8)}`,
        object: 'dispute',
        amount,
        currency,
        charge: `ch_${id.slice(8)}`,
        payment_intent: intentOf(id),
        metadata: {},
        status: 'needs_response',
        ...members,
      };
      return event(`charge.dispute.${type}`, dispute);
    },
    sign(payload, { secret = webhookSecret, atSeconds = nowSeconds(), scheme = 'v1' } = {}) {
      const body = typeof payload === 'string' ? payload : JSON.stringify(payload);
      return {
        body,
        signature: signer.webhooks.generateTestHeaderString({
          payload: body,
          secret,
          timestamp: atSeconds,
          scheme,
        }),
      };
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
