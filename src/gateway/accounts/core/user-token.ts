// Creates user tokens: the credential for the answer, and the record for the database.
import { id } from '../../../kernel/ids.ts';
import { createToken, tokenDigest } from '../../../kernel/secrets/secret.ts';
import type { NewToken } from './store.ts';

/** The credential is not stored anywhere; `record` has its digest and last four characters. */
export function newUserToken(
  options: Pick<NewToken, 'userId' | 'kind' | 'ttlSeconds'> &
    Partial<Pick<NewToken, 'name' | 'models' | 'createdBy' | 'latestExpiry'>>,
): { userToken: string; record: NewToken } {
  const userToken = createToken('usr');
  const record = {
    name: null,
    models: null,
    createdBy: null,
    latestExpiry: null,
    ...options,
    tokenId: id('tok'),
    digest: tokenDigest(userToken),
    last4: userToken.slice(-4),
  };
  return { userToken, record };
}
