// Creates API keys. A key has the rights and at most the lifetime of the token that creates it.
import type { Tx } from '../../../kernel/data/database.ts';
import type { CreditsPort } from './ports.ts';
import type { AccountsQueries, Token } from './store.ts';
import { newUserToken } from './user-token.ts';

export const defaultKeySeconds = 365 * 86_400;

export interface NewApiKey {
  name: string;
  models: readonly string[] | null;
  creditCap: number | null;
  ttlSeconds: number;
}

/**
 * The transaction must have locked `creator`: a concurrent revocation of `creator` then waits for the commit
 * and revokes the new key too.
 */
export async function insertApiKey(
  { queries, tx, credits }: { queries: AccountsQueries; tx: Tx; credits: Pick<CreditsPort, 'openKey'> },
  creator: Token,
  { name, models, creditCap, ttlSeconds }: NewApiKey,
): Promise<{ userToken: string; tokenId: string; expiresAt: Date }> {
  const { userToken, record } = newUserToken({
    userId: creator.userId,
    kind: 'key',
    ttlSeconds,
    name,
    models,
    createdBy: creator.tokenId,
    latestExpiry: creator.expiresAt,
  });
  const { tokenId } = record;
  const { expiresAt } = await queries.insertToken(record);
  const cap = creditCap === null ? null : BigInt(creditCap);
  await credits.openKey(tx, { tokenId, userId: creator.userId, cap });
  return { userToken, tokenId, expiresAt };
}
