// Charges of an action to its caller. They are held at once, and settled when the action succeeds.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ActionError, defineService, type ActionCall } from '../../../src/index.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';

/** `shop/buy` calls this after its charge. */
let onCharge: () => Promise<void> = async () => {};
const shop = defineService({
  id: 'shop',
  name: 'Shop',
  actions: {
    buy: {
      method: 'POST',
      identities: [],
      input: { type: 'object', properties: { credits: { type: 'number' }, reason: { type: 'string' } } },
      async run({ input, charge }: ActionCall<{ credits: number; reason?: string }>) {
        await charge(input.credits, input.reason ?? 'One report');
        await onCharge();
        return { bought: true };
      },
    },
    both: {
      method: 'POST',
      async run({ charge }) {
        await Promise.all([charge(5, 'One report'), charge(7n, 'Its picture')]);
      },
    },
    refuse: {
      method: 'POST',
      async run({ charge }) {
        await charge(100, 'One report');
        throw new ActionError(409, 'service_sold_out', 'There is none left.');
      },
    },
    mismatch: {
      method: 'POST',
      output: { type: 'object', required: ['a'] },
      async run({ charge }) {
        await charge(100, 'One report');
        return {};
      },
    },
    hang: {
      method: 'POST',
      async run({ charge }) {
        await charge(100, 'One report');
        await new Promise(() => {});
      },
    },
    lenient: {
      method: 'POST',
      async run({ charge }) {
        return charge(10_000_000, 'Everything').then(
          () => 'all',
          () => 'a sample',
        );
      },
    },
    careless: {
      method: 'POST',
      run({ charge }) {
        void charge(10_000_000, 'Everything');
        return 'an answer';
      },
    },
  },
});

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({
    withAdmin: true,
    services: [shop],
    env: { TIMEOUT_ACTION_MS: '4000', STARTING_CREDITS: '1000000' },
  });
});
afterAll(() => world?.close());

const readBalance = async () => {
  const { available, held } = await world.user.credits.getBalance();
  return { available, held };
};
const lastRecord = async () => (await world.user.usage.listRecords({ limit: 1 })).items[0];

describe('charge', () => {
  test('holds credits during the action and settles them at its end', async () => {
    const balanceBefore = await readBalance();
    const balances: object[] = [];
    onCharge = async () => void balances.push(await readBalance());
    try {
      await expect(world.user.call('shop', 'buy', { credits: 250 })).resolves.toEqual({ bought: true });
    } finally {
      onCharge = async () => {};
    }
    expect(balances).toEqual([{ available: balanceBefore.available - 250, held: 250 }]);
    expect(await readBalance()).toEqual({ available: balanceBefore.available - 250, held: 0 });
    expect((await world.user.credits.listHistory({ limit: 1 })).items[0]).toMatchObject({
      kind: 'charge',
      credits: -250,
      reason: 'shop/buy · One report',
    });
    expect(await lastRecord()).toMatchObject({
      action: 'shop/buy',
      model: null,
      credits: 250,
      outcome: 'completed',
      estimated: false,
    });
  });

  test('sums several charges of one call', async () => {
    const balanceBefore = await readBalance();
    await world.user.call('shop', 'both');
    expect(await readBalance()).toEqual({ available: balanceBefore.available - 12, held: 0 });
    expect((await world.user.credits.listHistory({ limit: 1 })).items[0]).toMatchObject({
      credits: -12,
      reason: 'shop/both · One report; Its picture',
    });
  });

  test.each([
    ['refuses', 'refuse', 409],
    ['returns a value that does not match its schema', 'mismatch', 500],
    ['exceeds its time limit', 'hang', 504],
  ])('takes no credits when the action %s', async (_name, action, status) => {
    const balanceBefore = await readBalance();
    await expect(world.user.call('shop', action)).rejects.toMatchObject({ status });
    expect(await readBalance()).toEqual(balanceBefore);
    expect(await lastRecord()).toMatchObject({
      action: `shop/${action}`,
      credits: 0,
      outcome: 'upstream_failed',
    });
  });

  test('answers 402 for more credits than the user has', async () => {
    const balanceBefore = await readBalance();
    await expect(world.user.call('shop', 'buy', { credits: 10_000_000 })).rejects.toMatchObject({
      status: 402,
      code: 'insufficient_credits',
    });
    expect(await readBalance()).toEqual(balanceBefore);
  });

  test.each([
    ['handles', 'lenient', 'a sample'],
    ['ignores', 'careless', 'an answer'],
  ])('takes no credits when the action %s the refusal', async (_name, action, answer) => {
    const balanceBefore = await readBalance();
    await expect(world.user.call('shop', action)).resolves.toBe(answer);
    expect(await readBalance()).toEqual(balanceBefore);
  });

  test('takes the credits of fifty concurrent calls exactly once each', async () => {
    const balanceBefore = await readBalance();
    await Promise.all(Array.from({ length: 50 }, () => world.user.call('shop', 'buy', { credits: 3 })));
    expect(await readBalance()).toEqual({ available: balanceBefore.available - 150, held: 0 });
  });

  test('takes the credits of a repeated Idempotency-Key once', async () => {
    const balanceBefore = await readBalance();
    const call = () =>
      fetch(`${world.url}/v1/shop/buy`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${world.userToken}`,
          'content-type': 'application/json',
          'idempotency-key': 'once',
        },
        body: '{"credits": 40}',
      });
    expect((await call()).status).toBe(200);
    const secondAnswer = await call();
    expect([
      secondAnswer.status,
      secondAnswer.headers.get('idempotent-replayed'),
      await secondAnswer.json(),
    ]).toEqual([200, 'true', { bought: true }]);
    expect(await readBalance()).toEqual({ available: balanceBefore.available - 40, held: 0 });
  });

  test('takes no credits for an administrator’s call', async () => {
    await expect(world.admin.call('shop', 'buy', { credits: 7 })).resolves.toEqual({ bought: true });
    expect((await world.admin.usage.listRecords({ limit: 1 })).items[0]).toMatchObject({
      action: 'shop/buy',
      user_id: null,
      credits: 0,
    });
  });

  test('fails for a guest', async () => {
    await expect(world.guest.call('shop', 'buy', { credits: 7 })).rejects.toMatchObject({
      status: 500,
      code: 'service_failed',
    });
  });

  test.each([
    { credits: 1.5 },
    { credits: -1 },
    { credits: 2 ** 53 },
    { credits: 1, reason: '' },
    { credits: 1, reason: 'a\u0000' },
    { credits: 1, reason: 'x'.repeat(201) },
  ])('refuses %j', async (input) => {
    const balanceBefore = await readBalance();
    await expect(world.user.call('shop', 'buy', input)).rejects.toMatchObject({
      status: 500,
      code: 'service_failed',
    });
    expect(await readBalance()).toEqual(balanceBefore);
  });
});
