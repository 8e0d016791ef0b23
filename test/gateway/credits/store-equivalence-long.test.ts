// Random operations on the model of the allotment store and on the statements; see store-equivalence.ts.
import { expect, test } from 'vitest';
import { compareStores } from './store-equivalence.ts';

test(
  'the model and the statements answer and store the same in 10,000 operations',
  async () => {
    await expect(compareStores(10_000)).resolves.toBeUndefined();
  },
  30 * 60_000,
);
