// How many credits to set aside for a token beyond what its calls need at the moment.
import { maxBigInt, minBigInt } from '../../../kernel/bigint.ts';
import { idleCredits, type Allotment } from './allotment.ts';

/** The token's spending in the last two seconds, at least the bound of its latest call. */
export function targetOf(allotment: Allotment, nowMs: number): bigint {
  const spend = allotment.spend.total(nowMs);
  return maxBigInt(spend, allotment.latestBound);
}

/**
 * Credits to add to an allotment for later calls. The idle credits of one account
 * together stay within an eighth of what is available, so that its other tokens and
 * gateways rarely have to recall them.
 */
export function enlargementOf(
  allotment: Allotment,
  { nowMs, available, idleOfUser }: { nowMs: number; available: bigint; idleOfUser: bigint },
): bigint {
  const missingCredits = targetOf(allotment, nowMs) - idleCredits(allotment);
  const spareCredits = (available + idleOfUser) / 8n - idleOfUser;
  const size = minBigInt(missingCredits, spareCredits);
  return size > 0n ? size : 0n;
}

/** Whether less than half of the target is idle. */
export function needsEnlargement(allotment: Allotment, nowMs: number): boolean {
  return idleCredits(allotment) * 2n < targetOf(allotment, nowMs);
}
