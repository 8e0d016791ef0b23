// Times and limits of allotments. Tests pass smaller times.

/** Milliseconds. */
export interface AllotmentTimes {
  /** How long a lease is valid, counted from before the request that renewed it was sent. */
  leaseMs: number;
  renewEveryMs: number;
  /** How often this gateway reads whether others recall its idle credits or ask for a report. */
  readRecallsEveryMs: number;
  /** How long a call waits for credits that other gateways have idle. */
  recallMs: number;
  /** How often a waiting call asks for these again. */
  askAgainMs: number;
  /** How long credits stay idle in this process before they are given back. */
  idleMs: number;
  /** How often idle credits are looked for. */
  tidyEveryMs: number;
  applyEveryMs: number;
  /** The pause after the database did not answer. */
  retryMs: number;
  /** How often other processes' journals are looked for, and expired allotments taken back. */
  replayEveryMs: number;
  /** The unbroken connection to the database that taking back needs. */
  takeBackAfterMs: number;
  checkpointEveryMs: number;
}

export const defaultAllotmentTimes: AllotmentTimes = {
  leaseMs: 20_000,
  renewEveryMs: 5_000,
  readRecallsEveryMs: 100,
  recallMs: 1_000,
  askAgainMs: 50,
  idleMs: 5_000,
  tidyEveryMs: 1_000,
  applyEveryMs: 50,
  retryMs: 250,
  replayEveryMs: 60_000,
  takeBackAfterMs: 60_000,
  checkpointEveryMs: 2_000,
};

/** Wall time may advance so much more than monotonic time before a lease counts as ended: a suspended machine. */
export const maximumClockJumpMs = 1_000;
export const maximumAllotments = 10_000;
/** Charges of one batch: its transaction holds the locks of their accounts. */
export const maximumBatch = 500;
export const checkpointTokens = 256;
/** JSON numbers are exact up to 2^53 - 1. A higher price is a bug. */
export const maximumCredits = BigInt(Number.MAX_SAFE_INTEGER);

export function clampCredits(credits: bigint): bigint {
  if (credits < 0n) return 0n;
  return credits > maximumCredits ? maximumCredits : credits;
}
