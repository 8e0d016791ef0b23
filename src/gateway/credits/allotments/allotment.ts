// One allotment in memory: credits that the database has set aside for a token in this process. Invariant: the row's
// amount ≥ reserved + unapplied, as long as no charge exceeds its reservation and what is idle.
import { isLeaseValid, noLease, type Lease, type LeaseClock } from './lease.ts';
import { SpendWindow } from './spend-window.ts';
import type { AllotmentReport, AllotmentRow } from './store.ts';

/** The token that an allotment is for, and who pays. */
export interface Payer {
  userId: string;
  bureauId: string;
  tokenId: string;
}

export interface Allotment extends Payer {
  readonly allotmentId: string;
  /** `closed`: takes no reservation. `ended`: the row is gone, its remaining charges are late. */
  state: 'open' | 'closed' | 'ended';
  /** Of the row; 0 until it is opened. */
  version: number;
  amount: bigint;
  reserved: bigint;
  /** Charges that are not in the database yet. */
  unapplied: bigint;
  lease: Lease;
  isRecalled: boolean;
  /** An `allot` or `giveBack` that is under way; there is one at a time. */
  write: Promise<unknown> | null;
  /** A give-back has no known outcome, so it is repeated. */
  isGiveBackUncertain: boolean;
  lastUsedMs: number;
  /** Not enlarged in the background before. */
  enlargeAfterMs: number;
  /** The bound of the latest call. */
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
    reserved: 0n,
    unapplied: 0n,
    lease: noLease,
    isRecalled: false,
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
  const idle = amount - reserved - unapplied;
  return idle > 0n ? idle : 0n;
}

/** What a new reservation may take. */
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
 * Turns a reservation into a charge. What the charge exceeds the reservation by comes from the idle part, never from another
 * reservation. Returns the credits that the allotment covers.
 */
export function chargeReservation(
  allotment: Allotment,
  { amount, credits, nowMs }: { amount: bigint; credits: bigint; nowMs: number },
): bigint {
  const idle = idleCredits(allotment);
  const fromIdle = credits > amount ? smaller(credits - amount, idle) : 0n;
  const covered = smaller(credits, amount) + fromIdle;
  allotment.reserved -= amount;
  allotment.unapplied += covered;
  allotment.lastUsedMs = nowMs;
  allotment.spend.add(nowMs, credits);
  return covered;
}

/**
 * Takes over a row that the database answered with. Only `allot` and `giveBack` raise the version, and charges only lower
 * the amount; so the higher version is newer, and of one version the smaller amount.
 */
export function adoptRow(allotment: Allotment, row: AllotmentRow): void {
  if (row.version < allotment.version) return;
  if (row.version > allotment.version) {
    allotment.version = row.version;
    allotment.amount = row.amount;
    allotment.isGiveBackUncertain = false;
  } else if (row.amount < allotment.amount) {
    allotment.amount = row.amount;
  }
  allotment.isRecalled = row.isRecalled;
  if (row.isClosed && allotment.state === 'open') allotment.state = 'closed';
}

export function reportOf({ allotmentId, reserved, unapplied }: Allotment): AllotmentReport {
  return { allotmentId, reserved, unapplied };
}

export function renewLease(allotment: Allotment, lease: Lease): void {
  if (lease.endsAtMs > allotment.lease.endsAtMs) allotment.lease = lease;
}

function smaller(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}
