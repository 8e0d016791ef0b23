// Random operations on the model of the allotment store and on the statements; see store-equivalence.ts.
import { test } from 'vitest';
import { compareStores } from './store-equivalence.ts';

test('model and statements agree in 300 operations', () => compareStores(300), 30 * 60_000);
