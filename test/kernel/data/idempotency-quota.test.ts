// When the idempotency store compares a caller's answers with the quota, on a scripted database.
import { expect, test } from 'vitest';
import { createBackground } from '../../../src/kernel/background.ts';
import type { Database } from '../../../src/kernel/data/database.ts';
import { digest } from '../../../src/kernel/data/digest.ts';
import { createIdempotencyStore } from '../../../src/kernel/data/idempotency-store.ts';
import { silentLog } from '../../support/databases.ts';

test('callers that reach their quotas at once are all compared', async () => {
  const callers: Buffer[] = [];
  const sql = (first: unknown, ...values: unknown[]) => {
    callers.push(...values.filter((value) => Buffer.isBuffer(value)));
    // `sql(table)` is a name; everything else is a statement.
    return typeof first === 'string' ? first : Promise.resolve([]);
  };
  const background = createBackground(silentLog);
  const maxBytesPerCaller = 64 * 1024;
  const store = createIdempotencyStore({
    database: { sql } as unknown as Database,
    schema: 'gateway',
    background,
    clock: { monotonicMs: () => 0 },
    leaseMs: 60_000,
    keepSeconds: 60,
    maxBytesPerCaller,
    maxKeysPerCaller: Number.POSITIVE_INFINITY,
  });
  for (const caller of ['user a', 'user b']) store.countBytes(caller, maxBytesPerCaller);
  await background.untilSettled();
  expect(callers).toEqual([digest('user a'), digest('user b')]);
});
