// Times and limits of allotments. Tests pass smaller times.

/** All times are in milliseconds. */
export interface AllotmentTimes {
  /** How long a lease is valid, counted from before the request that renewed it was sent. */
  leaseMs: number;
  renewEveryMs: number;
  /** How often this gateway polls for recalls of its idle credits and for requested reports. */
  readRecallsEveryMs: number;
  /** How long a call waits for idle credits of other gateways. */
  recallMs: number;
  /** How often a call that waits for recalled credits retries. */
  recallPollMs: number;
  /** How long credits stay idle in this process before they are given back. */
  idleMs: number;
  /**
   * How often idle credits are given back, allotments of ended tokens are closed and late charges
   * are logged. A process that is alone on its database polls for recalls at this interval too, and
   * an allotment that was used within it keeps an excess of idle credits.
   */
  maintenanceEveryMs: number;
  applyEveryMs: number;
  /** The pause after a failed request to the database. */
  retryMs: number;
  /** How often other processes' journals are replayed and expired allotments taken back. */
  replayEveryMs: number;
  /** Uninterrupted connection to the database that is required before allotments are taken back. */
  minimumContactMs: number;
  checkpointEveryMs: number;
}

// Conditions between these times:
// - 3 * renewEveryMs < leaseMs: a lease survives two failed renewals.
// - renewEveryMs < 15 s (longestGapMs in database-contact.ts): each renewal records contact with the
//   database, and a longer gap counts as a suspension.
// - leaseMs + 40 s (credits_take_back_expired in SQL) <= minimumContactMs: before an allotment is
//   taken back, the database could be reached for the whole lease and the 40 s after it.
// - maximumClockJumpMs < 40 s: a holder with a wrong clock stops before its credits are taken back.
export const defaultAllotmentTimes: AllotmentTimes = {
  leaseMs: 20_000,
  renewEveryMs: 5_000,
  readRecallsEveryMs: 100,
  recallMs: 1_000,
  recallPollMs: 50,
  idleMs: 5_000,
  maintenanceEveryMs: 1_000,
  applyEveryMs: 50,
  retryMs: 250,
  replayEveryMs: 60_000,
  minimumContactMs: 60_000,
  checkpointEveryMs: 2_000,
};

/**
 * Limit by which wall time may deviate from monotonic time before a lease counts as ended: the
 * machine was suspended, or its clock was set.
 */
export const maximumClockJumpMs = 1_000;
/** Allotments of one process; each costs memory and a row that is renewed every 5 s. */
export const maximumAllotments = 10_000;
/** Charges per batch: its transaction holds the locks of their accounts. */
export const maximumBatch = 500;
/** Output tokens after which a checkpoint is written before its interval is over. */
export const checkpointTokens = 256;
/** JSON numbers are exact up to 2^53 - 1. A higher price is a bug. */
export const maximumCredits = BigInt(Number.MAX_SAFE_INTEGER);

export function clampCredits(credits: bigint): bigint {
  if (credits < 0n) return 0n;
  return credits > maximumCredits ? maximumCredits : credits;
}
