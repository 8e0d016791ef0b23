// When what was read of a token may be given again, and when it may not.
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

const found = (userId = 'usr_1', restMs = 3_600_000): IdentityRecord => ({
  identity: { kind: 'user', userId, bureauId: 'local', tokenId: 'tok_1' },
  remainingMs: restMs,
});
const get = (recognised: IdentityRecord | null = found(), key = 'a') =>
  cache.get(key, async () => {
    reads += 1;
    return recognised;
  });

describe('a token that was read', () => {
  test('is not read again while nothing changes', async () => {
    expect([await get(), await get(found('usr_2'))]).toEqual([found().identity, found().identity]);
    expect(reads).toBe(1);
  });

  test('is read again after a change, and then known again', async () => {
    await get();
    generation = 2;
    expect(await get(found('usr_2'))).toMatchObject({ userId: 'usr_2' });
    await get();
    expect(reads).toBe(2);
  });

  test('is read each time while changes are not seen', async () => {
    await get();
    generation = null;
    await get();
    await get();
    expect(reads).toBe(3);
  });

  test('is not known by what was read before a change that came meanwhile', async () => {
    await cache.get('a', async () => {
      generation = 2;
      return found();
    });
    expect(await get(null)).toBeNull();
    expect(reads).toBe(1);
  });

  test('is read again at its end, and after a minute at the latest', async () => {
    await get(found('usr_1', 500));
    nowMs = 499;
    await get();
    expect(reads).toBe(1);
    nowMs = 500;
    await get();
    expect(reads).toBe(2);
    nowMs = 60_499;
    await get();
    expect(reads).toBe(2);
    nowMs = 60_500;
    await get();
    expect(reads).toBe(3);
  });

  test("is nobody's only as long as it takes to ask again", async () => {
    expect(await get(null)).toBeNull();
    expect(await get()).toEqual(found().identity);
  });

  test('is forgotten when ten thousand others came after it', async () => {
    await get(found(), 'first');
    for (let n = 0; n < 10_000; n += 1) await get(found(), `other ${n}`);
    reads = 0;
    await get(found(), 'other 9999');
    expect(reads).toBe(0);
    await get(found(), 'first');
    expect(reads).toBe(1);
  });
});
