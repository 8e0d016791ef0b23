// SQL of usage records: list, group and delete. The ledger inserts them with the SQL
// function usage_add, in the transaction that settles the call.
import type { Database, Sql } from '../../kernel/data/database.ts';
import type { UsageOutcome, UsageTokens, UsageUnits } from './facts.ts';

export interface UsageRecord {
  usageId: string;
  requestId: string;
  userId: string | null;
  bureauId: string | null;
  tokenId: string;
  action: string;
  model: string | null;
  provider: string | null;
  tokens: UsageTokens;
  units: UsageUnits;
  credits: bigint;
  outcome: UsageOutcome;
  estimated: boolean;
  ttftMs: bigint | null;
  durationMs: bigint;
  failureCode: string | null;
  attempts: number | null;
  createdAt: Date;
  /** `createdAt` with microseconds, for the cursor; a Date has only milliseconds. */
  createdAtText: string;
}

/** An undefined member does not filter. */
export interface UsageFilter {
  userId?: string | undefined;
  bureauId?: string | undefined;
  requestId?: string | undefined;
  model?: string | undefined;
  provider?: string | undefined;
  from?: Date | undefined;
  /** Exclusive. */
  to?: Date | undefined;
}

/** Creation time and ID of the last record of the previous page. */
export type UsageCursor = [createdAt: string, usageId: string];

export type Grouping = 'day' | 'hour' | 'model' | 'provider' | 'user' | 'bureau' | 'outcome';

export interface UsageGroup {
  /** The value that the records of the group share; null for records without such a value. */
  group: string | null;
  calls: bigint;
  credits: bigint;
  input: bigint;
  cachedInput: bigint;
  cacheWrite: bigint;
  output: bigint;
  reasoning: bigint;
}

export interface UsageStore {
  /** Newest first. Returns one row more than `limit`, which tells whether another page follows. */
  list(filter: UsageFilter, page: { before: UsageCursor | null; limit: number }): Promise<UsageRecord[]>;
  /** At most `limit` groups: days and hours in ascending order; others by credits, largest first. */
  group(filter: UsageFilter, by: Grouping, limit: number): Promise<UsageGroup[]>;
  total(filter: UsageFilter): Promise<UsageGroup & { users: bigint }>;
  /** Deletes up to `limit` records older than `days`; resolves with their number. */
  deleteOld(days: number, limit: number): Promise<number>;
}

export function usageStore({ sql }: Database): UsageStore {
  return {
    async list(filter, { before, limit }) {
      const rows = await sql<UsageRecord[]>`
        select usage_id as "usageId", request_id as "requestId", user_id as "userId",
          bureau_id as "bureauId", token_id as "tokenId", action, model, provider, credits, outcome,
          estimated, ttft_ms as "ttftMs", duration_ms as "durationMs", failure_code as "failureCode",
          attempts, created_at as "createdAt", units,
          json_build_object('input', input_tokens, 'cachedInput', cached_input_tokens,
            'cacheWrite', cache_write_tokens, 'output', output_tokens, 'reasoning', reasoning_tokens) as tokens,
          to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "createdAtText"
        from gateway.usage_records
        where ${matches(sql, filter)}
          ${
            before === null
              ? sql``
              : sql`and (created_at, usage_id) < (${before[0]}::text::timestamptz, ${before[1]}::text)`
          }
        order by created_at desc, usage_id desc limit ${limit + 1}`;
      return [...rows];
    },
    async group(filter, by, limit) {
      const key = {
        day: sql`to_char(created_at at time zone 'UTC', 'YYYY-MM-DD')`,
        hour: sql`to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:00:00"Z"')`,
        model: sql`model`,
        provider: sql`provider`,
        user: sql`user_id`,
        bureau: sql`bureau_id`,
        outcome: sql`outcome`,
      }[by];
      const rows = await sql<UsageGroup[]>`
        select ${key} as "group", ${sums(sql)} from gateway.usage_records
        where ${matches(sql, filter)} group by 1
        order by ${by === 'day' || by === 'hour' ? sql`1` : sql`sum(credits) desc, 1`} limit ${limit}`;
      return [...rows];
    },
    async total(filter) {
      const [row] = await sql<(UsageGroup & { users: bigint })[]>`
        select null as "group", ${sums(sql)}, count(distinct user_id) as users
        from gateway.usage_records where ${matches(sql, filter)}`;
      if (row === undefined) throw new Error('The sum of usage records returned no row.');
      return row;
    },
    async deleteOld(days, limit) {
      const rows = await sql`
        delete from gateway.usage_records where usage_id in (
          select usage_id from gateway.usage_records
          where created_at < gateway.townhall_now() - make_interval(days => ${days})
          order by created_at limit ${limit} for update skip locked)`;
      return rows.count;
    },
  };
}

function sums(sql: Sql) {
  return sql`count(*) as calls, coalesce(sum(credits), 0)::bigint as credits,
    coalesce(sum(input_tokens), 0)::bigint as input,
    coalesce(sum(cached_input_tokens), 0)::bigint as "cachedInput",
    coalesce(sum(cache_write_tokens), 0)::bigint as "cacheWrite",
    coalesce(sum(output_tokens), 0)::bigint as output,
    coalesce(sum(reasoning_tokens), 0)::bigint as reasoning`;
}

function matches(sql: Sql, { userId, bureauId, requestId, model, provider, from, to }: UsageFilter) {
  return sql`true
    ${userId === undefined ? sql`` : sql`and user_id = ${userId}`}
    ${bureauId === undefined ? sql`` : sql`and bureau_id = ${bureauId}`}
    ${requestId === undefined ? sql`` : sql`and request_id = ${requestId}`}
    ${model === undefined ? sql`` : sql`and model = ${model}`}
    ${provider === undefined ? sql`` : sql`and provider = ${provider}`}
    ${from === undefined ? sql`` : sql`and created_at >= ${from}`}
    ${to === undefined ? sql`` : sql`and created_at < ${to}`}`;
}
