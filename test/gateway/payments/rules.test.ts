// The rules of payments, tested without a server: amounts and credits, states, and signatures.
import { createHmac } from 'node:crypto';
import Stripe from 'stripe';
import { describe, expect, test } from 'vitest';
import { minorUnits, formatAmount } from '../../../src/gateway/payments/orders/currency.ts';
import {
  disputeTimes,
  netCredits,
  stateOf,
  type PaymentFacts,
} from '../../../src/gateway/payments/orders/facts.ts';
import {
  amountFor,
  creditsFor,
  parseCreditsPerUnit,
  computeTariff,
  amountError,
  type Tariff,
} from '../../../src/gateway/payments/orders/price.ts';
import {
  verifyCreemSignature,
  verifyStripeSignature,
} from '../../../src/gateway/payments/providers/signature.ts';

const bounds = { minimumCredits: 1_000_000n, maximumCredits: 1_000_000_000n, maxAmount: 99_999_999n };

function tariff(currency: string, creditsPerUnit: bigint, overrides: { pieceAmount?: bigint } = {}): Tariff {
  const result = computeTariff({
    currency,
    units: minorUnits(currency),
    creditsPerUnit,
    ...bounds,
    ...overrides,
  });
  if (result === null) throw new Error('No payable amount lies within the bounds of this tariff.');
  return result;
}

describe('a tariff', () => {
  test('counts in the smallest unit of each currency', () => {
    expect([
      minorUnits('usd').perUnit,
      minorUnits('jpy').perUnit,
      minorUnits('kwd').perUnit,
      minorUnits('ugx').step,
    ]).toEqual([100n, 1n, 1_000n, 100n]);
    expect([
      formatAmount(123_456n, 'usd'),
      formatAmount(1_500n, 'jpy'),
      formatAmount(1_230n, 'kwd'),
      formatAmount(5n, 'eur'),
    ]).toEqual(['USD 1,234.56', 'JPY 1,500', 'KWD 1.230', 'EUR 0.05']);
  });

  test('rounds the credits of an amount down', () => {
    expect(creditsFor(1_000n, tariff('usd', 1_000_000n))).toBe(10_000_000n);
    expect(creditsFor(1_000n, tariff('jpy', 6_500n))).toBe(6_500_000n);
    expect(creditsFor(10n, { creditsPerUnit: 33n, perUnit: 100n })).toBe(3n);
  });

  test('finds the smallest amount that buys the credits', () => {
    for (const [currency, rate] of [
      ['usd', 1_000_000n],
      ['jpy', 6_543n],
      ['kwd', 3_250_001n],
      ['ugx', 271n],
    ] as const) {
      const sampleTariff = tariff(currency, rate);
      for (const credits of [1_000_000n, 1_000_001n, 7_654_321n, 999_999_999n]) {
        const amount = amountFor(credits, sampleTariff);
        expect(amount % sampleTariff.step).toBe(0n);
        expect(creditsFor(amount, sampleTariff)).toBeGreaterThanOrEqual(credits);
        expect(creditsFor(amount - sampleTariff.step, sampleTariff)).toBeLessThan(credits);
      }
    }
  });

  test('sells a product in whole pieces', () => {
    const sampleTariff = tariff('eur', 1_000_000n, { pieceAmount: 500n });
    expect([sampleTariff.minimum, sampleTariff.step, amountFor(6_000_000n, sampleTariff)]).toEqual([
      500n,
      500n,
      1_000n,
    ]);
    expect(amountError(750n, sampleTariff)).toContain('multiple of 500');
  });

  test('allows the amounts at its bounds', () => {
    const sampleTariff = tariff('usd', 1_000_000n);
    expect(
      [
        amountError(99n, sampleTariff),
        amountError(100n, sampleTariff),
        amountError(100_000n, sampleTariff),
        amountError(100_001n, sampleTariff),
      ].map((error) => error === null),
    ).toEqual([false, true, true, false]);
    expect(
      computeTariff({
        currency: 'usd',
        units: minorUnits('usd'),
        creditsPerUnit: 1n,
        ...bounds,
        maxAmount: 50n,
      }),
    ).toBeNull();
  });
});

describe('parseCreditsPerUnit', () => {
  test.each([
    [undefined, 'usd', 1_000_000n],
    ['', 'usd', 1_000_000n],
    [undefined, 'jpy', null],
    ['2000000', 'eur', 2_000_000n],
    ['usd:1000000, JPY:6500', 'jpy', 6_500n],
    ['usd:1000000', 'eur', null],
  ])('reads %j for %s as %s', (text, currency, creditsPerUnit) => {
    expect(parseCreditsPerUnit(text, currency)).toBe(creditsPerUnit);
  });

  test.each(['1e6', '-1', '0', '1.5', 'usd:', 'usd:1:2x'])('refuses %j', (text) => {
    expect(parseCreditsPerUnit(text, 'usd')).toBeNull();
  });
});

describe('the state of a payment', () => {
  const minuteOf = (minute: number): Date => new Date(Date.UTC(2026, 10, 20, 9, minute));
  const payment: PaymentFacts = {
    amount: 1_000n,
    credits: 10_000_000n,
    paidAt: null,
    expiredAt: null,
    failedAt: null,
    canceledAt: null,
    refundedAmount: 0n,
    disputes: [],
  };
  const dispute = { amount: 1_000n, disputedAt: minuteOf(5), wonAt: null };

  test.each([
    ['pending', {}, 0n],
    ['expired', { expiredAt: minuteOf(1) }, 0n],
    ['failed', { failedAt: minuteOf(1) }, 0n],
    ['canceled', { canceledAt: minuteOf(1) }, 0n],
    ['paid', { paidAt: minuteOf(1) }, 10_000_000n],
    ['paid', { paidAt: minuteOf(2), expiredAt: minuteOf(1) }, 10_000_000n],
    ['partially_refunded', { paidAt: minuteOf(1), refundedAmount: 333n }, 6_670_000n],
    ['refunded', { paidAt: minuteOf(1), refundedAmount: 1_000n }, 0n],
    ['pending', { refundedAmount: 1_000n }, 0n],
    ['disputed', { paidAt: minuteOf(1), disputes: [dispute] }, 0n],
    [
      'disputed',
      { paidAt: minuteOf(1), disputes: [{ ...dispute, amount: 400n }], refundedAmount: 100n },
      5_000_000n,
    ],
    ['disputed', { paidAt: minuteOf(1), disputes: [dispute], refundedAmount: 1_000n }, 0n],
    ['paid', { paidAt: minuteOf(1), disputes: [{ ...dispute, wonAt: minuteOf(9) }] }, 10_000_000n],
    [
      'disputed',
      {
        paidAt: minuteOf(1),
        disputes: [
          { ...dispute, amount: 400n, wonAt: minuteOf(9) },
          { ...dispute, amount: 300n },
        ],
      },
      7_000_000n,
    ],
    [
      'paid',
      { paidAt: minuteOf(1), disputes: [{ amount: 1_000n, disputedAt: null, wonAt: minuteOf(9) }] },
      10_000_000n,
    ],
  ] as const)('is %s with its credits', (state, facts, credits) => {
    expect([stateOf({ ...payment, ...facts }), netCredits({ ...payment, ...facts })]).toEqual([
      state,
      credits,
    ]);
  });

  test('is won again only when every dispute is won', () => {
    const wonDispute = { ...dispute, wonAt: minuteOf(9) };
    expect(disputeTimes({ disputes: [wonDispute, { ...dispute, disputedAt: minuteOf(3) }] })).toEqual({
      disputedAt: minuteOf(3),
      wonAt: null,
    });
    expect(disputeTimes({ disputes: [wonDispute, { ...wonDispute, wonAt: minuteOf(7) }] })).toEqual({
      disputedAt: minuteOf(5),
      wonAt: minuteOf(9),
    });
  });
});

describe("Stripe's signature", () => {
  const stripe = new Stripe('sk_test_x');
  const secret = 'whsec_one';
  const body = Buffer.from('{"id":"evt_1","object":"event"}');
  const now = new Date('2026-11-20T09:00:00.400Z');
  const seconds = Math.floor(now.getTime() / 1000);
  const header = (options: { atSeconds?: number; secret?: string; scheme?: string } = {}): string =>
    stripe.webhooks.generateTestHeaderString({
      payload: body.toString(),
      secret: options.secret ?? secret,
      timestamp: options.atSeconds ?? seconds,
      ...(options.scheme ? { scheme: options.scheme } : {}),
    });
  const isValid = (
    signatureHeader: string | undefined,
    signedBody: Uint8Array = body,
    secrets: readonly string[] = [secret],
  ): boolean => verifyStripeSignature(signedBody, signatureHeader, { secrets, now });
  const signatureIn = (signatureHeader: string): string => /v1=(\w+)/.exec(signatureHeader)?.[1] ?? '';

  test('covers exactly the received bytes', () => {
    expect(isValid(header())).toBe(true);
    for (let index = 0; index < body.length; index += 1) {
      const changedBody = Buffer.from(body);
      changedBody[index] = (changedBody[index] as number) ^ 1;
      expect(isValid(header(), changedBody)).toBe(false);
    }
    expect(isValid(header(), Buffer.from(JSON.stringify(JSON.parse(body.toString()), null, 1)))).toBe(false);
  });

  test('is valid for five minutes in both directions', () => {
    const ages = [300, 301, -300, -301, 3_600, -3_600];
    expect(ages.map((age) => isValid(header({ atSeconds: seconds - age })))).toEqual([
      true,
      false,
      true,
      false,
      false,
      false,
    ]);
  });

  test('may be one of several while a secret is rotated', () => {
    const otherHeader = header({ secret: 'whsec_two' });
    expect(isValid(`t=${seconds},v1=${signatureIn(otherHeader)},v1=${signatureIn(header())}`)).toBe(true);
    expect(isValid(otherHeader, body, [secret, 'whsec_two'])).toBe(true);
    expect(isValid(otherHeader)).toBe(false);
  });

  test('is refused in another scheme or format', () => {
    const signature = signatureIn(header());
    const shapes = [
      undefined,
      '',
      'nonsense',
      header({ scheme: 'v0' }),
      `t=${seconds}`,
      `v1=${signature}`,
      `t=${seconds},v1=`,
      `t=${seconds},v1=${signature.slice(2)}`,
      `t=${seconds},v1=${signature}00`,
      `t=${seconds},v1=${signature.toUpperCase()}`,
      `t=${seconds}.0,v1=${signature}`,
      `t=-${seconds},v1=${signature}`,
      `t=${seconds},t=${seconds},v1=${signature}`,
      // Node joins two headers with a comma.
      `${header()}, ${header()}`,
      `t=${seconds},${Array.from({ length: 17 }, () => `v1=${signature}`).join(',')}`,
    ];
    expect(shapes.map((shape) => isValid(shape))).toEqual(shapes.map(() => false));
  });
});

describe("Creem's signature", () => {
  const secrets = ['one', 'two'];
  const body = Buffer.from('{"id":"evt_1"}');
  const hex = (secret: string): string => createHmac('sha256', secret).update(body).digest('hex');

  test('is the exact 64 digits of a current or a previous secret', () => {
    expect(
      [hex('one'), hex('two')].map((signature) => verifyCreemSignature(body, signature, { secrets })),
    ).toEqual([true, true]);
    const shapes = [
      undefined,
      '',
      hex('three'),
      hex('one').toUpperCase(),
      hex('one').slice(2),
      `${hex('one')}00`,
      `${hex('one').slice(1)}g`,
      `${hex('one')}, ${hex('one')}`,
      ` ${hex('one')}`,
    ];
    expect(shapes.map((signature) => verifyCreemSignature(body, signature, { secrets }))).toEqual(
      shapes.map(() => false),
    );
    expect(verifyCreemSignature(Buffer.from('{"id":"evt_2"}'), hex('one'), { secrets })).toBe(false);
  });

  test('refuses every signature without a secret', () => {
    expect(
      verifyCreemSignature(body, createHmac('sha256', '').update(body).digest('hex'), { secrets: [] }),
    ).toBe(false);
  });
});
