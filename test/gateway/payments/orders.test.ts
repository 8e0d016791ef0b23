// Payment, refund and dispute events lead to the same result in any order.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Payment } from '@townhall/gateway';
import type { CreemEvent } from '../../support/creem.ts';
import type { StripeEvent } from '../../support/stripe.ts';
import { pageIdOf, startPayments, type PaymentsWorld } from './world.ts';

let world: PaymentsWorld;
beforeAll(async () => {
  world = await startPayments();
});
afterAll(() => world?.close());

type Method = 'stripe' | 'creem';
type Step = 'paid' | 'part' | 'refunded' | 'disputed' | 'won' | 'expired' | 'lost';

/** Opens a pending payment of ten euros or dollars, which is ten million credits. */
async function openOrder(method: Method) {
  const person = await world.newUser();
  const payment = await person.client.payments.createCheckout({ method, amount: 1_000 });
  const page = pageIdOf(payment);
  const { stripe, creem } = world;
  const paidEvent = world[method].pay(page);
  const eventOfStep: Record<Step, () => StripeEvent | CreemEvent> = {
    paid: () => paidEvent,
    part: () => (method === 'stripe' ? stripe.refund(page, 400) : creem.refund(page, 400)),
    // Stripe names the total of all refunds, Creem the amount of this one and the total.
    refunded: () => (method === 'stripe' ? stripe.refund(page, 1_000) : creem.refund(page, 600, 1_000)),
    disputed: () => (method === 'stripe' ? stripe.dispute('created', page) : creem.dispute(page)),
    won: () => stripe.dispute('closed', page, { status: 'won' }),
    lost: () => stripe.dispute('closed', page, { status: 'lost' }),
    expired: () =>
      stripe.event('checkout.session.expired', {
        ...stripe.sessions.get(page),
        status: 'expired',
        payment_status: 'unpaid',
      }),
  };
  return { ...person, payment, deliver: (step: Step) => world.deliver(method, eventOfStep[step]()) };
}

/** All permutations of the items. */
function permutationsOf<T>(items: readonly T[]): T[][] {
  return items.length <= 1
    ? [[...items]]
    : items.flatMap((item, position) =>
        permutationsOf(items.filter((_, index) => index !== position)).map((order) => [item, ...order]),
      );
}

/** Delivers the events of a new payment twice and returns its final state. */
async function deliverAll(
  method: Method,
  steps: readonly Step[],
): Promise<{ payment: Payment; balance: { posted: bigint; owed: bigint } }> {
  const { userId, client, payment, deliver } = await openOrder(method);
  for (const step of steps) expect((await deliver(step)).status).toBe(200);
  // Providers may deliver an event twice.
  for (const step of steps) expect(await deliver(step)).toMatchObject({ status: 200 });
  return {
    payment: await client.payments.getPayment({ payment_id: payment.payment_id }),
    balance: await world.balance(userId),
  };
}

const disputeOrders: [Method, Step[]][] = (['stripe', 'creem'] as const).flatMap((method) =>
  permutationsOf<Step>(['paid', 'refunded', 'disputed']).map((steps): [Method, Step[]] => [method, steps]),
);
const partialRefundOrders: [Method, Step[]][] = (['stripe', 'creem'] as const).flatMap((method) =>
  permutationsOf<Step>(['paid', 'part', 'refunded']).map((steps): [Method, Step[]] => [method, steps]),
);

describe('a payment', () => {
  test.each(disputeOrders)('through %s ends without credits after: %s', async (method, steps) => {
    const { payment, balance } = await deliverAll(method, steps);
    expect([payment.state, payment.net_credits, payment.refunded_amount, payment.disputed_amount]).toEqual([
      'disputed',
      0,
      1_000,
      1_000,
    ]);
    expect(balance).toEqual({ posted: 0n, owed: 0n });
  });

  test.each(partialRefundOrders)('through %s ends as refunded after: %s', async (method, steps) => {
    const { payment, balance } = await deliverAll(method, steps);
    expect([payment.state, payment.net_credits, payment.refunded_amount]).toEqual(['refunded', 0, 1_000]);
    expect(balance).toEqual({ posted: 0n, owed: 0n });
  });

  test.each(permutationsOf<Step>(['paid', 'part', 'disputed', 'won']).map((steps) => [steps]))(
    'keeps the credits that were not refunded after: %s',
    async (steps) => {
      const { payment, balance } = await deliverAll('stripe', steps);
      expect([
        payment.state,
        payment.net_credits,
        payment.disputed_amount,
        payment.dispute_won_at === null,
      ]).toEqual(['partially_refunded', 6_000_000, 0, false]);
      expect(balance).toEqual({ posted: 6_000_000n, owed: 0n });
    },
  );

  test.each(permutationsOf<Step>(['paid', 'disputed', 'lost']).map((steps) => [steps]))(
    'stays disputed after: %s',
    async (steps) => {
      const { payment, balance } = await deliverAll('stripe', steps);
      expect([payment.state, payment.net_credits, payment.dispute_won_at]).toEqual(['disputed', 0, null]);
      expect(balance).toEqual({ posted: 0n, owed: 0n });
    },
  );

  test.each(permutationsOf<Step>(['paid', 'expired']).map((steps) => [steps]))(
    'is paid after: %s',
    async (steps) => {
      const { payment, balance } = await deliverAll('stripe', steps);
      expect([payment.state, payment.net_credits, payment.expired_at === null]).toEqual([
        'paid',
        10_000_000,
        false,
      ]);
      expect(balance).toEqual({ posted: 10_000_000n, owed: 0n });
    },
  );

  test('is expired until it is paid', async () => {
    const { client, payment, deliver } = await openOrder('stripe');
    const state = async () => (await client.payments.getPayment({ payment_id: payment.payment_id })).state;
    await deliver('expired');
    expect(await state()).toBe('expired');
    await deliver('paid');
    expect(await state()).toBe('paid');
  });

  // Ten million credits, of which the user spends seven. Refunds take back four million, then all
  // ten.
  test('leaves a debt when spent credits are refunded', async () => {
    const { userId, client, deliver } = await openOrder('stripe');
    await deliver('paid');
    await world.spend(userId, 7_000_000n);
    await deliver('part');
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 1_000_000n });
    await deliver('refunded');
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 7_000_000n });
    const nextPayment = await client.payments.createCheckout({ method: 'stripe', amount: 900 });
    await world.deliver('stripe', world.stripe.pay(pageIdOf(nextPayment)));
    expect(await world.balance(userId)).toEqual({ posted: 2_000_000n, owed: 0n });
  });

  test('repays the debt first when a dispute is won', async () => {
    const { userId, deliver } = await openOrder('stripe');
    await deliver('paid');
    await world.spend(userId, 10_000_000n);
    await deliver('disputed');
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 10_000_000n });
    await deliver('won');
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
  });

  test('has the same result when all events arrive at once', async () => {
    for (let round = 0; round < 5; round += 1) {
      const { userId, deliver } = await openOrder('stripe');
      const answers = await Promise.all(
        (['disputed', 'refunded', 'paid', 'won', 'part', 'paid'] as const).map((step) => deliver(step)),
      );
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
      expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
    }
  });

  test('parks a refund that arrives before the payment', async () => {
    const { userId, deliver } = await openOrder('stripe');
    expect(await deliver('part')).toMatchObject({ status: 200, outcome: 'quarantined' });
    expect((await world.quarantined()).at(-1)?.reason).toBe('unknown_payment');
    expect(await deliver('paid')).toMatchObject({ status: 200, outcome: 'accepted' });
    expect([await world.balance(userId), await world.postings(userId)]).toEqual([
      { posted: 6_000_000n, owed: 0n },
      1,
    ]);
  });

  test('logs a parked refund without a warning', async () => {
    const { deliver } = await openOrder('stripe');
    const start = world.logLines.length;
    await deliver('part');
    const lines = world.logLines.slice(start).join('');
    expect(lines).toContain('a payment event waits for its payment');
    expect(lines).not.toContain('was quarantined');
  });

  test('keeps the sum of the ledger at zero', async () => {
    expect(await world.ledgerSum()).toBe(0n);
  });
});

describe('a payment whose webhooks are lost', () => {
  test('is settled by polling the provider', async () => {
    const paidOrder = await openOrder('stripe');
    const expiredOrder = await openOrder('stripe');
    const unpaidOrder = await openOrder('stripe');
    const creemOrder = await openOrder('creem');
    // `openOrder` creates an event that marks the page as paid; these pages were not paid.
    Object.assign(world.stripe.sessions.get(pageIdOf(expiredOrder.payment)) ?? {}, {
      status: 'expired',
      payment_status: 'unpaid',
    });
    Object.assign(world.stripe.sessions.get(pageIdOf(unpaidOrder.payment)) ?? {}, {
      status: 'open',
      payment_status: 'unpaid',
    });
    const stateOf = async ({ client, payment }: typeof paidOrder) =>
      (await client.payments.getPayment({ payment_id: payment.payment_id })).state;
    expect(await world.poll()).toBeGreaterThanOrEqual(3);
    expect([
      await stateOf(paidOrder),
      await stateOf(expiredOrder),
      await stateOf(unpaidOrder),
      await stateOf(creemOrder),
    ]).toEqual(['paid', 'expired', 'pending', 'paid']);
    expect([await world.balance(paidOrder.userId), await world.balance(creemOrder.userId)]).toEqual([
      { posted: 10_000_000n, owed: 0n },
      { posted: 10_000_000n, owed: 0n },
    ]);
    // A late webhook changes nothing, and refunds are still accepted.
    expect(await paidOrder.deliver('paid')).toMatchObject({ status: 200, outcome: 'duplicate' });
    expect(await paidOrder.deliver('part')).toMatchObject({ outcome: 'accepted' });
    expect(await world.poll()).toBe(0);
    expect([await world.balance(paidOrder.userId), await world.postings(paidOrder.userId)]).toEqual([
      { posted: 6_000_000n, owed: 0n },
      2,
    ]);
  });

  test('is polled for seven days', async () => {
    const { payment } = await openOrder('stripe');
    const page = pageIdOf(payment);
    Object.assign(world.stripe.sessions.get(page) ?? {}, { status: 'open', payment_status: 'unpaid' });
    const countRequests = () => world.stripe.requests.filter(({ path }) => path.endsWith(page)).length;
    await world.poll();
    expect(countRequests()).toBe(1);
    await world.sql`
      update gateway.payments_orders set created_at = created_at - interval '8 days'
      where payment_id = ${payment.payment_id}`;
    await world.poll();
    expect(countRequests()).toBe(1);
  });
});
