// Payments: users buy credits through payment providers. The order fixes amount and credits before
// the user sees a checkout. After that, only signed webhooks and answers of the provider's API
// change the balance.
import { withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import type { Jobs } from '../../kernel/data/jobs.ts';
import type { Log } from '../../kernel/log.ts';
import { decodeCursor, isCursorText, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import { isRandomText, tokenDigest } from '../../kernel/secrets/secret.ts';
import type { AuditEntry } from '../audit/index.ts';
import type { Balances } from '../credits/index.ts';
import { originOf, type Identity } from '../identity.ts';
import type { Service } from '../service.ts';
import { createApplyEvent, type DeliveryResult } from './apply-event.ts';
import { createCheckoutHandler } from './checkout.ts';
import { createPaymentMethods } from './methods.ts';
import type { PaymentOrder, ProviderId } from './orders/order.ts';
import { creemProvider } from './providers/creem.ts';
import type { EnvReader, PaymentProvider } from './providers/provider.ts';
import { stripeProvider } from './providers/stripe.ts';
import { createReconciler } from './reconciler.ts';
import { renderCancel, renderSuccess, renderUnknown } from './result-page.ts';
import { serializeMethod, serializePayment } from './serialize.ts';
import type { PaymentsStore } from './store.ts';

interface PaymentsOptions {
  store: PaymentsStore;
  balances: Balances;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  users: { findUser(userId: string): Promise<{ state: string } | null> };
  bureaus: Parameters<typeof createCheckoutHandler>[0]['bureaus'];
  env: EnvReader;
  /** The address under which browsers reach this server; null while it is unknown. */
  baseUrl(): string | null;
  fetch: typeof globalThis.fetch;
  /**
   * Makes sure that only one replica at a time polls pending payments; null in a single process.
   */
  queue: Pick<Jobs, 'define' | 'schedule'> | null;
  clock: Clock;
  log: Log;
  /** A webhook is answered with 503 when its event is not stored within this time. */
  webhookMs?: number;
}

export interface Payments extends Service<'payments'> {
  /** Polls providers about pending payments now; resolves with the number of payments that changed. */
  poll(): Promise<number>;
  close(): Promise<void>;
}

export function payments(options: PaymentsOptions): Payments {
  const { store, balances, audit, users, bureaus, env, baseUrl, fetch, clock, log } = options;
  const providers = new Map<ProviderId, PaymentProvider>(
    [stripeProvider({ env, fetch }), creemProvider({ env, fetch, clock, log })].map((provider) => [
      provider.id,
      provider,
    ]),
  );
  const methods = createPaymentMethods({ providers, env, baseUrl });
  const applyEvent = createApplyEvent({ store, balances, audit, users, log });
  const reconciler = createReconciler({ store, providers, applyEvent, clock, log });
  reconciler.start(options.queue);

  const receiveEvent = createReceiveEvent({ methods, applyEvent, clock, webhookMs: options.webhookMs });

  return {
    name: 'payments',
    title: 'Payments',
    env: methods.env,
    handlers: {
      'payments.listMethods': async () => {
        const offers = await methods.list();
        const items = offers.map(({ provider, tariff }) => serializeMethod(provider, tariff));
        return { status: 200, body: { items } };
      },
      'payments.createCheckout': createCheckoutHandler({ store, methods, bureaus, log }),
      'payments.listPayments': createListPayments(store),
      'payments.getPayment': async (call) => {
        const order = requireVisible(await store.find(call.query.payment_id), call.identity);
        return { status: 200, body: serializePayment(order) };
      },
      'payments.receiveStripeEvent': async (call) => receiveEvent('stripe', call),
      'payments.receiveCreemEvent': async (call) => receiveEvent('creem', call),
      'payments.showSuccess': async (call) => {
        const order = await findByResultToken(store, call.query.ticket);
        return order === null ? renderUnknown() : renderSuccess(order, clock.now());
      },
      'payments.showCancel': async (call) => {
        const order = await findByResultToken(store, call.query.ticket);
        return order === null ? renderUnknown() : renderCancel(order, clock.now());
      },
    },
    poll: () => reconciler.poll(),
    close: () => reconciler.close(),
  };
}

function createListPayments(
  store: Pick<PaymentsStore, 'list'>,
): Payments['handlers']['payments.listPayments'] {
  return async ({ identity, query }) => {
    const before = query.cursor === undefined ? null : decodeCursor(query.cursor, isCursorText);
    const limit = pageLimit(query);
    const orders = await store.list({ ...scopeOf(identity, query), before, count: limit + 1 });
    const { items, next_cursor } = pageOf(orders, limit, ({ paymentId }) => paymentId);
    return { status: 200, body: { items: items.map(serializePayment), next_cursor } };
  };
}

function createReceiveEvent({
  methods,
  applyEvent,
  clock,
  webhookMs = 10_000,
}: Pick<PaymentsOptions, 'clock'> & {
  methods: ReturnType<typeof createPaymentMethods>;
  applyEvent: ReturnType<typeof createApplyEvent>;
  webhookMs: number | undefined;
}) {
  return async function receiveEvent(
    method: ProviderId,
    call: WebhookCall,
  ): Promise<{ status: 200; body: { outcome: DeliveryResult | 'ignored' } }> {
    const signature = call.request.headers[`${method}-signature`];
    const event = methods.requireConfigured(method).parseWebhook({
      body: call.rawBody,
      signature: typeof signature === 'string' ? signature : undefined,
      now: clock.now(),
    });
    if (event === null) return { status: 200, body: { outcome: 'ignored' } };
    // The transaction may still commit after the timeout; the next delivery is then a duplicate.
    const outcome = await withTimeout(() => applyEvent(event, originOf(call)), {
      ms: webhookMs,
      error: () =>
        new Problem(
          'unavailable',
          'database_unavailable',
          'The event could not be stored in time; send it again.',
        ),
    });
    return { status: 200, body: { outcome } };
  };
}

async function findByResultToken(
  store: PaymentsStore,
  token: string | undefined,
): Promise<PaymentOrder | null> {
  return token !== undefined && isRandomText(token) ? store.findByResultToken(tokenDigest(token)) : null;
}

interface WebhookCall {
  rawBody: Uint8Array;
  identity: Identity;
  remoteAddress: string;
  requestId: string;
  request: { headers: Readonly<Record<string, string | string[] | undefined>> };
}

type CallerIdentity = Extract<Identity, { kind: 'user' | 'admin' }>;

/** The payments that the caller may see. Filters of the query apply to administrators only. */
function scopeOf(
  identity: CallerIdentity,
  query: { user_id?: string; bureau_id?: string },
): { userId: string | null; bureauId: string | null } {
  if (identity.kind === 'user') return { userId: identity.userId, bureauId: identity.bureauId };
  return { userId: query.user_id ?? null, bureauId: identity.bureauId ?? query.bureau_id ?? null };
}

/** Throws 404 for a payment that is missing or that the caller may not see. */
function requireVisible(order: PaymentOrder | null, identity: CallerIdentity): PaymentOrder {
  const { userId, bureauId } = scopeOf(identity, {});
  const isVisible =
    order !== null &&
    (userId === null || order.userId === userId) &&
    (bureauId === null || order.bureauId === bureauId);
  if (isVisible) return order;
  throw new Problem('not_found', 'payment_not_found', 'There is no such payment.', { param: 'payment_id' });
}
