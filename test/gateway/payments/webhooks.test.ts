// Webhooks of the providers: signatures, repeated events and quarantined events.
import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { CreemEvent } from '../../support/creem.ts';
import { makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import type { StripeEvent } from '../../support/stripe.ts';
import { pageIdOf, startPayments, type PaymentsWorld } from './world.ts';

let world: PaymentsWorld;
beforeAll(async () => {
  world = await startPayments({
    env: {
      STRIPE_WEBHOOK_SECRET_PREVIOUS: 'whsec_previous_one',
      CREEM_WEBHOOK_SECRET_PREVIOUS: 'creem_previous_one',
    },
  });
});
afterAll(() => world?.close());

/** Opens a pending payment; `page` is the id of its checkout at the provider. */
async function openOrder(method: 'stripe' | 'creem', overrides: { amount?: number } = {}) {
  const person = await world.newUser();
  const payment = await person.client.payments.createCheckout({ method, amount: overrides.amount ?? 1_000 });
  return { ...person, payment, page: pageIdOf(payment) };
}

async function countEvents(): Promise<number> {
  return (await world.sql`select 1 from gateway.payments_events`).length;
}

type Delivery = [body: string, headers: Record<string, string | string[]>];

/** An event of Stripe with its signature. */
interface SignedEvent {
  event: StripeEvent;
  body: string;
  signature: string;
  nowSeconds: number;
}

function signStripe(event: StripeEvent): SignedEvent {
  return { event, ...world.stripe.sign(event), nowSeconds: Math.floor(Date.now() / 1000) };
}

const stripeHeader = (signature: string | string[]) => ({ 'stripe-signature': signature });

describe('payments.receiveStripeEvent', () => {
  test.each<[string, (signed: SignedEvent) => Delivery]>([
    ['a changed body', ({ body, signature }) => [body.replace('1000', '9000'), stripeHeader(signature)]],
    [
      'a body that was serialized again',
      ({ body, signature }) => [JSON.stringify(JSON.parse(body), null, 2), stripeHeader(signature)],
    ],
    ['no signature', ({ body }) => [body, {}]],
    ['an empty signature', ({ body }) => [body, stripeHeader('')]],
    [
      'a signature of the scheme v0',
      ({ event, body }) => [body, stripeHeader(world.stripe.sign(event, { scheme: 'v0' }).signature)],
    ],
    [
      'a signature that is too old',
      ({ event, body, nowSeconds }) => [
        body,
        stripeHeader(world.stripe.sign(event, { atSeconds: nowSeconds - 310 }).signature),
      ],
    ],
    [
      'a signature from the future',
      ({ event, body, nowSeconds }) => [
        body,
        stripeHeader(world.stripe.sign(event, { atSeconds: nowSeconds + 310 }).signature),
      ],
    ],
    [
      "a signature with Creem's secret",
      ({ event, body }) => [
        body,
        stripeHeader(world.stripe.sign(event, { secret: world.creem.webhookSecret }).signature),
      ],
    ],
    [
      'a signature with an empty secret',
      ({ body, nowSeconds }) => {
        const digest = createHmac('sha256', '').update(`${nowSeconds}.${body}`).digest('hex');
        return [body, stripeHeader(`t=${nowSeconds},v1=${digest}`)];
      },
    ],
    ['two signature headers', ({ body, signature }) => [body, stripeHeader([signature, signature])]],
    ["a signature in Creem's header", ({ body, signature }) => [body, { 'creem-signature': signature }]],
    // The signature is checked before the body is parsed.
    [
      'a body that is not JSON, with the signature of another',
      ({ signature }) => ['{', stripeHeader(signature)],
    ],
  ])('refuses %s', async (_name, forge) => {
    const { userId, page } = await openOrder('stripe');
    const countBefore = await countEvents();
    const [body, headers] = forge(signStripe(world.stripe.pay(page)));
    expect(await world.post('stripe', body, headers)).toMatchObject({
      status: 400,
      code: 'invalid_signature',
    });
    expect(await countEvents()).toBe(countBefore);
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
  });

  test('accepts one valid signature of several', async () => {
    const { userId, page } = await openOrder('stripe');
    const { body, signature } = signStripe(world.stripe.pay(page));
    const rotatingSignature = signature.replace(',v1=', `,v1=${'0'.repeat(64)},v1=`);
    expect(await world.post('stripe', body, stripeHeader(rotatingSignature))).toMatchObject({
      status: 200,
      outcome: 'accepted',
    });
    expect(await world.balance(userId)).toEqual({ posted: 10_000_000n, owed: 0n });
  });

  test('accepts a signature with the previous secret', async () => {
    const { page } = await openOrder('stripe');
    const { body, signature } = world.stripe.sign(world.stripe.pay(page), { secret: 'whsec_previous_one' });
    expect(await world.post('stripe', body, stripeHeader(signature))).toMatchObject({
      status: 200,
      outcome: 'accepted',
    });
  });

  test.each<[string, (page: string) => StripeEvent]>([
    ['another kind of object', () => world.stripe.event('customer.created', { id: 'cus_1' })],
    [
      'a subscription',
      (page) =>
        world.stripe.event('checkout.session.completed', {
          ...world.stripe.sessions.get(page),
          mode: 'subscription',
          payment_status: 'paid',
        }),
    ],
    [
      'an unpaid session',
      (page) =>
        world.stripe.event('checkout.session.completed', {
          ...world.stripe.sessions.get(page),
          payment_status: 'unpaid',
        }),
    ],
    [
      'an inquiry that is not a dispute yet',
      (page) => world.stripe.dispute('created', page, { status: 'warning_needs_response' }),
    ],
  ])('ignores an event of %s', async (_name, createEvent) => {
    const countBefore = await countEvents();
    const { page } = await openOrder('stripe');
    expect(await world.deliver('stripe', createEvent(page))).toMatchObject({
      status: 200,
      outcome: 'ignored',
    });
    expect(await countEvents()).toBe(countBefore);
  });

  test('credits a delayed payment when the money arrives', async () => {
    const { userId, page } = await openOrder('stripe');
    const paidEvent = world.stripe.pay(page);
    expect(
      await world.deliver('stripe', { ...paidEvent, type: 'checkout.session.async_payment_succeeded' }),
    ).toMatchObject({ outcome: 'accepted' });
    expect(await world.balance(userId)).toEqual({ posted: 10_000_000n, owed: 0n });
  });
});

describe('payments.receiveCreemEvent', () => {
  test.each<[string, (event: CreemEvent, signature: string) => string]>([
    ['in upper case', (_event, signature) => signature.toUpperCase()],
    ['that is too short', (_event, signature) => signature.slice(2)],
    ['that is not hexadecimal', (_event, signature) => `${signature.slice(1)}g`],
    ["with Stripe's secret", (event) => world.creem.sign(event, world.stripe.webhookSecret).signature],
  ])('refuses a signature %s', async (_name, forge) => {
    const { userId, page } = await openOrder('creem');
    const event = world.creem.pay(page);
    const { body, signature } = world.creem.sign(event);
    expect(await world.post('creem', body, { 'creem-signature': forge(event, signature) })).toMatchObject({
      status: 400,
      code: 'invalid_signature',
    });
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
  });

  test('accepts a signature with the previous secret', async () => {
    const { userId, page } = await openOrder('creem');
    const { body, signature } = world.creem.sign(world.creem.pay(page), 'creem_previous_one');
    expect(await world.post('creem', body, { 'creem-signature': signature })).toMatchObject({
      status: 200,
      outcome: 'accepted',
    });
    expect(await world.balance(userId)).toEqual({ posted: 10_000_000n, owed: 0n });
  });
});

describe.each(['stripe', 'creem'] as const)('a signed body of %s', (method) => {
  test.each([
    ['{', 'invalid_json'],
    ['[]', 'invalid_request'],
    ['{"object":"event"}', 'invalid_request'],
    [String.raw`{"id":"evt_\u0000"}`, 'invalid_request'],
    [String.raw`{"id":"evt_\ud800"}`, 'invalid_request'],
  ])('is refused when it is %s', async (text, code) => {
    const { body, signature } = world[method].sign(text);
    expect(await world.post(method, body, { [`${method}-signature`]: signature })).toMatchObject({
      status: 400,
      code,
    });
  });
});

describe('an event', () => {
  test('is recorded with its sender', async () => {
    const { payment, page } = await openOrder('stripe');
    const event = world.stripe.pay(page);
    await world.deliver('stripe', event);
    const entries = await world.sql`
      select actor_kind, address, outcome, diff from gateway.audit_entries
      where action = 'payments.accepted' and target_id = ${payment.payment_id}`;
    expect(entries).toEqual([
      {
        actor_kind: 'guest',
        address: '127.0.0.1',
        outcome: 'ok',
        diff: { provider: 'stripe', event_id: event.id, type: event.type, fact: 'paid' },
      },
    ]);
  });

  test('counts once when it is replayed a year later', async () => {
    const place: DatabasePlace = await makeDatabase();
    let gateway = await startPayments({ beside: world, place });
    try {
      const { userId, client } = await gateway.newUser();
      const payment = await client.payments.createCheckout({ method: 'creem', amount: 500 });
      const event = gateway.creem.pay(pageIdOf(payment));
      expect(await gateway.deliver('creem', event)).toMatchObject({ outcome: 'accepted' });
      // A year passes: the stored time gets older, and the server is restarted.
      await gateway.sql`update gateway.payments_events set received_at = received_at - interval '1 year'`;
      await gateway.close();
      gateway = await startPayments({ beside: world, place });
      for (const copy of [event, { ...event, id: 'evt_made_up' }])
        expect(await gateway.deliver('creem', copy)).toMatchObject({ status: 200, outcome: 'duplicate' });
      expect([await gateway.balance(userId), await gateway.postings(userId)]).toEqual([
        { posted: 5_000_000n, owed: 0n },
        1,
      ]);
    } finally {
      await gateway.close();
      await place.remove();
    }
  });

  test.each(['stripe', 'creem'] as const)(
    'of %s is credited once when copies arrive at once',
    async (method) => {
      const { userId, page } = await openOrder(method);
      const event = world[method].pay(page);
      // Every fourth copy has an event ID of its own.
      const copies = Array.from({ length: 40 }, (_, index) => ({
        ...event,
        id: index % 4 === 0 ? `${event.id}_${index}` : event.id,
      }));
      const answers = await Promise.all(copies.map((copy) => world.deliver(method, copy)));
      expect(answers.map(({ status }) => status)).toEqual(copies.map(() => 200));
      expect(answers.filter(({ outcome }) => outcome === 'accepted')).toHaveLength(1);
      expect([await world.balance(userId), await world.postings(userId)]).toEqual([
        { posted: 10_000_000n, owed: 0n },
        1,
      ]);
      expect(await world.ledgerSum()).toBe(0n);
    },
  );
});

describe('an event that contradicts its payment', () => {
  test.each<[string, 'stripe' | 'creem', (event: StripeEvent & CreemEvent) => object]>([
    ['amount', 'stripe', (event) => withObject(event, { amount_total: 1 })],
    ['currency', 'stripe', (event) => withObject(event, { currency: 'jpy' })],
    ['mode', 'stripe', (event) => ({ ...event, livemode: true })],
    [
      'payment_id',
      'stripe',
      (event) => withObject(event, { client_reference_id: 'pay_01jd6zv0c5e9fsr8m2w4x1k7qa' }),
    ],
    [
      'payment_id',
      'stripe',
      (event) => withObject(event, { metadata: { payment_id: 'pay_01jd6zv0c5e9fsr8m2w4x1k7qa' } }),
    ],
    [
      'unknown_payment',
      'stripe',
      (event) => withObject(event, { id: 'cs_test_nobody', client_reference_id: null, metadata: {} }),
    ],
    ['unreadable', 'stripe', (event) => withObject(event, { amount_total: null })],
    [
      'amount',
      'creem',
      (event) => withObject(event, { order: { ...(event.object['order'] as object), amount_paid: 999 } }),
    ],
    [
      'currency',
      'creem',
      (event) => withObject(event, { order: { ...(event.object['order'] as object), currency: 'USD' } }),
    ],
    [
      'product',
      'creem',
      (event) =>
        withObject(event, { order: { ...(event.object['order'] as object), product: 'prod_cheap' } }),
    ],
    ['mode', 'creem', (event) => withObject(event, { mode: 'prod' })],
    ['payment_id', 'creem', (event) => withObject(event, { request_id: 'pay_01jd6zv0c5e9fsr8m2w4x1k7qa' })],
    [
      'unknown_payment',
      'creem',
      (event) => withObject(event, { id: 'ch_nobody', request_id: 'x', metadata: {} }),
    ],
  ])('is quarantined and audited for the reason %s (%s)', async (reason, method, change) => {
    const { userId, client, payment, page } = await openOrder(method);
    const event = {
      ...world[method].pay(page),
      ...change(world[method].pay(page) as StripeEvent & CreemEvent),
      id: `evt_changed_${crypto.randomUUID()}`,
    } as StripeEvent & CreemEvent;
    expect(await world.deliver(method, event)).toMatchObject({ status: 200, outcome: 'quarantined' });
    expect(await world.deliver(method, event)).toMatchObject({ status: 200, outcome: 'duplicate' });
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
    expect((await client.payments.getPayment({ payment_id: payment.payment_id })).state).toBe('pending');
    expect((await world.quarantined()).filter(({ event: id }) => id === event.id)).toEqual([
      { event: event.id, reason },
    ]);
    // The correct event is still accepted.
    expect(await world.deliver(method, world[method].pay(page))).toMatchObject({ outcome: 'accepted' });
    expect(await world.balance(userId)).toEqual({ posted: 10_000_000n, owed: 0n });
  });

  test.each(['stripe', 'creem'] as const)(
    'of %s with a time or ID that cannot be stored is quarantined',
    async (method) => {
      const { userId, page } = await openOrder(method);
      const paidEvent = world[method].pay(page) as StripeEvent & CreemEvent;
      const time =
        method === 'stripe' ? { created: Number.MAX_SAFE_INTEGER } : { created_at: Number.MAX_SAFE_INTEGER };
      const text =
        method === 'stripe' ? withObject(paidEvent, { id: 'cs_\0' }) : withObject(paidEvent, { id: 'ch_\0' });
      for (const members of [time, text]) {
        const event = { ...paidEvent, ...members, id: `evt_changed_${crypto.randomUUID()}` };
        expect(await world.deliver(method, event)).toMatchObject({ status: 200, outcome: 'quarantined' });
      }
      expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
    },
  );

  test('that refunds more than was paid is quarantined', async () => {
    const { userId, page } = await openOrder('stripe');
    expect(await world.deliver('stripe', world.stripe.pay(page))).toMatchObject({ outcome: 'accepted' });
    const event = world.stripe.refund(page, 1_001);
    expect(await world.deliver('stripe', event)).toMatchObject({ status: 200, outcome: 'quarantined' });
    expect((await world.quarantined()).filter(({ event: id }) => id === event.id)).toEqual([
      { event: event.id, reason: 'amount' },
    ]);
    expect(await world.balance(userId)).toEqual({ posted: 10_000_000n, owed: 0n });
  });

  test('of one provider does not affect payments of the other', async () => {
    const { userId, payment } = await openOrder('stripe');
    const otherOrder = await openOrder('creem');
    const event = world.creem.pay(otherOrder.page);
    const forgedEvent = {
      ...event,
      object: {
        ...event.object,
        id: pageIdOf(payment),
        request_id: payment.payment_id,
        metadata: { payment_id: payment.payment_id },
      },
    };
    expect(await world.deliver('creem', forgedEvent)).toMatchObject({ status: 200, outcome: 'quarantined' });
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
  });

  test('for a removed user is quarantined', async () => {
    const { userId, page } = await openOrder('stripe');
    await world.admin.accounts.removeUser({ user_id: userId });
    const event = world.stripe.pay(page);
    expect(await world.deliver('stripe', event)).toMatchObject({ status: 200, outcome: 'quarantined' });
    expect((await world.quarantined()).at(-1)).toEqual({ event: event.id, reason: 'unknown_user' });
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
  });

  test('for a removed user is quarantined although its checkout was not saved', async () => {
    const { userId, page } = await openOrder('stripe');
    await world.admin.accounts.removeUser({ user_id: userId });
    const event = world.stripe.pay(page);
    // The process died before it saved the checkout.
    await world.sql`update gateway.payments_orders set checkout_id = null where user_id = ${userId}`;
    expect(await world.deliver('stripe', event)).toMatchObject({ status: 200, outcome: 'quarantined' });
    expect((await world.quarantined()).at(-1)).toEqual({ event: event.id, reason: 'unknown_user' });
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
  });
});

describe('an event with a conflicting reference', () => {
  test.each<['stripe' | 'creem', (event: StripeEvent & CreemEvent) => object]>([
    ['stripe', (event) => withObject(event, { payment_intent: 'pi_another' })],
    [
      'creem',
      (event) => withObject(event, { order: { ...(event.object['order'] as object), id: 'ord_another' } }),
    ],
  ])('is quarantined when a paid checkout of %s gets another reference', async (method, change) => {
    const { userId, page } = await openOrder(method);
    const paidEvent = world[method].pay(page) as StripeEvent & CreemEvent;
    expect(await world.deliver(method, paidEvent)).toMatchObject({ outcome: 'accepted' });
    const event = { ...paidEvent, ...change(paidEvent), id: `evt_changed_${crypto.randomUUID()}` };
    expect(await world.deliver(method, event)).toMatchObject({ status: 200, outcome: 'quarantined' });
    expect((await world.quarantined()).filter(({ event: id }) => id === event.id)).toEqual([
      { event: event.id, reason: 'reference' },
    ]);
    expect([await world.balance(userId), await world.postings(userId)]).toEqual([
      { posted: 10_000_000n, owed: 0n },
      1,
    ]);
  });

  test.each(['stripe', 'creem'] as const)(
    'is quarantined when another %s payment has its reference',
    async (method) => {
      const [firstOrder, secondOrder] = [await openOrder(method), await openOrder(method)];
      const paidEvent = world[method].pay(firstOrder.page) as StripeEvent & CreemEvent;
      expect(await world.deliver(method, paidEvent)).toMatchObject({ outcome: 'accepted' });
      const otherEvent = world[method].pay(secondOrder.page) as StripeEvent & CreemEvent;
      const event =
        method === 'stripe'
          ? {
              ...otherEvent,
              data: {
                object: {
                  ...(otherEvent.data.object as object),
                  payment_intent: (paidEvent.data.object as { payment_intent: string }).payment_intent,
                },
              },
            }
          : {
              ...otherEvent,
              ...withObject(otherEvent, {
                order: {
                  ...(otherEvent.object['order'] as object),
                  id: (paidEvent.object['order'] as { id: string }).id,
                },
              }),
            };
      expect(await world.deliver(method, event)).toMatchObject({ status: 200, outcome: 'quarantined' });
      expect((await world.quarantined()).filter(({ event: id }) => id === event.id)).toEqual([
        { event: event.id, reason: 'reference' },
      ]);
      expect([await world.balance(firstOrder.userId), await world.balance(secondOrder.userId)]).toEqual([
        { posted: 10_000_000n, owed: 0n },
        { posted: 0n, owed: 0n },
      ]);
    },
  );

  test('is quarantined when another payment has its dispute', async () => {
    const [firstOrder, secondOrder] = [await openOrder('stripe'), await openOrder('stripe')];
    for (const { page } of [firstOrder, secondOrder])
      expect(await world.deliver('stripe', world.stripe.pay(page))).toMatchObject({ outcome: 'accepted' });
    const dispute = world.stripe.dispute('created', firstOrder.page);
    expect(await world.deliver('stripe', dispute)).toMatchObject({ outcome: 'accepted' });
    const event = world.stripe.dispute('created', secondOrder.page);
    const forgedEvent = {
      ...event,
      data: { object: { ...(event.data.object as object), id: (dispute.data.object as { id: string }).id } },
    };
    expect(await world.deliver('stripe', forgedEvent)).toMatchObject({ status: 200, outcome: 'quarantined' });
    expect((await world.balance(secondOrder.userId)).posted).toBe(10_000_000n);
  });
});

describe('the webhook endpoint', () => {
  const listMethods = async () =>
    (await world.guest.payments.listMethods()).items.map(({ method }) => method);

  test.each([
    ['STRIPE_WEBHOOK_SECRET', 'stripe', ''],
    ['STRIPE_SECRET_KEY', 'stripe', ' '],
    ['CREEM_WEBHOOK_SECRET', 'creem', ''],
    ['CREEM_API_KEY', 'creem', ''],
    ['CREEM_PRODUCT_ID', 'creem', ''],
  ] as const)('does not exist without %s', async (key, method, value) => {
    const methodNotFound = { status: 404, code: 'payment_method_not_found' };
    await world.admin.env.upsertVariable({ key, value });
    try {
      await expect.poll(listMethods).not.toContain(method);
      await expect(world.user.payments.createCheckout({ method, amount: 500 })).rejects.toMatchObject(
        methodNotFound,
      );
      const { body } = world[method].sign('{"id":"evt_1"}');
      const signature =
        method === 'stripe'
          ? `t=${Math.floor(Date.now() / 1000)},v1=${'0'.repeat(64)}`
          : createHmac('sha256', '').update(body).digest('hex');
      expect(await world.post(method, body, { [`${method}-signature`]: signature })).toMatchObject(
        methodNotFound,
      );
    } finally {
      await world.admin.env.removeVariable({ key });
    }
    await expect.poll(listMethods).toContain(method);
  });

  test.each([
    ['currency', { currency: 'USD' }],
    ['price', { price: 0 }],
    ['tax mode', { tax_mode: 'exclusive' }],
    ['billing type', { billing_type: 'recurring' }],
  ])('stays open while the product has a wrong %s', async (_name, product) => {
    const formerProduct = { ...world.creem.product };
    // A new gateway, since a gateway caches the product when it first uses it.
    const ownGateway = await startPayments({ beside: world });
    Object.assign(world.creem.product, product);
    try {
      const { items } = await ownGateway.guest.payments.listMethods();
      expect(items.map(({ method }) => method)).toEqual(['stripe']);
      await expect(
        ownGateway.user.payments.createCheckout({ method: 'creem', amount: 500 }),
      ).rejects.toMatchObject({ status: 404, code: 'payment_method_not_found' });
      expect(ownGateway.logLines.some((line) => line.includes('payments_product_unfit'))).toBe(true);
      const event = ownGateway.creem.event('checkout.completed', {});
      expect(await ownGateway.deliver('creem', event)).toMatchObject({ status: 200, outcome: 'ignored' });
    } finally {
      Object.assign(world.creem.product, formerProduct);
      await ownGateway.close();
    }
  });

  test('answers 503 while the event cannot be stored, and applies the next delivery once', async () => {
    const { userId, page } = await openOrder('stripe');
    const event = world.stripe.pay(page);
    const unlock = Promise.withResolvers<void>();
    const lockTaken = Promise.withResolvers<void>();
    const lockingTransaction = world.database.tx(async (tx) => {
      await tx`lock table gateway.payments_events in access exclusive mode`;
      lockTaken.resolve();
      await unlock.promise;
    });
    await lockTaken.promise;
    const delivery = world.deliver('stripe', event);
    await expect(delivery).resolves.toMatchObject({ status: 503, outcome: undefined });
    unlock.resolve();
    // The database aborts a transaction that holds a lock for too long.
    await lockingTransaction.catch(() => undefined);
    // The first delivery may have completed late; either way the event counts once.
    expect((await world.deliver('stripe', event)).status).toBe(200);
    await expect.poll(() => world.balance(userId)).toEqual({ posted: 10_000_000n, owed: 0n });
    expect(await world.postings(userId)).toBe(1);
  }, 120_000);
});

function withObject(event: StripeEvent & CreemEvent, members: object): object {
  const { data, object } = event as { data?: StripeEvent['data']; object: Record<string, unknown> };
  return data
    ? { ...event, data: { object: { ...data.object, ...members } } }
    : { ...event, object: { ...object, ...members } };
}
