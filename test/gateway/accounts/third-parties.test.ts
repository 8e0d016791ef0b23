// The environment variables of the logins with third parties.
import { expect, test } from 'vitest';
import type { OpenId } from '../../../src/gateway/accounts/providers/openid.ts';
import { thirdParties, thirdPartyKeys } from '../../../src/gateway/accounts/providers/third-parties.ts';

test('the logins read declared variables only', async () => {
  const readKeys = new Set<string>();
  const env = {
    get(key: string) {
      readKeys.add(key);
      if (key === 'OIDC_ISSUER') return 'https://login.example';
      return key.endsWith('_URL') ? undefined : 'value';
    },
  };
  const openId: OpenId = {
    begin: async ({ server }) => ({ url: server.issuer, memory: '' }),
    end: async () => expect.unreachable('no browser returns'),
  };
  const providers = thirdParties({ env, openId, hasCallback: () => true });
  const urls = await Promise.all(
    providers.map(async ({ start }) => (await start({ callbackUrl: '', state: '' })).url),
  );
  expect(urls).toEqual(['https://github.com', 'https://accounts.google.com', 'https://login.example']);
  const declaredKeys = new Set(thirdPartyKeys.map(({ key }) => key));
  expect([...readKeys].filter((key) => !declaredKeys.has(key))).toEqual([]);
});
