// Many copies of one event, delivered to two gateways on one database.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import { pageIdOf, startPayments, type PaymentsWorld } from './world.ts';

const copyCount = 80;
let place: DatabasePlace;
let worlds: PaymentsWorld[];
beforeAll(async () => {
  place = await makeDatabase();
  const firstWorld = await startPayments({ place });
  worlds = [firstWorld, await startPayments({ place, beside: firstWorld })];
});
afterAll(async () => {
  for (const world of [...(worlds ?? [])].reverse()) await world.close();
  await place?.remove();
});

test.each(['stripe', 'creem'] as const)(
  'a payment through %s is credited once by all replicas together',
  async (method) => {
    const world = worlds[0] as PaymentsWorld;
    const { userId, client } = await world.newUser();
    const payment = await client.payments.createCheckout({ method, amount: 1_000 });
    const event = world[method].pay(pageIdOf(payment));
    const answers = await Promise.all(
      Array.from({ length: copyCount }, (_, index) =>
        world.deliver(
          method,
          // Every fifth copy has an event ID of its own.
          index % 5 === 0 ? { ...event, id: `${event.id}_${index}` } : event,
          (worlds[index % worlds.length] as PaymentsWorld).url,
        ),
      ),
    );
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect(answers.filter(({ outcome }) => outcome === 'accepted')).toHaveLength(1);
    expect([await world.balance(userId), await world.postings(userId), await world.ledgerSum()]).toEqual([
      { posted: 10_000_000n, owed: 0n },
      1,
      0n,
    ]);
  },
);

test('a payment has the same result when all replicas receive all events at once', async () => {
  const world = worlds[0] as PaymentsWorld;
  for (let round = 0; round < 6; round += 1) {
    const { userId, client } = await world.newUser();
    const payment = await client.payments.createCheckout({ method: 'stripe', amount: 1_000 });
    const page = pageIdOf(payment);
    const events = [
      world.stripe.pay(page),
      world.stripe.refund(page, 400),
      world.stripe.dispute('created', page),
      world.stripe.dispute('closed', page, { status: 'won' }),
    ];
    const answers = await Promise.all(
      events.flatMap((event) => worlds.map((replica) => world.deliver('stripe', event, replica.url))),
    );
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect(await world.balance(userId)).toEqual({ posted: 6_000_000n, owed: 0n });
    expect((await client.payments.getPayment({ payment_id: payment.payment_id })).state).toBe(
      'partially_refunded',
    );
  }
  expect(await world.ledgerSum()).toBe(0n);
});

test('a payment without a webhook counts once when every replica polls', async () => {
  const world = worlds[0] as PaymentsWorld;
  const { userId, client } = await world.newUser();
  const payment = await client.payments.createCheckout({ method: 'creem', amount: 1_000 });
  world.creem.pay(pageIdOf(payment));
  await Promise.all(worlds.flatMap((replica) => [replica.poll(), replica.poll()]));
  expect([await world.balance(userId), await world.postings(userId)]).toEqual([
    { posted: 10_000_000n, owed: 0n },
    1,
  ]);
});
