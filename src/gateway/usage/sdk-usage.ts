// Usage as the AI SDK's gateway provider reads it: one call by its request, and a report of what calls cost.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type { SdkGeneration, SdkReportRow } from '../../contract/gateway/types.gen.ts';
import type { Call, Handlers } from '../../kernel/contract/operation.ts';
import { invalidMember, Problem } from '../../kernel/problem.ts';
import type { Identity } from '../identity.ts';
import type { UsageFilter, UsageGroup, UsageRecord, UsageStore } from './store.ts';

interface SdkUsageOptions {
  store: Pick<UsageStore, 'list' | 'group' | 'total'>;
  /** Writes the usage of calls that have just ended to the database. */
  reportCharges(): Promise<void>;
}

type ReportCall = Call<Operations['usage.getSdkReport'], Identity>;
type ReportQuery = ReportCall['query'];

const dayMs = 86_400_000;
const maxDays = 400;
const maxDaysOfHours = 31;
/** Limit of the groups of a report. */
const maxGroups = 1_000;
/** Limit of the records of one request, which has a record for each model that it ran. */
const maxRecords = 20;
const creditsPerDollar = 1_000_000;

export function sdkUsageHandlers({
  store,
  reportCharges,
}: SdkUsageOptions): Pick<
  Handlers<Operations, 'usage', Identity>,
  'usage.getSdkGeneration' | 'usage.getSdkReport'
> {
  return {
    'usage.getSdkGeneration': async ({ identity, query }) => {
      await reportCharges();
      const filter = { ...ownFilter(identity), requestId: query.id };
      // A request that tried several models has a record for each; the newest record has the
      // answer.
      const records = await store.list(filter, { before: null, limit: maxRecords });
      const record = records.find(({ model }) => model !== null);
      if (record === undefined) throw generationNotFound();
      return { status: 200, body: { data: serializeGeneration(record) } };
    },

    'usage.getSdkReport': async ({ identity, query }) => {
      const { user_id: userId, model, provider } = query;
      const filter = { ...ownFilter(identity, userId), model, provider, ...readRange(query) };
      const isOtherUser = identity.kind === 'user' && userId !== undefined && userId !== identity.userId;
      if (isOtherUser || query.credential_type === 'byok') return { status: 200, body: { results: [] } };
      await reportCharges();
      return { status: 200, body: { results: await readRows(store, query, filter) } };
    },
  };
}

/** Limits the records to those that the caller may read; an administrator can choose a user. */
function ownFilter(identity: ReportCall['identity'], userId?: string): UsageFilter {
  return identity.kind === 'user'
    ? { userId: identity.userId }
    : { userId, bureauId: identity.bureauId ?? undefined };
}

async function readRows(
  store: SdkUsageOptions['store'],
  { group_by: by = 'day', date_part: part = 'day' }: ReportQuery,
  filter: UsageFilter,
): Promise<SdkReportRow[]> {
  if (by === 'credential_type') {
    const total = await store.total(filter);
    return total.calls === 0n ? [] : [{ credential_type: 'system', ...serializeCosts(total) }];
  }
  const grouping = by === 'day' ? part : by;
  const groups = await store.group(filter, grouping, maxGroups);
  return groups.map((group) => ({
    ...(group.group === null ? {} : { [grouping]: group.group }),
    ...serializeCosts(group),
  }));
}

function serializeCosts(
  group: UsageGroup,
): Omit<SdkReportRow, 'day' | 'hour' | 'user' | 'model' | 'provider' | 'credential_type'> {
  const { credits, input, cachedInput, cacheWrite, output, reasoning, calls } = group;
  return {
    total_cost: Number(credits) / creditsPerDollar,
    input_tokens: Number(input + cachedInput + cacheWrite),
    output_tokens: Number(output + reasoning),
    cached_input_tokens: Number(cachedInput),
    cache_creation_input_tokens: Number(cacheWrite),
    reasoning_tokens: Number(reasoning),
    request_count: Number(calls),
  };
}

function serializeGeneration(record: UsageRecord): SdkGeneration {
  const { tokens, ttftMs, durationMs, model, provider } = record;
  const cost = Number(record.credits) / creditsPerDollar;
  return {
    id: record.requestId,
    total_cost: cost,
    upstream_inference_cost: 0,
    usage: cost,
    created_at: record.createdAt.toISOString(),
    model: model ?? '',
    is_byok: false,
    provider_name: provider ?? '',
    // Estimated from the times, since a record does not say whether the caller streamed: the first content of
    // a whole answer comes with its end.
    streamed: ttftMs !== null && ttftMs < durationMs,
    finish_reason: record.outcome,
    latency: Number(ttftMs ?? durationMs),
    generation_time: Number(durationMs),
    native_tokens_prompt: tokens.input + tokens.cachedInput + tokens.cacheWrite,
    native_tokens_completion: tokens.output + tokens.reasoning,
    native_tokens_reasoning: tokens.reasoning,
    native_tokens_cached: tokens.cachedInput,
    native_tokens_cache_creation: tokens.cacheWrite,
    billable_web_search_calls: 0,
  };
}

function generationNotFound(): Problem {
  const message = 'You have no model call with this id.';
  return new Problem('not_found', 'generation_not_found', message, { param: 'id' });
}

/** Both days are included. */
function readRange({
  start_date: start,
  end_date: end,
  group_by: by = 'day',
  date_part: part,
}: ReportQuery): { from: Date; to: Date } {
  const from = readDay(start, 'start_date');
  const to = new Date(readDay(end, 'end_date').getTime() + dayMs);
  const days = (to.getTime() - from.getTime()) / dayMs;
  if (days < 1) throw invalidMember('end_date', 'must not be before `start_date`');
  const limit = by === 'day' && part === 'hour' ? maxDaysOfHours : maxDays;
  if (days > limit) throw invalidMember('end_date', `must be within ${limit} days of \`start_date\``);
  return { from, to };
}

function readDay(text: string, name: string): Date {
  const day = new Date(`${text}T00:00:00Z`);
  // JavaScript's Date parses February 30 as March 2.
  if (!Number.isNaN(day.getTime()) && day.toISOString().startsWith(text)) return day;
  throw invalidMember(name, 'must be a valid date');
}
