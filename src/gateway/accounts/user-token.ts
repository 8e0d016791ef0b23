// A fresh user token, with what is stored of it. The one place where user tokens are made.
import { id } from '../../kernel/ids.ts';
import { token, tokenDigest } from '../../kernel/secrets/secret.ts';
import type { NewToken } from './store.ts';

/** A token from now on for so many seconds. The credential is in no other place; it is for one answer. */
export function newUserToken(
  of: Pick<NewToken, 'userId' | 'kind' | 'ttlSeconds'> &
    Partial<Pick<NewToken, 'name' | 'models' | 'makerId' | 'endsBy'>>,
): {
  userToken: string;
  record: NewToken;
} {
  const userToken = token('usr');
  const record = {
    name: null,
    models: null,
    makerId: null,
    endsBy: null,
    ...of,
    tokenId: id('tok'),
    digest: tokenDigest(userToken),
    last4: userToken.slice(-4),
  };
  return { userToken, record };
}
