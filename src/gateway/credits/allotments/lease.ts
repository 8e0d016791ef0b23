// A lease as its holder measures it, by its own clocks. Monotonic time stops while a machine is
// suspended, so it is compared with wall time.
import type { Clock } from '../../../kernel/clock.ts';
import { maximumClockJumpMs } from './times.ts';

export type LeaseClock = Pick<Clock, 'now' | 'monotonicMs'>;

export interface Lease {
  /** Monotonic. */
  endsAtMs: number;
  /** Wall time minus monotonic time when the lease began. */
  clockGapMs: number;
}

export const noLease: Lease = { endsAtMs: Number.NEGATIVE_INFINITY, clockGapMs: 0 };

/**
 * Starts a lease. Call it before sending the renewal, so that the lease ends in this process no later
 * than in the database.
 */
export function beginLease(clock: LeaseClock, leaseMs: number): Lease {
  const nowMs = clock.monotonicMs();
  return { endsAtMs: nowMs + leaseMs, clockGapMs: clock.now().getTime() - nowMs };
}

export function isLeaseValid(lease: Lease, clock: LeaseClock): boolean {
  const nowMs = clock.monotonicMs();
  // A clock that was set back ends the lease too: the step could hide a suspension.
  const jumpMs = Math.abs(clock.now().getTime() - nowMs - lease.clockGapMs);
  return nowMs < lease.endsAtMs && jumpMs <= maximumClockJumpMs;
}
