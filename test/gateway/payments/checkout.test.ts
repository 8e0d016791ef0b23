// Checkouts through both providers, from the payment page to the booked credits.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { pageIdOf, startPayments, type PaymentsWorld } from './world.ts';

let world: PaymentsWorld;
beforeAll(async () => {
  world = await startPayments();
});
afterAll(() => world?.close());

describe('payments.listMethods', () => {
  test('lists each method with its tariff for anyone', async () => {
    expect(await world.guest.payments.listMethods()).toEqual({
      items: [
        {
          method: 'stripe',
          label: expect.any(String),
          currency: 'usd',
          credits_per_unit: 1_000_000,
          minimum_amount: 100,
          maximum_amount: 100_000,
          amount_step: 1,
        },
        {
          method: 'creem',
          label: expect.any(String),
          currency: 'eur',
          credits_per_unit: 1_000_000,
          minimum_amount: 500,
          maximum_amount: 100_000,
          amount_step: 500,
        },
      ],
    });
  });

  test('follows changed settings without a restart', async () => {
    await world.admin.env.upsertVariable({ key: 'STRIPE_CURRENCY', value: 'JPY' });
    await world.admin.env.upsertVariable({ key: 'CREDITS_PER_UNIT', value: 'jpy:6500,eur:1080000' });
    const methods = async () => (await world.guest.payments.listMethods()).items;
    await expect.poll(methods).toMatchObject([
      // The smallest purchase is 1,000,000 credits, at 6,500 credits a yen.
      { method: 'stripe', currency: 'jpy', credits_per_unit: 6_500, minimum_amount: 154, amount_step: 1 },
      { method: 'creem', currency: 'eur', credits_per_unit: 1_080_000 },
    ]);
    const { client } = await world.newUser();
    const payment = await client.payments.createCheckout({ method: 'stripe', amount: 2_000 });
    expect(payment).toMatchObject({ amount: 2_000, currency: 'jpy', credits: 13_000_000 });
    expect(world.stripe.sessions.get(pageIdOf(payment))).toMatchObject({
      amount_total: 2_000,
      currency: 'jpy',
    });
    for (const key of ['STRIPE_CURRENCY', 'CREDITS_PER_UNIT']) await world.admin.env.removeVariable({ key });
    await expect.poll(async () => (await methods())[0]?.currency).toBe('usd');
  });
});

const resultPage = (result: 'success' | 'cancel') =>
  new RegExp(`^https://city\\.example\\.test/base/v1/payments/return/${result}\\?ticket=\\w{43}$`);

describe('payments.createCheckout', () => {
  test('opens a Stripe session for the payment', async () => {
    const { userId, client } = await world.newUser();
    const payment = await client.payments.createCheckout({
      method: 'stripe',
      credits: 12_345_678,
      return_to: 'http://127.0.0.1:43127/account?tab=credits',
    });
    expect(payment).toMatchObject({
      user_id: userId,
      bureau_id: 'local',
      method: 'stripe',
      state: 'pending',
      amount: 1_235,
      currency: 'usd',
      credits: 12_350_000,
      net_credits: 0,
      paid_at: null,
    });
    const session = world.stripe.sessions.get(pageIdOf(payment));
    expect(session).toMatchObject({
      client_reference_id: payment.payment_id,
      amount_total: 1_235,
      currency: 'usd',
      mode: 'payment',
      metadata: { payment_id: payment.payment_id },
    });
    expect(session?.success_url).toMatch(resultPage('success'));
    expect(session?.cancel_url).toMatch(resultPage('cancel'));
    const request = world.stripe.requests.find(
      ({ form }) => form['client_reference_id'] === payment.payment_id,
    );
    expect([
      request?.headers['idempotency-key'],
      request?.form['payment_intent_data[metadata][payment_id]'],
      request?.form['adaptive_pricing[enabled]'],
    ]).toEqual([payment.payment_id, payment.payment_id, 'false']);
  });

  test('raises the balance once for a Stripe payment', async () => {
    const { userId, client } = await world.newUser();
    const payment = await client.payments.createCheckout({ method: 'stripe', credits: 12_345_678 });
    const event = world.stripe.pay(pageIdOf(payment));
    expect(await world.deliver('stripe', event)).toMatchObject({ status: 200, outcome: 'accepted' });
    expect(await world.deliver('stripe', event)).toMatchObject({ status: 200, outcome: 'duplicate' });
    // The same fact under another event ID.
    expect(await world.deliver('stripe', { ...event, id: 'evt_another' })).toMatchObject({
      status: 200,
      outcome: 'duplicate',
    });
    expect(await world.balance(userId)).toEqual({ posted: 12_350_000n, owed: 0n });
    expect(await client.payments.getPayment({ payment_id: payment.payment_id })).toMatchObject({
      state: 'paid',
      net_credits: 12_350_000,
      checkout_url: null,
      paid_at: new Date(event.created * 1000).toISOString(),
    });
  });

  test('sells whole pieces of the Creem product', async () => {
    const { userId, client } = await world.newUser();
    const payment = await client.payments.createCheckout({ method: 'creem', credits: 6_000_000 });
    expect(payment).toMatchObject({ method: 'creem', amount: 1_000, currency: 'eur', credits: 10_000_000 });
    const checkout = world.creem.checkouts.get(pageIdOf(payment));
    expect(checkout).toMatchObject({ product: 'prod_credits', units: 2, request_id: payment.payment_id });
    expect(checkout?.success_url).toMatch(resultPage('success'));
    const event = world.creem.pay(checkout?.id ?? '');
    expect(await world.deliver('creem', event)).toMatchObject({ status: 200, outcome: 'accepted' });
    expect(await world.deliver('creem', event)).toMatchObject({ status: 200, outcome: 'duplicate' });
    expect(await world.balance(userId)).toEqual({ posted: 10_000_000n, owed: 0n });
    expect(await world.postings(userId)).toBe(1);
  });

  test.each([
    ['credits', {}, 400],
    ['amount', { credits: 5_000_000, amount: 500 }, 400],
    ['credits', { credits: 999 }, 422],
    ['credits', { credits: 5_000_000_000 }, 422],
    ['amount', { amount: 99 }, 422],
    ['amount', { amount: 100_001 }, 422],
    ['amount', { amount: 1.5 }, 400],
    ['amount', { method: 'creem', amount: 750 }, 422],
    ['method', { method: 'cash', amount: 500 }, 400],
    ['return_to', { amount: 500, return_to: 'https://elsewhere.example/' }, 400],
    ['return_to', { amount: 500, return_to: 'javascript:alert(1)' }, 400],
    ['return_to', { amount: 500, return_to: 'http://user:pw@127.0.0.1:43127/' }, 400],
    ['return_to', { amount: 500, return_to: 'http://127.0.0.1:43127/#x' }, 400],
    ['currency', { amount: 500, currency: 'eur' }, 400],
    ['user_id', { amount: 500, user_id: 'usr_01jd6zv0c5e9fsr8m2w4x1k7qa' }, 400],
  ])('refuses an invalid %s: %j', async (param, body, status) => {
    await expect(
      world.user.payments.createCheckout({ method: 'stripe', ...body } as never),
    ).rejects.toMatchObject({ status, param });
  });

  test('names the unit of an amount that is too small', async () => {
    await expect(world.user.payments.createCheckout({ method: 'stripe', amount: 1 })).rejects.toMatchObject({
      code: 'amount_not_payable',
      message: expect.stringMatching(
        /^`amount` comes to 1, which is below the minimum payment of \d+, in the smallest unit of usd\.$/,
      ),
    });
  });

  test.each([
    { failure: { status: 401 }, status: 502, code: 'provider_credentials' },
    {
      failure: { status: 400, code: 'amount_too_small', type: 'invalid_request_error' },
      status: 422,
      code: 'amount_not_payable',
    },
    { failure: { status: 402 }, status: 502, code: 'upstream_failed' },
  ])('marks the payment as failed after a Stripe error: $code', async ({ failure, status, code }) => {
    const { client } = await world.newUser();
    world.stripe.failures.push(failure);
    await expect(client.payments.createCheckout({ method: 'stripe', amount: 500 })).rejects.toMatchObject({
      status,
      code,
    });
    const { items } = await client.payments.listPayments();
    expect(items).toMatchObject([{ state: 'failed', checkout_url: null }]);
    // The keys and secrets of the providers' doubles contain this word.
    expect(world.logLines.filter((line) => line.includes('CANARY'))).toEqual([]);
  });

  test('creates one checkout when the first request fails', async () => {
    const { client } = await world.newUser();
    world.stripe.failures.push({ status: 500 });
    const payment = await client.payments.createCheckout({ method: 'stripe', amount: 500 });
    expect(
      [...world.stripe.sessions.values()].filter(({ client_reference_id: id }) => id === payment.payment_id),
    ).toHaveLength(1);
  });

  test('allows at most twenty pending payments per user', async () => {
    const { client } = await world.newUser();
    await Promise.all(
      Array.from({ length: 20 }, () => client.payments.createCheckout({ method: 'stripe', amount: 500 })),
    );
    await expect(
      client.payments.createCheckout({ method: 'stripe', amount: 500 }, { maxRetries: 0 } as never),
    ).rejects.toMatchObject({ status: 429, code: 'rate_limited' });
  });
});

describe('payments.createCheckout with an Idempotency-Key', () => {
  test('creates one payment for repeated calls', async () => {
    const { client } = await world.newUser();
    const options = { headers: { 'idempotency-key': crypto.randomUUID() } };
    const firstCheckout = await client.payments.createCheckout({ method: 'stripe', amount: 500 }, options);
    expect(await client.payments.createCheckout({ method: 'stripe', amount: 500 }, options)).toEqual(
      firstCheckout,
    );
    await expect(
      client.payments.createCheckout({ method: 'stripe', amount: 600 }, options),
    ).rejects.toMatchObject({ status: 422, code: 'idempotency_key_reused' });
    expect((await client.payments.listPayments()).items).toHaveLength(1);
  });

  test('scopes the key to the user rather than the token', async () => {
    const [payer, otherUser] = [await world.newUser(), await world.newUser()];
    const options = { headers: { 'idempotency-key': crypto.randomUUID() } };
    const firstCheckout = await payer.client.payments.createCheckout(
      { method: 'stripe', amount: 500 },
      options,
    );
    const { user_token } = await world.admin.accounts.issueToken({
      bureau_id: 'local',
      user_id: payer.userId,
    });
    expect(
      await world.as(user_token).payments.createCheckout({ method: 'stripe', amount: 500 }, options),
    ).toEqual(firstCheckout);
    expect(
      (await otherUser.client.payments.createCheckout({ method: 'stripe', amount: 500 }, options)).payment_id,
    ).not.toBe(firstCheckout.payment_id);
    expect((await payer.client.payments.listPayments()).items).toHaveLength(1);
  });
});

describe('a payment', () => {
  test('is hidden from other users', async () => {
    const { client } = await world.newUser();
    const payment = await client.payments.createCheckout({ method: 'stripe', amount: 500 });
    await world.admin.bureaus.createBureau({ server_url: 'https://other.example', bureau_id: 'other' });
    const otherClient = world.as(
      (await world.admin.accounts.issueToken({ bureau_id: 'other', external_id: 'somebody' })).user_token,
    );
    for (const stranger of [(await world.newUser()).client, otherClient]) {
      await expect(stranger.payments.getPayment({ payment_id: payment.payment_id })).rejects.toMatchObject({
        status: 404,
        code: 'payment_not_found',
      });
      expect((await stranger.payments.listPayments({ user_id: payment.user_id })).items).toEqual([]);
    }
    await expect(world.guest.payments.getPayment({ payment_id: payment.payment_id })).rejects.toMatchObject({
      status: 401,
    });
    await expect(
      client.payments.getPayment({ payment_id: 'pay_01jd6zv0c5e9fsr8m2w4x1k7qa' }),
    ).rejects.toMatchObject({ status: 404 });
  });

  test('is shown to administrators, who cannot create one', async () => {
    const payment = await world.user.payments.createCheckout({ method: 'stripe', amount: 500 });
    expect(await world.admin.payments.getPayment({ payment_id: payment.payment_id })).toEqual(payment);
    await expect(
      world.admin.payments.createCheckout({ method: 'stripe', amount: 500 }),
    ).rejects.toMatchObject({ status: 403 });
  });

  test('is listed in pages, the newest first', async () => {
    const { userId, client } = await world.newUser();
    const paymentIds: string[] = [];
    for (const amount of [500, 501, 502])
      paymentIds.unshift((await client.payments.createCheckout({ method: 'stripe', amount })).payment_id);
    const firstPage = await client.payments.listPayments({ limit: 2 });
    const secondPage = await client.payments.listPayments({ limit: 2, cursor: firstPage.next_cursor ?? '' });
    expect([...firstPage.items, ...secondPage.items].map(({ payment_id }) => payment_id)).toEqual(paymentIds);
    expect([firstPage.next_cursor === null, secondPage.next_cursor]).toEqual([false, null]);
    expect((await world.admin.payments.listPayments({ user_id: userId })).items).toHaveLength(3);
    expect((await world.admin.payments.listPayments({ user_id: userId, bureau_id: 'other' })).items).toEqual(
      [],
    );
    await expect(client.payments.listPayments({ cursor: 'x' })).rejects.toMatchObject({
      status: 400,
      param: 'cursor',
    });
  });
});
