// Limits per caller: token buckets by identity, and a limit on connections by address.
// Memory is bounded; a caller whose bucket is evicted starts with a full bucket.
import { isLoopbackAddress, networkOf } from './address.ts';
import { createLruCache } from '../cache.ts';
import type { Clock } from '../clock.ts';
import { Problem } from '../problem.ts';

/** The capacity of a bucket is one minute of requests. */
export interface RateLimitPolicy {
  /** Appears in the `RateLimit` headers. */
  name: string;
  perMinute: number;
}

export interface RateLimitResult {
  isAllowed: boolean;
  /** Remaining requests. */
  remaining: number;
  /** Seconds until the bucket has one request more. If it is empty, until a request is allowed again. */
  waitSeconds: number;
}

export interface RateLimiter {
  /** Takes one request out of the bucket of `key`, if it has one. */
  take(key: string, policy: RateLimitPolicy): RateLimitResult | Promise<RateLimitResult>;
}

interface Bucket {
  tokens: number;
  refilledAtMs: number;
}

// About 100 bytes each. An IPv6 address counts by its /64, so 50,000 keys are 50,000 callers.
const defaultMaxBuckets = 50_000;

/** Counts in this process only. */
export function createRateLimiter({
  clock,
  maxBuckets = defaultMaxBuckets,
}: {
  clock: Pick<Clock, 'monotonicMs'>;
  maxBuckets?: number;
}): RateLimiter {
  const buckets = createLruCache<string, Bucket>({ capacity: maxBuckets });
  return {
    take(key, { name, perMinute }) {
      const bucketKey = `${name} ${key}`;
      const nowMs = clock.monotonicMs();
      const bucket = buckets.peek(bucketKey) ?? { tokens: perMinute, refilledAtMs: nowMs };
      const perMs = perMinute / 60_000;
      const tokens = Math.min(perMinute, bucket.tokens + (nowMs - bucket.refilledAtMs) * perMs);
      const isAllowed = tokens >= 1;
      bucket.tokens = isAllowed ? tokens - 1 : tokens;
      bucket.refilledAtMs = nowMs;
      buckets.set(bucketKey, bucket);
      return {
        isAllowed,
        remaining: Math.floor(bucket.tokens),
        waitSeconds: Math.max(1, Math.ceil((1 - (bucket.tokens % 1)) / perMs / 1_000)),
      };
    },
  };
}

/** The headers of draft-ietf-httpapi-ratelimit-headers. */
export function rateLimitHeaders(
  { name, perMinute }: RateLimitPolicy,
  { remaining, waitSeconds }: RateLimitResult,
): Record<string, string> {
  return {
    'ratelimit-policy': `"${name}";q=${perMinute};w=60`,
    ratelimit: `"${name}";r=${remaining};t=${waitSeconds}`,
  };
}

/** The 429. `Retry-After` is never earlier than the `t` of the headers. */
export function rateLimitProblem(waitSeconds: number): Problem {
  return new Problem('rate_limited', 'rate_limited', 'Too many requests; try again later.', {
    headers: { 'retry-after': String(waitSeconds) },
  });
}

export interface AddressLimit {
  /** Returns the release function, which works once; null when the address is at its limit. */
  acquire(address: string): (() => void) | null;
}

/**
 * Limits the concurrent use by one network (an IPv4 address or an IPv6 /64).
 * Loopback addresses are not limited.
 */
export function createAddressLimit(max: number): AddressLimit {
  const counts = new Map<string, number>();
  return {
    acquire(address) {
      if (isLoopbackAddress(address)) return () => {};
      const network = networkOf(address);
      const count = counts.get(network) ?? 0;
      if (count >= max) return null;
      counts.set(network, count + 1);
      let isReleased = false;
      return () => {
        if (isReleased) return;
        isReleased = true;
        const remainingCount = (counts.get(network) ?? 1) - 1;
        if (remainingCount > 0) counts.set(network, remainingCount);
        else counts.delete(network);
      };
    },
  };
}
