// The limits of Bureaus in memory, when their refreshes overlap.
import { expect, test } from 'vitest';
import { createActiveBureauCache } from '../../../src/gateway/bureaus/active-cache.ts';
import type { ActiveBureau } from '../../../src/gateway/bureaus/store.ts';

test('a slow refresh does not replace the rows of a later one', async () => {
  const queries: PromiseWithResolvers<ActiveBureau[]>[] = [];
  const cache = createActiveBureauCache({
    listActive() {
      const query = Promise.withResolvers<ActiveBureau[]>();
      queries.push(query);
      return query.promise;
    },
  });
  const rowsWithLimit = (requests_per_minute: number): ActiveBureau[] => [
    {
      bureauId: 'shop',
      limits: { requests_per_minute },
      redirectOrigins: [],
      redirectUris: [],
      serverUrl: 'https://shop.example',
    },
  ];
  const refreshes = [cache.refresh(), cache.refresh()];
  queries[1]?.resolve(rowsWithLimit(2));
  await refreshes[1];
  queries[0]?.resolve(rowsWithLimit(1));
  await refreshes[0];
  expect(cache.requestsPerMinute('shop')).toBe(2);
});
