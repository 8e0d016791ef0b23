// A double of Stripe's API with the parts that the gateway calls: Checkout Sessions in form
// encoding with idempotency, and events signed by Stripe's own package.
import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import Stripe from 'stripe';
import { closeServer, listen, readBody } from './local-server.ts';

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

interface StripeFailure {
  status: number;
  code?: string;
  type?: string;
}

export async function startStripe(): Promise<StripeDouble> {
  const stripe = new StripeDouble();
  await stripe.listen();
  return stripe;
}

export class StripeDouble {
  url = '';
  readonly secretKey = `sk_test_CANARY${randomBytes(12).toString('hex')}`;
  readonly webhookSecret = `whsec_CANARY${randomBytes(12).toString('hex')}`;
  readonly sessions = new Map<string, StripeSession>();
  /** The received forms, the newest last. */
  readonly requests: {
    path: string;
    form: Record<string, string>;
    headers: IncomingMessage['headers'];
  }[] = [];
  /** Errors to answer instead, one for each request; `hang` never answers. */
  readonly failures: (StripeFailure | 'hang')[] = [];
  readonly #signer = new Stripe(this.secretKey);
  readonly #requestsByKey = new Map<string, { text: string; sessionId: string }>();
  readonly #server = createServer((request, response) => {
    this.#serve(request, response).catch(() => response.destroy());
  });

  /** The gateway's settings for this double. */
  get env(): Record<string, string> {
    return {
      STRIPE_SECRET_KEY: this.secretKey,
      STRIPE_WEBHOOK_SECRET: this.webhookSecret,
      STRIPE_BASE_URL: this.url,
    };
  }

  async listen(): Promise<void> {
    this.url = (await listen(this.#server)).url;
  }

  close(): Promise<void> {
    return closeServer(this.#server);
  }

  /** Pays as the buyer; returns the event that Stripe then sends. */
  pay(sessionId: string): StripeEvent {
    const session = this.#session(sessionId);
    this.#paymentIntent(session);
    Object.assign(session, { payment_status: 'paid', status: 'complete' });
    return this.event('checkout.session.completed', { ...session });
  }

  event(type: string, object: Record<string, unknown>, overrides: Partial<StripeEvent> = {}): StripeEvent {
    return {
      id: `evt_${randomBytes(12).toString('hex')}`,
      object: 'event',
      type,
      created: nowSeconds(),
      livemode: false,
      data: { object },
      ...overrides,
    };
  }

  /** The event of a refund; `refunded` is the sum of all refunds of the payment. */
  refund(sessionId: string, refunded: number): StripeEvent {
    const session = this.#session(sessionId);
    return this.event('charge.refunded', {
      id: `ch_${sessionId.slice(8)}`,
      object: 'charge',
      amount: session.amount_total,
      amount_refunded: refunded,
      currency: session.currency,
      metadata: session.metadata,
      payment_intent: this.#paymentIntent(session),
    });
  }

  dispute(
    type: 'created' | 'closed' | 'funds_withdrawn' | 'funds_reinstated',
    sessionId: string,
    overrides: Record<string, unknown> = {},
  ): StripeEvent {
    const session = this.#session(sessionId);
    return this.event(`charge.dispute.${type}`, {
      id: `dp_${sessionId.slice(8)}`,
      object: 'dispute',
      amount: session.amount_total,
      currency: session.currency,
      charge: `ch_${sessionId.slice(8)}`,
      payment_intent: this.#paymentIntent(session),
      metadata: {},
      status: 'needs_response',
      ...overrides,
    });
  }

  /** Body and signature header of one delivery. */
  sign(
    event: StripeEvent | string,
    {
      secret = this.webhookSecret,
      atSeconds = nowSeconds(),
      scheme = 'v1',
    }: { secret?: string; atSeconds?: number; scheme?: string } = {},
  ): { body: string; signature: string } {
    const body = typeof event === 'string' ? event : JSON.stringify(event);
    const signature = this.#signer.webhooks.generateTestHeaderString({
      payload: body,
      secret,
      timestamp: atSeconds,
      scheme,
    });
    return { body, signature };
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const text = (await readBody(request)).toString('utf8');
    const form = Object.fromEntries(new URLSearchParams(text));
    const path = new URL(request.url ?? '/', 'http://stripe').pathname;
    this.requests.push({ path, form, headers: request.headers });
    const failure = this.failures.shift();
    if (failure === 'hang') return;
    const [status, body] =
      failure === undefined
        ? this.#answer(request, path, { text, form })
        : [failure.status, errorBody(failure.type ?? 'api_error', 'No.', failure.code)];
    response.writeHead(status, { 'content-type': 'application/json', 'request-id': 'req_test' });
    response.end(JSON.stringify(body));
  }

  #answer(
    { method, headers }: IncomingMessage,
    path: string,
    content: { text: string; form: Record<string, string> },
  ): [number, object] {
    if (headers.authorization !== `Bearer ${this.secretKey}`) {
      const message = `Invalid API Key provided: ${String(headers.authorization)}`;
      return [401, errorBody('invalid_request_error', message)];
    }
    if (method === 'POST' && path === '/v1/checkout/sessions')
      return this.#createIdempotently(String(headers['idempotency-key'] ?? ''), content);
    const session = this.sessions.get(/^\/v1\/checkout\/sessions\/(\w+)$/.exec(path)?.[1] ?? '');
    return session ? [200, session] : [404, errorBody('invalid_request_error', 'No such session.')];
  }

  #createIdempotently(
    key: string,
    { text, form }: { text: string; form: Record<string, string> },
  ): [number, object] {
    const earlierRequest = this.#requestsByKey.get(key);
    if (earlierRequest !== undefined && earlierRequest.text !== text) {
      const message = 'Keys for idempotent requests can only be used with the same parameters.';
      return [400, errorBody('idempotency_error', message)];
    }
    if (earlierRequest !== undefined) return [200, this.#session(earlierRequest.sessionId)];
    const amount =
      Number(form['line_items[0][price_data][unit_amount]']) * Number(form['line_items[0][quantity]']);
    if (!Number.isInteger(amount) || amount < 50) {
      const message = 'The amount must be at least 50 cents.';
      return [400, errorBody('invalid_request_error', message, 'amount_too_small')];
    }
    const session = this.#create(form, amount);
    if (key !== '') this.#requestsByKey.set(key, { text, sessionId: session.id });
    return [200, session];
  }

  #create(form: Record<string, string>, amount: number): StripeSession {
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
    this.sessions.set(id, session);
    return session;
  }

  #session(id: string): StripeSession {
    const session = this.sessions.get(id);
    if (!session) throw new Error(`There is no session ${id}.`);
    return session;
  }

  /** Stripe creates the payment intent when the buyer pays. */
  #paymentIntent(session: StripeSession): string {
    session.payment_intent ??= `pi_${session.id.slice(8)}`;
    return session.payment_intent;
  }
}

function errorBody(type: string, message: string, code?: string): object {
  return { error: { type, code, message } };
}

function nowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
