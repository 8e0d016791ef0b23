// Token buckets, limits by address, and which forwarded addresses are trusted.
import { describe, expect, test } from 'vitest';
import {
  createAddressLimit,
  createRateLimiter,
  rateLimitHeaders,
  type RateLimitPolicy,
  type RateLimitResult,
} from '../../../src/kernel/http/rate-limits.ts';
import { trustProxies } from '../../../src/kernel/http/proxies.ts';

function stoppedClock() {
  let nowMs = 1_000_000;
  return { monotonicMs: () => nowMs, pass: (ms: number) => (nowMs += ms) };
}

/** The limiter in memory, which answers synchronously; the interface also allows promises. */
function createMemoryLimiter(options: Parameters<typeof createRateLimiter>[0]) {
  const limiter = createRateLimiter(options);
  return { take: (key: string, limit: RateLimitPolicy) => limiter.take(key, limit) as RateLimitResult };
}

describe('createRateLimiter', () => {
  const policy = { name: 'guest', perMinute: 60 };

  test('allows the requests of a minute at once, then one a second', () => {
    const clock = stoppedClock();
    const limiter = createMemoryLimiter({ clock });
    const take = () => limiter.take('a', policy);
    expect(Array.from({ length: 100 }, take).filter(({ isAllowed }) => isAllowed)).toHaveLength(60);
    expect(take()).toEqual({ isAllowed: false, remaining: 0, waitSeconds: 1 });
    clock.pass(999);
    expect(take().isAllowed).toBe(false);
    clock.pass(1);
    expect(take().isAllowed).toBe(true);
    expect(take().isAllowed).toBe(false);
    clock.pass(10 * 60_000);
    expect(take()).toEqual({ isAllowed: true, remaining: 59, waitSeconds: 1 });
  });

  test('names a wait after which a request is allowed', () => {
    for (const perMinute of [1, 7, 10, 59, 600]) {
      const clock = stoppedClock();
      const limiter = createMemoryLimiter({ clock });
      const slowLimit = { name: 'login', perMinute };
      for (let n = 0; n < perMinute; n += 1) void limiter.take('a', slowLimit);
      const { isAllowed, waitSeconds } = limiter.take('a', slowLimit);
      expect(isAllowed).toBe(false);
      clock.pass(waitSeconds * 1_000);
      expect(limiter.take('a', slowLimit).isAllowed).toBe(true);
    }
  });

  test('counts each caller and each policy separately', () => {
    const limiter = createMemoryLimiter({ clock: stoppedClock() });
    const tightPolicy = { name: 'login', perMinute: 1 };
    expect(limiter.take('a', tightPolicy).isAllowed).toBe(true);
    expect(limiter.take('a', tightPolicy).isAllowed).toBe(false);
    expect(limiter.take('b', tightPolicy).isAllowed).toBe(true);
    expect(limiter.take('a', policy).isAllowed).toBe(true);
  });

  test('evicts the bucket used least recently', () => {
    const limiter = createMemoryLimiter({ clock: stoppedClock(), maxBuckets: 2 });
    const tightPolicy = { name: 'login', perMinute: 1 };
    const isAllowed = (key: string) => limiter.take(key, tightPolicy).isAllowed;
    expect([isAllowed('a'), isAllowed('b'), isAllowed('a'), isAllowed('c')]).toEqual([
      true,
      true,
      false,
      true,
    ]);
    expect(isAllowed('a')).toBe(false);
    expect(isAllowed('b')).toBe(true);
  });

  test('writes the RateLimit headers', () => {
    expect(rateLimitHeaders(policy, { isAllowed: true, remaining: 59, waitSeconds: 1 })).toEqual({
      'ratelimit-policy': '"guest";q=60;w=60',
      ratelimit: '"guest";r=59;t=1',
    });
  });
});

describe('createAddressLimit', () => {
  test('counts the addresses of one network together', () => {
    const limit = createAddressLimit(2);
    expect(limit.acquire('2001:db8:1:2::1')).not.toBeNull();
    expect(limit.acquire('2001:db8:1:2::2')).not.toBeNull();
    expect(limit.acquire('2001:db8:1:2:ffff::3')).toBeNull();
    expect(limit.acquire('2001:db8:1:3::1')).not.toBeNull();
  });

  test('releases a connection once', () => {
    const limit = createAddressLimit(2);
    const release = limit.acquire('2001:db8:1:2::1');
    limit.acquire('2001:db8:1:2::2');
    release?.();
    release?.();
    expect(limit.acquire('2001:db8:1:2::4')).not.toBeNull();
    expect(limit.acquire('2001:db8:1:2::5')).toBeNull();
  });

  test('does not limit this machine', () => {
    const limit = createAddressLimit(2);
    for (let n = 0; n < 10; n += 1) expect(limit.acquire('::ffff:127.0.0.1')).not.toBeNull();
  });
});

describe('the client behind proxies', () => {
  const proxies = trustProxies(['10.0.0.0/8', '192.0.2.7', 'fd00::/8']);

  test.each<[title: string, peer: string, forwardedFor: string | string[] | undefined, client: string]>([
    ['is the peer itself when it is untrusted', '203.0.113.5', '198.51.100.1', '203.0.113.5'],
    ['is the address that a trusted peer forwards', '10.1.2.3', '198.51.100.1', '198.51.100.1'],
    [
      'is the rightmost address that is not a proxy',
      '10.1.2.3',
      '1.1.1.1, 198.51.100.1, 10.9.9.9',
      '198.51.100.1',
    ],
    ['is the first address when all are proxies', '10.1.2.3', '10.0.0.1, 10.0.0.2', '10.0.0.1'],
    ['is the peer itself without a header', '10.1.2.3', undefined, '10.1.2.3'],
    ['is the hop to the right of an invalid word', '10.1.2.3', '198.51.100.1, unknown', '10.1.2.3'],
    ['is the hop to the right of invalid markup', '10.1.2.3', '1.1.1.1, <script>, 10.5.5.5', '10.5.5.5'],
    ['is read without its port', '10.1.2.3', '198.51.100.1:4711', '198.51.100.1'],
    ['is read without its port from IPv6', 'fd00::1', '[2001:DB8::1]:443', '2001:db8::1'],
    ['is IPv4 if it is mapped into IPv6', '::ffff:10.1.2.3', '::ffff:198.51.100.1', '198.51.100.1'],
    ['is the peer itself after an empty entry', '10.1.2.3', ' 198.51.100.1 ,', '10.1.2.3'],
    ['is read from several headers', '192.0.2.7', ['1.1.1.1', '198.51.100.1'], '198.51.100.1'],
  ])('%s', (_title, peer, forwardedFor, client) => {
    expect(proxies.clientOf(peer, forwardedFor)).toBe(client);
  });

  test('ignores forwarded addresses without configured proxies', () => {
    expect(trustProxies([]).clientOf('127.0.0.1', '198.51.100.1')).toBe('127.0.0.1');
  });

  test.each(['proxy.example', '10.0.0.0/33', '10.0.0/8', '::1/129', '10.0.0.1/8/8', '10.0.0.1/x', ''])(
    'refuses the entry "%s"',
    (entry) => {
      expect(() => trustProxies([entry])).toThrow(/neither an address nor a network/);
    },
  );
});
