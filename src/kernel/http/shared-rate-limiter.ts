// One rate limit for all replicas that share a PostgreSQL server. The buckets are rows; a replica takes
// 2% of a bucket at a time and spends this share without a query. While the database is unavailable
// each replica counts alone.
import { createLruCache } from '../cache.ts';
import type { Clock } from '../clock.ts';
import type { Database } from '../data/database.ts';
import {
  createRateLimiter,
  type RateLimiter,
  type RateLimitPolicy,
  type RateLimitResult,
} from './rate-limits.ts';
import type { Log } from '../log.ts';

export interface SharedRateLimiterOptions {
  database: Pick<Database, 'sql'>;
  /** The surface's schema; it has the table `rate_quotas`. */
  schema: string;
  clock: Pick<Clock, 'monotonicMs'>;
  log: Log;
}

/**
 * Tokens that this replica has taken out of a bucket, and the time until which it treats the bucket as empty.
 */
interface Share {
  tokens: number;
  remainingInBucket: number;
  emptyUntilMs: number;
  refill: Promise<void> | undefined;
}

// Two replicas may each have a share besides a full bucket: 4%, within the allowed error of 5%.
const shareOfBucket = 0.02;
const maxShares = 50_000;
const cleanupEveryMs = 300_000;

export function createSharedRateLimiter(options: SharedRateLimiterOptions): RateLimiter {
  const { clock, log } = options;
  const buckets = createBuckets(options);
  const localLimiter = createRateLimiter({ clock });
  const shares = createLruCache<string, Share>({ capacity: maxShares });

  function shareOf(bucketKey: string): Share {
    const share = shares.peek(bucketKey) ?? {
      tokens: 0,
      remainingInBucket: 0,
      emptyUntilMs: 0,
      refill: undefined,
    };
    shares.set(bucketKey, share);
    return share;
  }

  async function takeShared(
    key: string,
    policy: RateLimitPolicy,
    bucketKey: string,
  ): Promise<RateLimitResult> {
    const share = shareOf(bucketKey);
    try {
      // Callers of one key wait for the same refill; if it was too small, the
      // remaining ones start the next one.
      while (share.tokens < 1 && clock.monotonicMs() >= share.emptyUntilMs) {
        share.refill ??= buckets
          .refillShare(bucketKey, share, policy.perMinute)
          .finally(() => (share.refill = undefined));
        await share.refill;
      }
      return takeFromShare(share, policy.perMinute, clock.monotonicMs());
    } catch (error) {
      log.debug({ err: error }, 'the shared rate limit is unavailable; counting in this process');
      return await localLimiter.take(key, policy);
    } finally {
      buckets.deleteOld();
    }
  }

  return {
    take(key, policy) {
      // The limit is part of the key, so that a lowered limit does not inherit a share of the larger bucket.
      const bucketKey = `${policy.name}/${policy.perMinute} ${key}`;
      const share = shareOf(bucketKey);
      const nowMs = clock.monotonicMs();
      if (share.tokens >= 1 || nowMs < share.emptyUntilMs)
        return takeFromShare(share, policy.perMinute, nowMs);
      return takeShared(key, policy, bucketKey);
    },
  };
}

function takeFromShare(share: Share, perMinute: number, nowMs: number): RateLimitResult {
  const isAllowed = share.tokens >= 1;
  if (isAllowed) share.tokens -= 1;
  const waitMs = Math.max(share.emptyUntilMs - nowMs, 60_000 / perMinute);
  return {
    isAllowed,
    remaining: Math.floor(share.tokens + share.remainingInBucket),
    waitSeconds: Math.max(1, Math.ceil(waitMs / 1_000)),
  };
}

/** The rows that all replicas share. */
function createBuckets({ database: { sql }, schema, clock, log }: SharedRateLimiterOptions) {
  const table = `${schema}.rate_quotas`;
  let lastCleanupMs = clock.monotonicMs();

  return {
    /** Moves tokens of the bucket to the share, or records the time until which the bucket is empty. */
    async refillShare(bucketKey: string, share: Share, perMinute: number): Promise<void> {
      const shareSize = Math.max(1, Math.floor(perMinute * shareOfBucket));
      // Creates the bucket or refills it for the time since its last use. Grants whole requests only.
      const [bucket] = await sql<{ available: number; tokens: number }[]>`
        with now as (select clock_timestamp() as at),
        bucket as (
          insert into ${sql(table)} as q (key, tokens, at)
          select ${bucketKey}, ${perMinute}::float8, at from now
          on conflict (key) do update
          set at = greatest(q.at, excluded.at),
            tokens = least(
              ${perMinute}::float8,
              q.tokens + greatest(0, extract(epoch from excluded.at - q.at)) * ${perMinute / 60}::float8)
          returning tokens)
        select least(${shareSize}::float8, floor(tokens)) as available, tokens from bucket`;
      const availableTokens = Math.max(0, bucket?.available ?? 0);
      if (availableTokens > 0) {
        // Conditional: two replicas that saw the same bucket must not both take its last requests.
        const [remainder] = await sql<{ tokens: number }[]>`
          update ${sql(table)} set tokens = tokens - ${availableTokens}::float8
          where key = ${bucketKey} and tokens >= ${availableTokens}::float8 returning tokens`;
        if (remainder) {
          share.tokens += availableTokens;
          share.remainingInBucket = remainder.tokens;
          return;
        }
      }
      share.remainingInBucket = 0;
      share.emptyUntilMs = clock.monotonicMs() + ((1 - ((bucket?.tokens ?? 0) % 1)) / perMinute) * 60_000;
    },

    /**
     * Deletes unused buckets, at most every five minutes. After two minutes without use a bucket is full, and
     * an absent bucket counts as full.
     */
    deleteOld(): void {
      if (clock.monotonicMs() - lastCleanupMs < cleanupEveryMs) return;
      lastCleanupMs = clock.monotonicMs();
      sql`delete from ${sql(table)} where at < clock_timestamp() - interval '2 minutes'`.catch(
        (error: unknown) => log.warn({ err: error }, 'old rate limit buckets could not be deleted'),
      );
    },
  };
}
