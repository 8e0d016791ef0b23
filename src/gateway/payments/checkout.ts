// Creates checkouts. The order with its amount and credits is stored before the request to the
// provider, so the order of every provider event already exists.
import type { Tx } from '../../kernel/data/database.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { randomText, tokenDigest } from '../../kernel/secrets/secret.ts';
import type { CreateCheckoutRequest, Payment } from '../../contract/gateway/types.gen.ts';
import type { PaymentMethods } from './methods.ts';
import type { Checkout, NewOrder } from './orders/order.ts';
import { amountError, amountFor, creditsFor, type Tariff } from './orders/price.ts';
import type { CheckoutRequest, PaymentProvider } from './providers/provider.ts';
import { parseReturnAddress, resultPages } from './return-address.ts';
import { serializePayment } from './serialize.ts';
import type { PaymentsStore } from './store.ts';

interface CheckoutCall {
  identity: { userId: string; bureauId: string };
  body: CreateCheckoutRequest;
  remember(tx: Tx, reply: { status: number; body?: unknown }): Promise<void>;
}

type CreateCheckout = (call: CheckoutCall) => Promise<{ status: 201; body: Payment }>;

type PayingBureau = { name: string; serverUrl: string; redirectOrigins: readonly string[] };

interface CheckoutOptions {
  store: PaymentsStore;
  methods: PaymentMethods;
  bureaus: { find(bureauId: string): Promise<PayingBureau | null> };
  log: Log;
}

const maxPendingPayments = 20;

export function createCheckoutHandler({ store, methods, bureaus, log }: CheckoutOptions): CreateCheckout {
  return async (call) => {
    const { identity, body } = call;
    const { provider, tariff, baseUrl } = await methods.require(body.method);
    const amount = readRequestedAmount(body, tariff);
    const bureau = await bureaus.find(identity.bureauId);
    if (bureau === null) throw new Error('The Bureau of the user does not exist.');
    const returnTo = parseReturnAddress(body.return_to, bureau);
    await refuseTooManyPending(store, identity.userId);
    const resultToken = randomText();
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
      resultTokenDigest: tokenDigest(resultToken),
    };
    await store.tx((tx) => store.insert(tx, order));
    const { paymentId, currency, credits } = order;
    const title = `${credits.toLocaleString('en-US')} credits, ${bureau.name}`;
    const request = { paymentId, amount, currency, title, ...resultPages(baseUrl, resultToken) };
    const checkout = await createCheckout(provider, request, { store, log });
    return store.tx(async (tx) => {
      const storedPayment = await store.addCheckout(tx, paymentId, checkout);
      const reply = { status: 201 as const, body: serializePayment(storedPayment) };
      await call.remember(tx, reply);
      return reply;
    });
  };
}

// Concurrent checkouts count before they insert, so a user can exceed the limit by a few.
async function refuseTooManyPending(store: PaymentsStore, userId: string): Promise<void> {
  if ((await store.countPending(userId)) < maxPendingPayments) return;
  throw new Problem(
    'rate_limited',
    'rate_limited',
    `At most ${maxPendingPayments} payments can be pending at once; finish one of them, or try again later.`,
    { headers: { 'retry-after': '600' } },
  );
}

/** Marks the order as failed when the provider creates no checkout, and rethrows its error. */
async function createCheckout(
  provider: PaymentProvider,
  request: CheckoutRequest,
  { store, log }: Pick<CheckoutOptions, 'store' | 'log'>,
): Promise<Checkout> {
  const { paymentId } = request;
  try {
    return await provider.createCheckout(request);
  } catch (error) {
    await store
      .fail(paymentId)
      .catch((cause: unknown) =>
        log.warn({ err: cause, paymentId }, 'a failed payment could not be marked as failed'),
      );
    throw error;
  }
}

/** The amount to pay, from `amount` or `credits`. Throws 422 when it cannot be paid. */
function readRequestedAmount(body: CreateCheckoutRequest, tariff: Tariff): bigint {
  const param = 'amount' in body ? 'amount' : 'credits';
  const amount = 'amount' in body ? BigInt(body.amount) : amountFor(BigInt(body.credits), tariff);
  const message = amountError(amount, tariff);
  if (message !== null)
    throw new Problem(
      'impossible',
      'amount_not_payable',
      `\`${param}\` ${message}, in the smallest unit of ${tariff.currency}.`,
      { param, details: [{ path: param, message }] },
    );
  return amount;
}
