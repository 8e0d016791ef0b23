// Payments: credits for money, through providers. What a person is asked to pay is fixed in an order of ours before
// they see a page; from then on only what the provider signs, or answers when it is asked, moves credits.
import type { Payment, PaymentMethod } from '../../contract/gateway/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { id } from '../../kernel/ids.ts';
import type { Jobs } from '../../kernel/data/jobs.ts';
import type { Log } from '../../kernel/log.ts';
import { decodeCursor, isCursorText, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import { randomText, tokenDigest } from '../../kernel/secrets/secret.ts';
import type { AuditEntry } from '../audit/index.ts';
import type { Balances } from '../credits/index.ts';
import { originOf, type Identity } from '../identity.ts';
import type { Service } from '../service.ts';
import { disputedAmount, disputeTimes, netCredits, stateOf } from './facts.ts';
import { createIntake, type DeliveryResult } from './apply-event.ts';
import { createReconciler } from './reconciler.ts';
import type { NewOrder, PaymentOrder, ProviderId } from './order.ts';
import { amountFor, creditsFor, amountError, type Tariff } from './price.ts';
import { creemProvider } from './providers/creem.ts';
import { readKey, type EnvReader, type PaymentProvider } from './providers/provider.ts';
import { stripeProvider } from './providers/stripe.ts';
import { renderCancel, renderSuccess, renderUnknown } from './result-page.ts';
import { resultPages, parseReturnAddress } from './return-address.ts';
import type { PaymentsStore } from './store.ts';

interface PaymentsOptions {
  store: PaymentsStore;
  balances: Balances;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  users: { findUser(userId: string): Promise<{ state: string } | null> };
  bureaus: {
    find(
      bureauId: string,
    ): Promise<{ name: string; serverUrl: string; redirectOrigins: readonly string[] } | null>;
  };
  env: EnvReader;
  /** The address under which browsers reach this server; null when nobody has said it. */
  baseUrl(): string | null;
  fetch: typeof globalThis.fetch;
  /** Shares the looks at waiting payments over all replicas; null where this process is alone. */
  queue: Pick<Jobs, 'define' | 'schedule'> | null;
  clock: Clock;
  log: Log;
  /** Within this an event is on record, or its sender hears that it is not. */
  webhookMs?: number;
}

export interface Payments extends Service<'payments'> {
  /** Asks providers about payments that wait, now; says how many had news. */
  poll(): Promise<number>;
  close(): Promise<void>;
}

const mostOpen = 20;
const bounds = { minimumCredits: 1_000_000n, maximumCredits: 1_000_000_000n };

const ownRequirements = [
  {
    key: 'CREDITS_PER_UNIT',
    description:
      'Credits for one whole unit of money, such as one dollar; one number, or usd:1000000,jpy:6500. 1000000 for dollars when absent.',
    required: false,
    secret: false,
  },
  {
    key: 'PAYMENT_MINIMUM_CREDITS',
    description: 'The least that can be bought at once; 1000000 when absent.',
    required: false,
    secret: false,
  },
  {
    key: 'PAYMENT_MAXIMUM_CREDITS',
    description: 'The most that can be bought at once; 1000000000 when absent.',
    required: false,
    secret: false,
  },
] as const;

export function payments(needs: PaymentsOptions): Payments {
  const { store, env, log, clock, fetch, webhookMs = 10_000 } = needs;
  const all: PaymentProvider[] = [stripeProvider({ env, fetch }), creemProvider({ env, fetch, clock, log })];
  const providers = new Map<ProviderId, PaymentProvider>(all.map((provider) => [provider.id, provider]));
  const intake = createIntake({
    store,
    balances: needs.balances,
    audit: needs.audit,
    users: needs.users,
    log,
  });
  const reconciler = createReconciler({ store, providers, intake, clock, log });
  reconciler.start(needs.queue);

  async function tariffOf(provider: PaymentProvider): Promise<Tariff | null> {
    if (baseUrlOf(needs) === null || !provider.isConfigured()) return null;
    const bound = (key: string, otherwise: bigint): bigint => {
      const text = readKey(env, key) ?? '';
      return /^[1-9]\d{0,14}$/.test(text) ? BigInt(text) : otherwise;
    };
    return provider.tariff({
      minimumCredits: bound('PAYMENT_MINIMUM_CREDITS', bounds.minimumCredits),
      maximumCredits: bound('PAYMENT_MAXIMUM_CREDITS', bounds.maximumCredits),
    });
  }

  async function offerOf(
    method: ProviderId,
  ): Promise<{ provider: PaymentProvider; tariff: Tariff; baseUrl: string }> {
    const provider = providers.get(method);
    const tariff = provider && (await tariffOf(provider));
    const baseUrl = baseUrlOf(needs);
    if (!provider || !tariff || baseUrl === null) throw unknownMethod('method');
    return { provider, tariff, baseUrl };
  }

  async function receive(
    method: ProviderId,
    call: Delivered,
  ): Promise<{ status: 200; body: { outcome: DeliveryResult | 'ignored' } }> {
    const provider = providers.get(method);
    // An empty secret would be one that everybody knows.
    if (!provider?.isConfigured()) throw unknownMethod(null);
    const signature = call.request.headers[`${method}-signature`];
    const event = provider.parseWebhook({
      body: call.rawBody,
      signature: typeof signature === 'string' ? signature : undefined,
      now: clock.now(),
    });
    if (event === null) return { status: 200, body: { outcome: 'ignored' } };
    return { status: 200, body: { outcome: await withinMs(intake.take(event, originOf(call)), webhookMs) } };
  }

  async function orderOfTicket(ticket: string | undefined): Promise<PaymentOrder | null> {
    return ticket !== undefined && /^[0-9A-Za-z]{43}$/.test(ticket)
      ? store.findByTicket(tokenDigest(ticket))
      : null;
  }

  return {
    name: 'payments',
    title: 'Payments',
    env: [...all.flatMap((provider) => provider.env), ...ownRequirements],
    handlers: {
      'payments.listMethods': async () => {
        const methods = await Promise.all(
          all.map(async (provider) => ({ provider, tariff: await tariffOf(provider) })),
        );
        return {
          status: 200,
          body: {
            items: methods.flatMap(({ provider, tariff }) =>
              tariff === null ? [] : [wireMethod(provider, tariff)],
            ),
          },
        };
      },
      'payments.createCheckout': async (call) => {
        const { identity, body } = call;
        const { provider, tariff, baseUrl } = await offerOf(body.method);
        const amount = amountAskedFor(body, tariff);
        const bureau = await needs.bureaus.find(identity.bureauId);
        if (bureau === null) throw new Error('A user has no Bureau.');
        const returnTo = parseReturnAddress(body.return_to, bureau);
        if ((await store.countPending(identity.userId)) >= mostOpen) {
          throw new Problem(
            'rate_limited',
            'rate_limited',
            `At most ${mostOpen} payments can wait at once; finish one of them, or try again later.`,
            { headers: { 'retry-after': '600' } },
          );
        }
        const ticket = randomText();
        const order: NewOrder = {
          paymentId: id('pay'),
          userId: identity.userId,
          bureauId: identity.bureauId,
          provider: provider.id,
          currency: tariff.currency,
          amount,
          credits: creditsFor(amount, tariff),
          product: provider.productId(),
          returnTo,
          ticketDigest: tokenDigest(ticket),
        };
        // Before the provider hears of it, so that nothing that it says can be about a payment that we do not know.
        await store.tx((tx) => store.insert(tx, order));
        const { paymentId, currency, credits } = order;
        const title = `${credits.toLocaleString('en-US')} credits, ${bureau.name}`;
        const checkout = await provider
          .createCheckout({ paymentId, amount, currency, title, ...resultPages(baseUrl, ticket) })
          .catch(async (error: unknown) => {
            await store
              .fail(paymentId)
              .catch((cause: unknown) =>
                log.warn({ err: cause, paymentId }, 'a payment that came to nothing stays open'),
              );
            throw error;
          });
        return store.tx(async (tx) => {
          const reply = {
            status: 201 as const,
            body: wirePayment(await store.addCheckout(tx, paymentId, checkout)),
          };
          await call.remember(tx, reply);
          return reply;
        });
      },
      'payments.listPayments': async (call) => {
        const before = call.query.cursor === undefined ? null : decodeCursor(call.query.cursor, isCursorText);
        const limit = pageLimit(call.query);
        const rows = await store.list({ ...scopeOf(call.identity, call.query), before, count: limit + 1 });
        const { items, next_cursor } = pageOf(rows, limit, ({ paymentId }) => paymentId);
        return { status: 200, body: { items: items.map(wirePayment), next_cursor } };
      },
      'payments.getPayment': async (call) => {
        const order = await store.find(call.query.payment_id);
        const { userId, bureauId } = scopeOf(call.identity, {});
        const isTheirs =
          order !== null &&
          (userId === null || order.userId === userId) &&
          (bureauId === null || order.bureauId === bureauId);
        if (!isTheirs)
          throw new Problem('not_found', 'payment_not_found', 'There is no such payment.', {
            param: 'payment_id',
          });
        return { status: 200, body: wirePayment(order) };
      },
      'payments.receiveStripeEvent': async (call) => receive('stripe', call),
      'payments.receiveCreemEvent': async (call) => receive('creem', call),
      'payments.showSuccess': async (call) => {
        const order = await orderOfTicket(call.query.ticket);
        return order === null ? renderUnknown() : renderSuccess(order, clock.now());
      },
      'payments.showCancel': async (call) => {
        const order = await orderOfTicket(call.query.ticket);
        return order === null ? renderUnknown() : renderCancel(order, clock.now());
      },
    },
    poll: () => reconciler.poll(),
    close: () => reconciler.close(),
  };
}

/** Null as well for what is no address: a person would be sent nowhere after they paid. */
function baseUrlOf(needs: Pick<PaymentsOptions, 'baseUrl'>): string | null {
  const given = needs.baseUrl() ?? '';
  return URL.canParse(given) && /^https?:/.test(given) ? given : null;
}

type Delivered = {
  rawBody: Uint8Array;
  identity: Identity;
  remoteAddress: string;
  requestId: string;
  request: { headers: Readonly<Record<string, string | string[] | undefined>> };
};

/** Whose payments a caller may see; an administrator narrows it down, a user's own words take no part in it. */
function scopeOf(
  identity: Extract<Identity, { kind: 'user' | 'admin' }>,
  query: { user_id?: string; bureau_id?: string },
): { userId: string | null; bureauId: string | null } {
  if (identity.kind === 'user') return { userId: identity.userId, bureauId: identity.bureauId };
  return { userId: query.user_id ?? null, bureauId: identity.bureauId ?? query.bureau_id ?? null };
}

function amountAskedFor(body: { credits?: number; amount?: number }, tariff: Tariff): bigint {
  if ((body.credits === undefined) === (body.amount === undefined)) {
    const message = 'is required, or `amount` instead of it';
    throw new Problem('bad_request', 'invalid_request', `\`credits\` ${message}.`, {
      param: 'credits',
      details: [{ path: 'credits', message }],
    });
  }
  const param = body.amount === undefined ? 'credits' : 'amount';
  const amount =
    body.amount === undefined ? amountFor(BigInt(body.credits ?? 0), tariff) : BigInt(body.amount);
  const fault = amountError(amount, tariff);
  if (fault !== null)
    throw new Problem('impossible', 'amount_not_payable', `\`${param}\` ${fault} ${tariff.currency}.`, {
      param,
      details: [{ path: param, message: fault }],
    });
  return amount;
}

function unknownMethod(param: string | null): Problem {
  return new Problem('not_found', 'payment_method_not_found', 'There is no such payment method here.', {
    param,
  });
}

async function withinMs<T>(work: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () =>
        reject(
          new Problem(
            'unavailable',
            'database_unavailable',
            'The event is not on record yet; send it again.',
          ),
        ),
      ms,
    );
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
    // Should it be done after all, the second delivery finds it done.
    work.catch(() => undefined);
  }
}

function wireMethod({ id: method, label }: PaymentProvider, tariff: Tariff): PaymentMethod {
  return {
    method,
    label,
    currency: tariff.currency,
    credits_per_unit: Number(tariff.creditsPerUnit),
    minimum_amount: Number(tariff.minimum),
    maximum_amount: Number(tariff.maximum),
    amount_step: Number(tariff.step),
  };
}

function wirePayment(order: PaymentOrder): Payment {
  const { disputedAt, wonAt } = disputeTimes(order);
  const time = (at: Date | null): string | null => at?.toISOString() ?? null;
  const state = stateOf(order);
  return {
    payment_id: order.paymentId,
    user_id: order.userId,
    bureau_id: order.bureauId,
    method: order.provider,
    state,
    amount: Number(order.amount),
    currency: order.currency,
    credits: Number(order.credits),
    net_credits: Number(netCredits(order)),
    refunded_amount: Number(order.refundedAmount),
    disputed_amount: Number(disputedAmount(order)),
    checkout_url: state === 'pending' ? order.checkoutUrl : null,
    created_at: order.createdAt.toISOString(),
    paid_at: time(order.paidAt),
    expired_at: time(order.expiredAt),
    disputed_at: time(disputedAt),
    dispute_won_at: time(wonAt),
  };
}
