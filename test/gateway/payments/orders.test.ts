// Whatever the order in which a provider tells of a payment, of its refunds and of its disputes, it ends alike.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Payment } from '@townhall/gateway';
import type { CreemEvent } from '../../support/creem.ts';
import type { StripeEvent } from '../../support/stripe.ts';
import { startPayments, type PaymentsWorld } from './world.ts';

let world: PaymentsWorld;
beforeAll(async () => {
  world = await startPayments();
});
afterAll(() => world?.close());

type Method = 'stripe' | 'creem';
type Told = 'paid' | 'part' | 'refunded' | 'disputed' | 'won' | 'expired' | 'lost';

/** Ten euros or dollars, ten million credits. */
async function waiting(method: Method) {
  const person = await world.newUser();
  const payment = await person.client.payments.createCheckout({ method, amount: 1_000 });
  const page = payment.checkout_url?.split('/').at(-1) ?? '';
  const { stripe, creem } = world;
  const paid = world[method].pay(page);
  const says: Record<Told, () => StripeEvent | CreemEvent> = {
    paid: () => paid,
    part: () => (method === 'stripe' ? stripe.refund(page, 400) : creem.refund(page, 400)),
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
  return { ...person, payment, tell: (what: Told) => world.deliver(method, says[what]()) };
}

function orders<T>(items: readonly T[]): T[][] {
  return items.length <= 1
    ? [[...items]]
    : items.flatMap((item, at) =>
        orders(items.filter((_, other) => other !== at)).map((rest) => [item, ...rest]),
      );
}

async function end(
  method: Method,
  told: readonly Told[],
): Promise<{ payment: Payment; balance: { posted: bigint; owed: bigint } }> {
  const { userId, client, payment, tell } = await waiting(method);
  for (const what of told) expect((await tell(what)).status).toBe(200);
  // And once more, as providers do.
  for (const what of told) expect(await tell(what)).toMatchObject({ status: 200 });
  return {
    payment: await client.payments.getPayment({ payment_id: payment.payment_id }),
    balance: await world.balance(userId),
  };
}

const six: [Method, Told[]][] = (['stripe', 'creem'] as const).flatMap((method) =>
  orders<Told>(['paid', 'refunded', 'disputed']).map((told): [Method, Told[]] => [method, told]),
);
const partly: [Method, Told[]][] = (['stripe', 'creem'] as const).flatMap((method) =>
  orders<Told>(['paid', 'part', 'refunded']).map((told): [Method, Told[]] => [method, told]),
);

describe('a payment', () => {
  test.each(six)('through %s that is %s brings nothing in the end', async (method, told) => {
    const { payment, balance } = await end(method, told);
    expect([payment.state, payment.net_credits, payment.refunded_amount, payment.disputed_amount]).toEqual([
      'disputed',
      0,
      1_000,
      1_000,
    ]);
    expect(balance).toEqual({ posted: 0n, owed: 0n });
  });

  test.each(partly)('through %s that is %s is refunded in the end', async (method, told) => {
    const { payment, balance } = await end(method, told);
    expect([payment.state, payment.net_credits, payment.refunded_amount]).toEqual(['refunded', 0, 1_000]);
    expect(balance).toEqual({ posted: 0n, owed: 0n });
  });

  test.each(orders<Told>(['paid', 'part', 'disputed', 'won']).map((told) => [told]))(
    'that is %s keeps what was neither refunded nor lost',
    async (told) => {
      const { payment, balance } = await end('stripe', told);
      expect([
        payment.state,
        payment.net_credits,
        payment.disputed_amount,
        payment.dispute_won_at === null,
      ]).toEqual(['partially_refunded', 6_000_000, 0, false]);
      expect(balance).toEqual({ posted: 6_000_000n, owed: 0n });
    },
  );

  test.each(orders<Told>(['paid', 'disputed', 'lost']).map((told) => [told]))(
    'that is %s is lost',
    async (told) => {
      const { payment, balance } = await end('stripe', told);
      expect([payment.state, payment.net_credits, payment.dispute_won_at]).toEqual(['disputed', 0, null]);
      expect(balance).toEqual({ posted: 0n, owed: 0n });
    },
  );

  test.each(orders<Told>(['paid', 'expired']).map((told) => [told]))('that is %s is paid', async (told) => {
    const { payment, balance } = await end('stripe', told);
    expect([payment.state, payment.net_credits, payment.expired_at === null]).toEqual([
      'paid',
      10_000_000,
      false,
    ]);
    expect(balance).toEqual({ posted: 10_000_000n, owed: 0n });
  });

  test('that expired says so until it is paid', async () => {
    const { client, payment, tell } = await waiting('stripe');
    const state = async () => (await client.payments.getPayment({ payment_id: payment.payment_id })).state;
    await tell('expired');
    expect(await state()).toBe('expired');
    await tell('paid');
    expect(await state()).toBe('paid');
  });

  test('whose credits were spent leaves a debt when it is refunded, which the next payment repays', async () => {
    const { userId, client, tell } = await waiting('stripe');
    await tell('paid');
    await world.spend(userId, 7_000_000n);
    await tell('part');
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 1_000_000n });
    await tell('refunded');
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 7_000_000n });
    const next = await client.payments.createCheckout({ method: 'stripe', amount: 900 });
    await world.deliver('stripe', world.stripe.pay(next.checkout_url?.split('/').at(-1) ?? ''));
    expect(await world.balance(userId)).toEqual({ posted: 2_000_000n, owed: 0n });
  });

  test('that is disputed and won gives back what was taken, the debt first', async () => {
    const { userId, tell } = await waiting('stripe');
    await tell('paid');
    await world.spend(userId, 10_000_000n);
    await tell('disputed');
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 10_000_000n });
    await tell('won');
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
  });

  test('never ends otherwise when all of it is told at the same time', async () => {
    for (let round = 0; round < 5; round += 1) {
      const { userId, tell } = await waiting('stripe');
      const answers = await Promise.all(
        (['disputed', 'refunded', 'paid', 'won', 'part', 'paid'] as const).map((what) => tell(what)),
      );
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
      expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
    }
  });

  test('that is refunded before it was heard of waits with an entry in the audit log, and counts once it is', async () => {
    const { userId, tell } = await waiting('stripe');
    expect(await tell('part')).toMatchObject({ status: 200, outcome: 'quarantined' });
    expect((await world.quarantined()).at(-1)?.reason).toBe('unknown_payment');
    expect(await tell('paid')).toMatchObject({ status: 200, outcome: 'accepted' });
    expect([await world.balance(userId), await world.postings(userId)]).toEqual([
      { posted: 6_000_000n, owed: 0n },
      1,
    ]);
  });

  test('leaves a ledger that adds up', async () => {
    expect(await world.ledgerSum()).toBe(0n);
  });
});

describe('a payment whose webhooks are lost', () => {
  test('is found by asking the provider', async () => {
    const [paid, expired, open, creem] = [
      await waiting('stripe'),
      await waiting('stripe'),
      await waiting('stripe'),
      await waiting('creem'),
    ];
    const pageOf = ({ payment }: { payment: Payment }): string =>
      payment.checkout_url?.split('/').at(-1) ?? '';
    // Making the page's event is what `waiting` did; these were not paid.
    Object.assign(world.stripe.sessions.get(pageOf(expired)) ?? {}, {
      status: 'expired',
      payment_status: 'unpaid',
    });
    Object.assign(world.stripe.sessions.get(pageOf(open)) ?? {}, {
      status: 'open',
      payment_status: 'unpaid',
    });
    const stateOf = async ({ client, payment }: typeof paid) =>
      (await client.payments.getPayment({ payment_id: payment.payment_id })).state;
    expect(await world.look()).toBeGreaterThanOrEqual(3);
    expect([await stateOf(paid), await stateOf(expired), await stateOf(open), await stateOf(creem)]).toEqual([
      'paid',
      'expired',
      'pending',
      'paid',
    ]);
    expect([await world.balance(paid.userId), await world.balance(creem.userId)]).toEqual([
      { posted: 10_000_000n, owed: 0n },
      { posted: 10_000_000n, owed: 0n },
    ]);
    // The webhook that comes after all says nothing new, and refunds are still heard.
    expect(await paid.tell('paid')).toMatchObject({ status: 200, outcome: 'duplicate' });
    expect(await paid.tell('part')).toMatchObject({ outcome: 'accepted' });
    expect(await world.look()).toBe(0);
    expect([await world.balance(paid.userId), await world.postings(paid.userId)]).toEqual([
      { posted: 6_000_000n, owed: 0n },
      2,
    ]);
  });

  test('is asked about for seven days, and by nobody twice at once', async () => {
    const { payment } = await waiting('stripe');
    const page = payment.checkout_url?.split('/').at(-1) ?? '';
    Object.assign(world.stripe.sessions.get(page) ?? {}, { status: 'open', payment_status: 'unpaid' });
    const asked = () => world.stripe.requests.filter(({ path }) => path.endsWith(page)).length;
    await world.look();
    expect(asked()).toBe(1);
    await world.sql`update gateway.payments_orders set created_at = created_at - interval '8 days' where payment_id = ${payment.payment_id}`;
    await world.look();
    expect(asked()).toBe(1);
  });
});
