// The arithmetic of one allotment: reservations, charges, rows that arrive out of order, sizes and leases.
import { describe, expect, test } from 'vitest';
import {
  adoptCharged,
  adoptRow,
  chargeReservation,
  freeCredits,
  idleCredits,
  newAllotment,
  reserveCredits,
  type Allotment,
} from '../../../../src/gateway/credits/allotments/allotment.ts';
import { beginLease, isLeaseValid } from '../../../../src/gateway/credits/allotments/lease.ts';
import { enlargementOf, needsEnlargement } from '../../../../src/gateway/credits/allotments/sizing.ts';
import { SpendWindow } from '../../../../src/gateway/credits/allotments/spend-window.ts';

const clock = { now: () => new Date(0), monotonicMs: () => 0 };

function allotmentOf(amount: bigint): Allotment {
  const allotment = newAllotment('alt_1', { userId: 'usr_1', bureauId: 'local', tokenId: 'tok_1' }, 0);
  adoptRow(allotment, row({ version: 1, amount }));
  allotment.lease = beginLease(clock, 1_000);
  return allotment;
}

function row({ version, amount, charged = 0n }: { version: number; amount: bigint; charged?: bigint }) {
  return { allotmentId: 'alt_1', version, amount, charged, recall: 0n, isRecalled: false, isClosed: false };
}

/** An allotment of 100 with an unapplied charge of 40. */
function withCharge(): Allotment {
  const allotment = allotmentOf(100n);
  reserveCredits(allotment, 40n, 0);
  chargeReservation(allotment, { amount: 40n, credits: 40n, nowMs: 0 });
  return allotment;
}

// The queue of charges lowers `unapplied` when the batch of a charge is answered; here the tests do.
describe('a charge that is applied', () => {
  test('counts once when a row shows it before its batch is answered', () => {
    const allotment = withCharge();
    adoptRow(allotment, row({ version: 2, amount: 60n, charged: 40n }));
    expect(idleCredits(allotment)).toBe(60n);
    allotment.unapplied -= 40n;
    adoptCharged(allotment, row({ version: 2, amount: 60n, charged: 40n }));
    expect(allotment).toMatchObject({ amount: 60n, charged: 40n });
    expect(idleCredits(allotment)).toBe(60n);
  });

  test('counts once when the answer to its batch is older than the row', () => {
    const allotment = withCharge();
    adoptRow(allotment, row({ version: 2, amount: 20n, charged: 40n }));
    allotment.unapplied -= 40n;
    const answer = row({ version: 1, amount: 60n, charged: 40n });
    adoptCharged(allotment, answer);
    adoptRow(allotment, answer);
    expect(idleCredits(allotment)).toBe(20n);
  });
});

describe('a charge', () => {
  test('returns the excess of its reservation', () => {
    const allotment = allotmentOf(100n);
    reserveCredits(allotment, 40n, 0);
    expect(chargeReservation(allotment, { amount: 40n, credits: 15n, nowMs: 0 })).toBe(15n);
    expect([allotment.reserved, allotment.unapplied, idleCredits(allotment)]).toEqual([0n, 15n, 85n]);
  });

  test('above its reservation takes idle credits only', () => {
    const allotment = allotmentOf(100n);
    reserveCredits(allotment, 40n, 0);
    reserveCredits(allotment, 50n, 0);
    expect(chargeReservation(allotment, { amount: 40n, credits: 90n, nowMs: 0 })).toBe(50n);
    expect([allotment.reserved, idleCredits(allotment)]).toEqual([50n, 0n]);
  });
});

describe('a row', () => {
  test('of a higher version counts', () => {
    const allotment = allotmentOf(100n);
    adoptRow(allotment, row({ version: 2, amount: 150n }));
    expect(allotment).toMatchObject({ version: 2, amount: 150n });
  });

  test('of an older version is ignored', () => {
    const allotment = allotmentOf(100n);
    adoptRow(allotment, row({ version: 2, amount: 150n }));
    adoptRow(allotment, row({ version: 1, amount: 10n }));
    expect(allotment.amount).toBe(150n);
  });

  test('of the same version counts when a charge has lowered it', () => {
    const allotment = allotmentOf(100n);
    adoptRow(allotment, row({ version: 1, amount: 70n }));
    adoptRow(allotment, row({ version: 1, amount: 100n }));
    expect(allotment.amount).toBe(70n);
  });

  test('that is closed allows no reservation and keeps its credits', () => {
    const allotment = allotmentOf(100n);
    adoptRow(allotment, { ...row({ version: 1, amount: 100n }), isClosed: true });
    expect([allotment.state, freeCredits(allotment, clock), idleCredits(allotment)]).toEqual([
      'closed',
      0n,
      100n,
    ]);
  });
});

describe('the size of an allotment', () => {
  test('aims at two seconds of spending, or at one bound if that is more', () => {
    const allotment = allotmentOf(0n);
    allotment.latestBound = 20n;
    expect(enlargementOf(allotment, { nowMs: 0, available: 10_000n, idleOfUser: 0n })).toBe(20n);
    allotment.spend.add(0, 300n);
    expect(enlargementOf(allotment, { nowMs: 1_000, available: 10_000n, idleOfUser: 0n })).toBe(300n);
    expect(enlargementOf(allotment, { nowMs: 3_000, available: 10_000n, idleOfUser: 0n })).toBe(20n);
  });

  test('keeps idle credits of the account within an eighth', () => {
    const allotment = allotmentOf(0n);
    allotment.latestBound = 500n;
    expect(enlargementOf(allotment, { nowMs: 0, available: 800n, idleOfUser: 0n })).toBe(100n);
    expect(enlargementOf(allotment, { nowMs: 0, available: 700n, idleOfUser: 100n })).toBe(0n);
  });

  test('is too small when less than half of its aim is idle', () => {
    const allotment = allotmentOf(10n);
    allotment.latestBound = 20n;
    expect(needsEnlargement(allotment, 0)).toBe(false);
    reserveCredits(allotment, 1n, 0);
    expect(needsEnlargement(allotment, 0)).toBe(true);
  });
});

describe('the spending of a token', () => {
  test('does not count charges older than two seconds', () => {
    // Slots of half a second drop out as a whole: that of 10,700 begins at 10,500 and ends its two seconds at
    // 12,500.
    const spend = new SpendWindow();
    spend.add(10_000, 5n);
    spend.add(10_700, 7n);
    expect([spend.total(11_400), spend.total(12_100), spend.total(12_600)]).toEqual([12n, 7n, 0n]);
  });
});

describe('a lease', () => {
  const clockAt = (monotonicMs: number, wallMs: number) => ({
    now: () => new Date(wallMs),
    monotonicMs: () => monotonicMs,
  });

  test('is valid for its time by the monotonic clock', () => {
    const lease = beginLease(clockAt(1_000, 50_000), 20_000);
    expect(isLeaseValid(lease, clockAt(20_999, 69_999))).toBe(true);
    expect(isLeaseValid(lease, clockAt(21_000, 70_000))).toBe(false);
  });

  test('is invalid when wall time and monotonic time deviate by more than a second', () => {
    const lease = beginLease(clockAt(1_000, 50_000), 20_000);
    expect(isLeaseValid(lease, clockAt(2_000, 52_000))).toBe(true);
    expect(isLeaseValid(lease, clockAt(2_000, 52_001))).toBe(false);
    expect(isLeaseValid(lease, clockAt(2_000, 50_000))).toBe(true);
    expect(isLeaseValid(lease, clockAt(2_000, 49_999))).toBe(false);
  });
});
