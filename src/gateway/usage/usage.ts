// The views of what was used: each user's own, and an administrator's over all. Records are dropped when they are
// older than the settings say.
import type {
  UsageGroup as WireGroup,
  UsageRecord as WireRecord,
  UsageTotal,
} from '../../contract/gateway/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { decodeCursor, isTimeAndId, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Service } from '../service.ts';
import type { UsageFilter, UsageGroup, UsageRecord, UsageStore } from './store.ts';

interface UsageOptions {
  store: UsageStore;
  log: Log;
  clock: Pick<Clock, 'now' | 'sleep'>;
  retentionDays: number;
}

export interface Usage extends Service<'usage'> {
  /** Begins to drop old records; any number of replicas may. */
  start(): void;
  close(): Promise<void>;
}

const day = 86_400_000;
const shownDays = 30;
const maximumGroups = 500;
const retentionEveryMs = 3_600_000;
const firstRetentionMs = 60_000;
const dropLimit = 1_000;

export function usage({ store, log, clock, retentionDays }: UsageOptions): Usage {
  const stopping = new AbortController();
  let running: Promise<void> | undefined;

  async function dropOld(): Promise<void> {
    // Not among everything else that a start is busy with.
    for (let waitMs = firstRetentionMs; ; waitMs = retentionEveryMs) {
      await clock.sleep(waitMs, stopping.signal).catch(() => undefined);
      if (stopping.signal.aborted) return;
      try {
        while ((await store.deleteOld(retentionDays, dropLimit)) === dropLimit);
      } catch (error) {
        log.warn({ err: error }, 'old usage records could not be dropped');
      }
    }
  }

  /** The span that a view is about: the last thirty days, unless it says otherwise. */
  function spanOf({ from, to }: { from?: string | undefined; to?: string | undefined }): {
    from: Date;
    to: Date;
  } {
    const end = timeOf(to) ?? clock.now();
    const start = timeOf(from) ?? new Date(end.getTime() - shownDays * day);
    if (start >= end) throw refused('from', 'must be before `to`');
    return { from: start, to: end };
  }

  return {
    name: 'usage',
    title: 'Usage',
    env: [],
    handlers: {
      'usage.getUsage': async ({ identity, query }) => {
        const span = spanOf(query);
        const filter = { userId: identity.userId, ...span };
        const by = query.group_by ?? 'day';
        const [total, groups] = await Promise.all([
          store.total(filter),
          store.group(filter, by, maximumGroups),
        ]);
        return {
          status: 200,
          body: { ...wireSpan(span), group_by: by, total: wireTotal(total), items: groups.map(wireGroup) },
        };
      },

      'usage.listRecords': async ({ identity, query }) => {
        const own: UsageFilter =
          identity.kind === 'user'
            ? { userId: identity.userId }
            : { userId: query.user_id, bureauId: identity.bureauId ?? query.bureau_id };
        const [from, to] = [timeOf(query.from), timeOf(query.to)];
        if (from !== undefined && to !== undefined && from >= to)
          throw refused('from', 'must be before `to`');
        const filter = { ...own, requestId: query.request_id, model: query.model, from, to };
        const before = query.cursor === undefined ? null : decodeCursor(query.cursor, isTimeAndId);
        const limit = pageLimit(query);
        const { items, next_cursor } = pageOf(
          await store.list(filter, { before, limit }),
          limit,
          ({ createdAtText: place, usageId }) => [place, usageId],
        );
        return { status: 200, body: { items: items.map(wireRecord), next_cursor } };
      },

      'usage.getOverview': async ({ identity, query }) => {
        const span = spanOf(query);
        const filter = { bureauId: identity.bureauId ?? query.bureau_id, ...span };
        const groups = (by: 'day' | 'model' | 'bureau' | 'outcome') => store.group(filter, by, maximumGroups);
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
            ...wireSpan(span),
            users: Number(total.users),
            total: wireTotal(total),
            by_day: days.map(wireGroup),
            by_model: models.map(wireGroup),
            by_bureau: bureaus.map(wireGroup),
            by_outcome: outcomes.map(wireGroup),
          },
        };
      },
    },
    start: () => void (running ??= dropOld()),
    async close() {
      stopping.abort();
      await running;
    },
  };
}

function timeOf(text: string | undefined): Date | undefined {
  return text === undefined ? undefined : new Date(text);
}

function refused(name: string, message: string): Problem {
  return new Problem('bad_request', 'invalid_request', `\`${name}\` ${message}.`, {
    param: name,
    details: [{ path: name, message }],
  });
}

function wireSpan({ from, to }: { from: Date; to: Date }) {
  return { from: from.toISOString(), to: to.toISOString() };
}

// Sums of credits and counts stay far below 2^53, which the contract says of them.
function wireTotal({
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

function wireGroup(group: UsageGroup): WireGroup {
  return { group: group.group, ...wireTotal(group) };
}

function wireRecord(record: UsageRecord): WireRecord {
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
    estimated: record.estimated,
    ttft_ms: record.ttftMs === null ? null : Number(record.ttftMs),
    duration_ms: Number(record.durationMs),
    created_at: record.createdAt.toISOString(),
  };
}
