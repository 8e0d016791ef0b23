// When a cached identity may be used again, and when the token must be read again.
import { beforeEach, describe, expect, test } from 'vitest';
import {
  createIdentityCache,
  type IdentityCache,
  type IdentityRecord,
} from '../../../src/gateway/accounts/identity-cache.ts';

let generation: number | null;
let nowMs: number;
let reads: number;
let cache: IdentityCache;
beforeEach(() => {
  [generation, nowMs, reads] = [1, 0, 0];
  cache = createIdentityCache({ generation: () => generation, clock: { monotonicMs: () => nowMs } });
});

const record = (userId = 'usr_1', remainingMs = 3_600_000): IdentityRecord => ({
  identity: { kind: 'user', userId, bureauId: 'local', tokenId: 'tok_1' },
  remainingMs,
});
const get = (stored: IdentityRecord | null = record(), key = 'a') =>
  cache.get(key, async () => {
    reads += 1;
    return stored;
  });

describe('the identity of a token', () => {
  test('is not read again while nothing changes', async () => {
    expect([await get(), await get(record('usr_2'))]).toEqual([record().identity, record().identity]);
    expect(reads).toBe(1);
  });

  test('is read again after a change', async () => {
    await get();
    generation = 2;
    expect(await get(record('usr_2'))).toMatchObject({ userId: 'usr_2' });
    await get();
    expect(reads).toBe(2);
  });

  test('is read each time while the change counter is unknown', async () => {
    await get();
    generation = null;
    await get();
    await get();
    expect(reads).toBe(3);
  });

  test('is read again after a change during the read', async () => {
    await cache.get('a', async () => {
      generation = 2;
      return record();
    });
    expect(await get(null)).toBeNull();
    expect(reads).toBe(1);
  });

  test('is read again when it expires', async () => {
    await get(record('usr_1', 500));
    nowMs = 499;
    await get();
    expect(reads).toBe(1);
    nowMs = 500;
    await get();
    expect(reads).toBe(2);
  });

  test('is read again after a minute', async () => {
    await get();
    nowMs = 59_999;
    await get();
    expect(reads).toBe(1);
    nowMs = 60_000;
    await get();
    expect(reads).toBe(2);
  });

  test('is not cached when it is null', async () => {
    expect(await get(null)).toBeNull();
    expect(await get()).toEqual(record().identity);
  });

  test('is evicted by ten thousand newer entries', async () => {
    await get(record(), 'first');
    for (let index = 0; index < 10_000; index += 1) await get(record(), `other ${index}`);
    reads = 0;
    await get(record(), 'other 9999');
    expect(reads).toBe(0);
    await get(record(), 'first');
    expect(reads).toBe(1);
  });
});
