// Allotments of revoked or expired tokens are closed, not only left idle, so that
// their credits return to the account.
import type { AllotmentLedger } from './allotment-ledger.ts';

/** Returns the tokens among these that may make no more calls. */
export type FindEndedTokens = (tokenIds: readonly string[]) => Promise<readonly string[]>;

/**
 * Gives back the idle credits of ended tokens in this process. Rejects with 503 when
 * the database is unavailable.
 */
export async function closeEndedTokens(
  ledger: Pick<AllotmentLedger, 'pool' | 'closeTokens'>,
  findEndedTokens: FindEndedTokens,
): Promise<void> {
  const tokenIds = new Set<string>();
  for (const { state, tokenId } of ledger.pool.all()) if (state === 'open') tokenIds.add(tokenId);
  if (tokenIds.size === 0) return;
  const endedTokenIds = await findEndedTokens([...tokenIds]);
  if (endedTokenIds.length > 0) await ledger.closeTokens(new Set(endedTokenIds));
}
