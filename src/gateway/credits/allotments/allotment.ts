// One allotment in memory: credits that the database has set aside for a token in this process.
// Invariant: the row's amount ≥ reserved + unapplied, as long as no charge exceeds its
// reservation plus the idle credits.
import { minBigInt } from '../../../kernel/bigint.ts';
import { isLeaseValid, noLease, type Lease, type LeaseClock } from './lease.ts';
import { SpendWindow } from './spend-window.ts';
import type { AllotmentReport, AllotmentRow } from './store.ts';

/** The token of an allotment and the paying account. */
export interface Payer {
  userId: string;
  bureauId: string;
  tokenId: string;
}

export interface Allotment extends Payer {
  readonly allotmentId: string;
  /**
   * `closed`: takes no new reservations. `ended`: the row is gone, and its
   * remaining charges are late.
   */
  state: 'open' | 'closed' | 'ended';
  /** The version of the row; 0 until it is opened. */
  version: number;
  /** Amount of the row at the time when its `charged` had the value of the next member. */
  amount: bigint;
  charged: bigint;
  reserved: bigint;
  /** Charges that are not in the database yet. */
  unapplied: bigint;
  lease: Lease;
  isRecalled: boolean;
  /** Number of the latest recall that this process has read. */
  recall: bigint;
  /** The latest report that the database has confirmed. */
  reported: { number: bigint; reserved: bigint; used: bigint };
  /** An `allot` or `giveBack` that is under way; there is one at a time. */
  write: Promise<unknown> | null;
  /** The outcome of a give-back is unknown, so it is repeated. */
  isGiveBackUncertain: boolean;
  lastUsedMs: number;
  /** Monotonic time before which no background enlargement starts. */
  enlargeAfterMs: number;
  /** The highest possible price of the latest call. */
  latestBound: bigint;
  spend: SpendWindow;
}

export function newAllotment(allotmentId: string, payer: Payer, nowMs: number): Allotment {
  return {
    allotmentId,
    userId: payer.userId,
    bureauId: payer.bureauId,
    tokenId: payer.tokenId,
    state: 'open',
    version: 0,
    amount: 0n,
    charged: 0n,
    reserved: 0n,
    unapplied: 0n,
    lease: noLease,
    isRecalled: false,
    recall: 0n,
    reported: { number: 0n, reserved: 0n, used: 0n },
    write: null,
    isGiveBackUncertain: false,
    lastUsedMs: nowMs,
    enlargeAfterMs: nowMs,
    latestBound: 0n,
    spend: new SpendWindow(),
  };
}

/** Credits that no reservation and no charge needs. */
export function idleCredits({ amount, reserved, unapplied }: Allotment): bigint {
  const idleAmount = amount - reserved - unapplied;
  return idleAmount > 0n ? idleAmount : 0n;
}

/** Credits available to a new reservation. */
export function freeCredits(allotment: Allotment, clock: LeaseClock): bigint {
  return allotment.state === 'open' && isLeaseValid(allotment.lease, clock) ? idleCredits(allotment) : 0n;
}

export function reserveCredits(allotment: Allotment, amount: bigint, nowMs: number): void {
  allotment.reserved += amount;
  allotment.lastUsedMs = nowMs;
}

export function releaseCredits(allotment: Allotment, amount: bigint): void {
  allotment.reserved -= amount;
}

/**
 * Turns a reservation into a charge. The part of a charge above its reservation comes from
 * idle credits, never from another reservation. Returns the credits that the allotment covers.
 */
export function chargeReservation(
  allotment: Allotment,
  { amount, credits, nowMs }: { amount: bigint; credits: bigint; nowMs: number },
): bigint {
  const idleAmount = idleCredits(allotment);
  const fromIdle = credits > amount ? minBigInt(credits - amount, idleAmount) : 0n;
  const coveredCredits = minBigInt(credits, amount) + fromIdle;
  allotment.reserved -= amount;
  allotment.unapplied += coveredCredits;
  allotment.lastUsedMs = nowMs;
  allotment.spend.add(nowMs, credits);
  return coveredCredits;
}

/**
 * Adopts a row that the database returned. Only `allot` and `giveBack` raise the
 * version, so the row with the higher version is newer; between rows of one version, the
 * row with the smaller amount is newer. Charges that the row has already paid, but that
 * memory still counts as unapplied, are added back to its amount: each charge then counts
 * once, in whichever order the responses arrive.
 */
export function adoptRow(allotment: Allotment, row: AllotmentRow): void {
  if (row.recall > allotment.recall) allotment.recall = row.recall;
  if (row.version < allotment.version) return;
  const amount = row.amount + row.charged - allotment.charged;
  if (row.version > allotment.version) {
    allotment.version = row.version;
    allotment.amount = amount;
    allotment.isGiveBackUncertain = false;
  } else if (amount < allotment.amount) {
    allotment.amount = amount;
  }
  allotment.isRecalled = row.isRecalled;
  if (row.isClosed && allotment.state === 'open') allotment.state = 'closed';
}

/** Adopts the row's `charged` once memory no longer counts those charges as unapplied. */
export function adoptCharged(allotment: Allotment, { charged }: AllotmentRow): void {
  if (charged <= allotment.charged) return;
  allotment.amount -= charged - allotment.charged;
  allotment.charged = charged;
}

export function reportOf(allotment: Allotment, number: bigint): AllotmentReport {
  const { allotmentId, reserved, unapplied, charged } = allotment;
  return { allotmentId, reserved, unapplied, charged, number };
}

/** Whether the database has the current use of the allotment. */
export function isReported({ reported, reserved, unapplied, charged }: Allotment): boolean {
  return reported.reserved === reserved && reported.used === unapplied + charged;
}

/** Records that the database has confirmed the report. */
export function confirmReport(
  allotment: Allotment,
  { reserved, unapplied, charged = 0n, number = 0n }: AllotmentReport,
): void {
  if (number > allotment.reported.number)
    allotment.reported = { number, reserved, used: unapplied + charged };
}

export function renewLease(allotment: Allotment, lease: Lease): void {
  if (lease.endsAtMs > allotment.lease.endsAtMs) allotment.lease = lease;
}
