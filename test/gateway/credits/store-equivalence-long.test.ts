// Random operations on the model of the allotment store and on the statements; see store-equivalence.ts.
import { expect, test } from 'vitest';
import { compareStores } from './store-equivalence.ts';

test('model and statements agree in 10,000 operations', { timeout: 30 * 60_000 }, async () => {
  expect(await compareStores(10_000)).toEqual([]);
});
