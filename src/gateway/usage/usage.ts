// Usage reports: a user's own, and an administrator's over all users. Deletes
// records after the retention period.
import type {
  UsageGroup as GroupBody,
  UsageRecord as RecordBody,
  UsageTotal,
} from '../../contract/gateway/types.gen.ts';
import { pause } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { decodeCursor, isTimeAndId, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { readTimeRange } from '../../kernel/contract/time-range.ts';
import { invalidMember } from '../../kernel/problem.ts';
import type { Service } from '../service.ts';
import { sdkUsageHandlers } from './sdk-usage.ts';
import type { UsageFilter, UsageGroup, UsageRecord, UsageStore } from './store.ts';

interface UsageOptions {
  store: UsageStore;
  log: Log;
  clock: Pick<Clock, 'now' | 'sleep'>;
  retentionDays: number;
  /** Writes the usage of calls that have just ended to the database. */
  reportCharges(): Promise<void>;
}

export interface Usage extends Service<'usage'> {
  /** Starts deleting old records. Safe on several replicas. */
  start(): void;
  close(): Promise<void>;
}

const dayMs = 86_400_000;
const defaultDays = 30;
const maximumGroups = 500;
const retentionEveryMs = 3_600_000;
const firstRetentionMs = 60_000;
// Deleting 1,000 rows holds their locks for only a few milliseconds.
const deleteBatch = 1_000;

export function usage({ store, log, clock, retentionDays, reportCharges }: UsageOptions): Usage {
  const stop = new AbortController();
  let retentionLoop: Promise<void> | undefined;

  async function deleteOldRecords(): Promise<void> {
    // The first round waits a minute, so that it does not slow down the start of the server.
    for (let waitMs = firstRetentionMs; ; waitMs = retentionEveryMs) {
      await pause(waitMs, { clock, signal: stop.signal });
      if (stop.signal.aborted) return;
      try {
        while (!stop.signal.aborted && (await store.deleteOld(retentionDays, deleteBatch)) === deleteBatch);
      } catch (error) {
        log.warn({ err: error }, 'old usage records could not be deleted');
      }
    }
  }

  return {
    name: 'usage',
    title: 'Usage',
    env: [],
    handlers: {
      'usage.getUsage': createGetUsage({ store, clock, reportCharges }),
      'usage.listRecords': createListRecords({ store, reportCharges }),
      'usage.getOverview': createGetOverview({ store, clock, reportCharges }),
      ...sdkUsageHandlers({ store, reportCharges }),
    },
    start: () => void (retentionLoop ??= deleteOldRecords()),
    async close() {
      stop.abort();
      await retentionLoop;
    },
  };
}

function createGetUsage({
  store,
  clock,
  reportCharges,
}: Pick<UsageOptions, 'store' | 'clock' | 'reportCharges'>): Usage['handlers']['usage.getUsage'] {
  return async ({ identity, query }) => {
    const range = readRange(query, clock);
    const filter = { userId: identity.userId, ...range };
    const groupedBy = query.group_by ?? 'day';
    await reportCharges();
    const [total, groups] = await Promise.all([
      store.total(filter),
      store.group(filter, groupedBy, maximumGroups),
    ]);
    return {
      status: 200,
      body: {
        ...serializeRange(range),
        group_by: groupedBy,
        total: serializeTotal(total),
        items: groups.map(serializeGroup),
      },
    };
  };
}

function createListRecords({
  store,
  reportCharges,
}: Pick<UsageOptions, 'store' | 'reportCharges'>): Usage['handlers']['usage.listRecords'] {
  return async ({ identity, query }) => {
    const callerFilter: UsageFilter =
      identity.kind === 'user'
        ? { userId: identity.userId }
        : { userId: query.user_id, bureauId: identity.bureauId ?? query.bureau_id };
    const filter = {
      ...callerFilter,
      requestId: query.request_id,
      model: query.model,
      ...readTimeRange(query),
    };
    const beforePosition = query.cursor === undefined ? null : decodeCursor(query.cursor, isTimeAndId);
    const limit = pageLimit(query);
    await reportCharges();
    const { items, next_cursor } = pageOf(
      await store.list(filter, { before: beforePosition, limit }),
      limit,
      ({ createdAtText, usageId }) => [createdAtText, usageId],
    );
    return { status: 200, body: { items: items.map(serializeRecord), next_cursor } };
  };
}

function createGetOverview({
  store,
  clock,
  reportCharges,
}: Pick<UsageOptions, 'store' | 'clock' | 'reportCharges'>): Usage['handlers']['usage.getOverview'] {
  return async ({ identity, query }) => {
    const range = readRange(query, clock);
    const filter = { bureauId: identity.bureauId ?? query.bureau_id, ...range };
    await reportCharges();
    const groups = (groupedBy: 'day' | 'model' | 'bureau' | 'outcome') =>
      store.group(filter, groupedBy, maximumGroups);
    const [total, days, models, bureaus, outcomes] = await Promise.all([
      store.total(filter),
      groups('day'),
      groups('model'),
      groups('bureau'),
      groups('outcome'),
    ]);
    return {
      status: 200,
      body: {
        ...serializeRange(range),
        users: Number(total.users),
        total: serializeTotal(total),
        by_day: days.map(serializeGroup),
        by_model: models.map(serializeGroup),
        by_bureau: bureaus.map(serializeGroup),
        by_outcome: outcomes.map(serializeGroup),
      },
    };
  };
}

/** The time range of a report: the last thirty days by default. */
function readRange(
  query: { from?: string | undefined; to?: string | undefined },
  clock: Pick<Clock, 'now'>,
): { from: Date; to: Date } {
  const range = readTimeRange(query);
  const to = range.to ?? clock.now();
  const from = range.from ?? new Date(to.getTime() - defaultDays * dayMs);
  if (from >= to) throw invalidMember('from', 'must be before `to`');
  return { from, to };
}

function serializeRange({ from, to }: { from: Date; to: Date }) {
  return { from: from.toISOString(), to: to.toISOString() };
}

// The contract bounds credits and counts below 2^53.
function serializeTotal({
  calls,
  credits,
  input,
  cachedInput,
  cacheWrite,
  output,
  reasoning,
}: UsageGroup): UsageTotal {
  return {
    calls: Number(calls),
    credits: Number(credits),
    tokens: {
      input: Number(input),
      cached_input: Number(cachedInput),
      cache_write: Number(cacheWrite),
      output: Number(output),
      reasoning: Number(reasoning),
    },
  };
}

function serializeGroup(group: UsageGroup): GroupBody {
  return { group: group.group, ...serializeTotal(group) };
}

function serializeRecord(record: UsageRecord): RecordBody {
  const { tokens, units } = record;
  return {
    usage_id: record.usageId,
    request_id: record.requestId,
    user_id: record.userId,
    bureau_id: record.bureauId,
    token_id: record.tokenId,
    action: record.action,
    model: record.model,
    provider: record.provider,
    tokens: {
      input: tokens.input,
      cached_input: tokens.cachedInput,
      cache_write: tokens.cacheWrite,
      output: tokens.output,
      reasoning: tokens.reasoning,
    },
    units: {
      ...(units.image !== undefined && { image: units.image }),
      ...(units.videoSecond !== undefined && { video_second: units.videoSecond }),
      ...(units.speechCharacter !== undefined && { speech_character: units.speechCharacter }),
      ...(units.audioSecond !== undefined && { audio_second: units.audioSecond }),
    },
    credits: Number(record.credits),
    outcome: record.outcome,
    failure_code: record.failureCode,
    attempts: record.attempts,
    estimated: record.estimated,
    ttft_ms: record.ttftMs === null ? null : Number(record.ttftMs),
    duration_ms: Number(record.durationMs),
    created_at: record.createdAt.toISOString(),
  };
}
