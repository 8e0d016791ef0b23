// One quota for all replicas over one PostgreSQL: the buckets lie in the database, and a replica takes small
// shares out of them, so that most requests ask nobody. While the database is away each replica counts alone.
import type { Clock } from '../clock.ts';
import type { Database } from '../data/database.ts';
import { createQuota, type Drawn, type Quota, type RatePolicy } from './rate-limits.ts';
import type { Log } from '../log.ts';

export interface SharedQuotaOptions {
  database: Pick<Database, 'sql'>;
  /** The surface's schema; it has the table `rate_quotas`. */
  schema: string;
  clock: Pick<Clock, 'monotonicMs'>;
  log: Log;
}

/** What this replica has taken out of a bucket, and until when it knows the bucket to be empty. */
interface Share {
  tokens: number;
  leftAtOthers: number;
  emptyUntilMs: number;
  taking: Promise<void> | undefined;
}

// Two replicas may each hold a share beside a full bucket; two fiftieths are within the twentieth that a limit may be off by.
const shareOfBucket = 0.02;
const maximumShares = 50_000;
const forgetEveryMs = 300_000;

export function createSharedQuota({ database, schema, clock, log }: SharedQuotaOptions): Quota {
  const { sql } = database;
  const table = `${schema}.rate_quotas`;
  const alone = createQuota({ clock });
  const shares = new Map<string, Share>();
  let forgottenAtMs = clock.monotonicMs();

  function shareOf(place: string): Share {
    const known = shares.get(place);
    if (known) shares.delete(place);
    else if (shares.size >= maximumShares) shares.delete(shares.keys().next().value ?? '');
    const share = known ?? { tokens: 0, leftAtOthers: 0, emptyUntilMs: 0, taking: undefined };
    shares.set(place, share);
    return share;
  }

  async function take(place: string, share: Share, perMinute: number): Promise<void> {
    const wanted = Math.max(1, Math.floor(perMinute * shareOfBucket));
    // The bucket as it is now, refilled since it was last touched; what is granted are whole requests.
    const [row] = await sql<{ granted: number; tokens: number }[]>`
      with now as (select clock_timestamp() as at),
      made as (
        insert into ${sql(table)} as q (key, tokens, at) select ${place}, ${perMinute}::float8, at from now
        on conflict (key) do update set at = greatest(q.at, excluded.at),
          tokens = least(${perMinute}::float8, q.tokens + greatest(0, extract(epoch from excluded.at - q.at)) * ${perMinute / 60}::float8)
        returning tokens)
      select least(${wanted}::float8, floor(tokens)) as granted, tokens from made`;
    const granted = Math.max(0, row?.granted ?? 0);
    if (granted > 0) {
      // Conditional, so that two replicas which saw the same bucket do not both take its last requests.
      const [left] = await sql<{ tokens: number }[]>`
        update ${sql(table)} set tokens = tokens - ${granted}::float8 where key = ${place} and tokens >= ${granted}::float8 returning tokens`;
      if (left) {
        share.tokens += granted;
        share.leftAtOthers = left.tokens;
        return;
      }
    }
    share.leftAtOthers = 0;
    share.emptyUntilMs = clock.monotonicMs() + ((1 - ((row?.tokens ?? 0) % 1)) / perMinute) * 60_000;
  }

  function drawn(share: Share, perMinute: number): Drawn {
    const granted = share.tokens >= 1;
    if (granted) share.tokens -= 1;
    const waitMs = Math.max(share.emptyUntilMs - clock.monotonicMs(), 60_000 / perMinute);
    return {
      granted,
      left: Math.floor(share.tokens + share.leftAtOthers),
      waitSeconds: Math.max(1, Math.ceil(waitMs / 1_000)),
    };
  }

  function forgetOld(): void {
    if (clock.monotonicMs() - forgottenAtMs < forgetEveryMs) return;
    forgottenAtMs = clock.monotonicMs();
    // A bucket that nobody touched for two minutes is full, which is what an absent one is.
    sql`delete from ${sql(table)} where at < clock_timestamp() - interval '2 minutes'`.catch(
      (error: unknown) => log.warn({ err: error }, 'old quotas could not be forgotten'),
    );
  }

  async function drawShared(key: string, policy: RatePolicy, place: string, share: Share): Promise<Drawn> {
    try {
      // Whoever waits for the same share may find it used up when it comes, and takes the next.
      while (share.tokens < 1 && clock.monotonicMs() >= share.emptyUntilMs) {
        share.taking ??= take(place, share, policy.perMinute).finally(() => (share.taking = undefined));
        await share.taking;
      }
      return drawn(share, policy.perMinute);
    } catch (error) {
      log.debug({ err: error }, 'the shared quota cannot be reached');
      return await alone.draw(key, policy);
    } finally {
      forgetOld();
    }
  }

  return {
    draw(key, policy) {
      // With the limit itself, so that no share of a larger bucket is left when a limit is lowered.
      const place = `${policy.name}/${policy.perMinute} ${key}`;
      const share = shareOf(place);
      if (share.tokens >= 1 || clock.monotonicMs() < share.emptyUntilMs)
        return drawn(share, policy.perMinute);
      return drawShared(key, policy, place, share);
    },
  };
}
