// How often and how widely one caller may ask: token buckets by identity, a cap of connections by address. What
// they remember is bounded, and who is forgotten is only ever treated more kindly.
import { isLoopbackAddress, networkOf } from './address.ts';
import type { Clock } from '../clock.ts';
import { Problem } from '../problem.ts';

/** A bucket holds as many requests as a minute brings. */
export interface RatePolicy {
  /** Appears in the `RateLimit` headers. */
  name: string;
  perMinute: number;
}

export interface Drawn {
  granted: boolean;
  /** Requests that are left now. */
  left: number;
  /** Seconds until there is one more. */
  waitSeconds: number;
}

export interface Quota {
  draw(key: string, policy: RatePolicy): Drawn | Promise<Drawn>;
}

interface Bucket {
  tokens: number;
  atMs: number;
}

// Some 100 bytes each. An address behind IPv6 counts by its /64, so this many are many callers.
const maximumBuckets = 50_000;

/** A quota that this process alone knows of. */
export function createQuota({
  clock,
  maxBuckets = maximumBuckets,
}: {
  clock: Pick<Clock, 'monotonicMs'>;
  maxBuckets?: number;
}): Quota {
  const buckets = new Map<string, Bucket>();
  return {
    draw(key, { name, perMinute }) {
      const place = `${name} ${key}`;
      const nowMs = clock.monotonicMs();
      const known = buckets.get(place);
      const perMs = perMinute / 60_000;
      const tokens = known ? Math.min(perMinute, known.tokens + (nowMs - known.atMs) * perMs) : perMinute;
      const granted = tokens >= 1;
      const left = granted ? tokens - 1 : tokens;
      // Taken out and put back, so that the first in the map is the one that was asked for the longest ago.
      if (known) buckets.delete(place);
      else if (buckets.size >= maxBuckets) buckets.delete(buckets.keys().next().value ?? '');
      buckets.set(place, { tokens: left, atMs: nowMs });
      return {
        granted,
        left: Math.floor(left),
        waitSeconds: Math.max(1, Math.ceil((1 - (left % 1)) / perMs / 1_000)),
      };
    },
  };
}

/** The headers of RFC-to-be draft-ietf-httpapi-ratelimit-headers. */
export function rateHeaders(
  { name, perMinute }: RatePolicy,
  { left, waitSeconds }: Drawn,
): Record<string, string> {
  return {
    'ratelimit-policy': `"${name}";q=${perMinute};w=60`,
    ratelimit: `"${name}";r=${left};t=${waitSeconds}`,
  };
}

/** The one answer to whoever asks too often; `Retry-After` is never before the `t` of the headers. */
export function tooOften(waitSeconds: number): Problem {
  return new Problem('rate_limited', 'rate_limited', 'Too many requests; try again later.', {
    headers: { 'retry-after': String(waitSeconds) },
  });
}

export interface AddressCap {
  /** Null when the address has as many as it may; otherwise what gives the place back, once. */
  enter(address: string): (() => void) | null;
}

/** Caps how much of something one network may hold at a time; callers on this machine may hold any number. */
export function createAddressCap(max: number): AddressCap {
  const held = new Map<string, number>();
  return {
    enter(address) {
      if (isLoopbackAddress(address)) return () => {};
      const network = networkOf(address);
      const count = held.get(network) ?? 0;
      if (count >= max) return null;
      held.set(network, count + 1);
      let isHeld = true;
      return () => {
        if (!isHeld) return;
        isHeld = false;
        const rest = (held.get(network) ?? 1) - 1;
        if (rest > 0) held.set(network, rest);
        else held.delete(network);
      };
    },
  };
}
