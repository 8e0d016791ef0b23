// SQL of the event log. Every write updates the session's row, whose lock orders the writers: `seq` has no
// gaps. `active_run_id` is the fencing token: a run that another process has settled can no longer write.
import type { Database, Sql } from '../../../kernel/data/database.ts';
import { asJson, asText, type SessionEvent, type StoredEvent } from './events.ts';
import { unfoldedData } from './fold-store.ts';
import type { OpenPart } from './live-feed.ts';
import type { Append, LogEntry, UnitOfWork } from './unit.ts';

/**
 * Further CTEs of the append statement, each starting with a comma. The CTE `head` contains the sessions
 * whose events are appended; further CTEs must not write anything for other sessions.
 */
export type ExtraStatements = ReturnType<typeof noExtraStatements>;
const noExtraStatements = (tx: Sql) => tx``;

/**
 * Appends events and returns the seq of the last one. Null when the fence is closed or `expectedSeq` is not
 * the newest seq; then nothing was written.
 */
export async function append(
  unit: UnitOfWork,
  single: Append,
  extra?: ExtraStatements,
): Promise<number | null> {
  return (await appendAll(unit, [single], extra)).get(single.sessionKey) ?? null;
}

/** Appends to several sessions in one statement, once to each; returns the last seqs by session key. */
export async function appendAll(
  unit: UnitOfWork,
  appends: readonly Append[],
  extra: ExtraStatements = noExtraStatements(unit.tx),
): Promise<Map<string, number>> {
  const rows = appends.map(toAppendRow);
  const updatedRows = await unit.tx<{ session_id: string; head_seq: number; now: Date }[]>`
    with head as (
      update agent.sessions_sessions session
      set head_seq = session.head_seq + change.count, updated_at = agent.townhall_now(),
        active_run_id = case when change.sets_active then change.active else session.active_run_id end,
        queue_length = session.queue_length + change.queue,
        pending_approvals = session.pending_approvals + change.approvals,
        message_count = session.message_count + change.messages,
        input_tokens = session.input_tokens + change.input_tokens,
        output_tokens = session.output_tokens + change.output_tokens,
        cached_input_tokens = session.cached_input_tokens + change.cached_input_tokens,
        reasoning_tokens = session.reasoning_tokens + change.reasoning_tokens,
        credits = session.credits + change.credits,
        title = coalesce(session.title, change.title)
      from jsonb_to_recordset(${asJson(rows)}::text::jsonb) as change (
        session_id text, fence text, expects integer, events jsonb, count integer,
        sets_active boolean, active text, queue integer, approvals integer, messages integer,
        input_tokens bigint, output_tokens bigint, cached_input_tokens bigint,
        reasoning_tokens bigint, credits bigint, title text)
      where session.session_id = change.session_id
        and (change.fence is null or session.active_run_id = change.fence)
        and (change.expects is null
          or (session.head_seq = change.expects and session.deleted_at is null))
      returning session.session_id, session.head_seq, session.head_seq - change.count as base, change.events
    ), inserted as (
      insert into agent.sessions_events (session_id, seq, run_id, type, data)
      select head.session_id, place.seq, entry.value ->> 'run', entry.value ->> 'type',
        case when entry.value ->> 'type' = 'message.completed'
          then jsonb_set(entry.value -> 'data', '{message,metadata,seq}', to_jsonb(place.seq)) else entry.value -> 'data' end
      from head, jsonb_array_elements(head.events) with ordinality as entry (value, ordinal),
        lateral (select head.base + entry.ordinal::integer as seq) as place
    )${extra}
    select session_id, head_seq, agent.townhall_now() as now from head`;
  const eventsOf = new Map(rows.map((row) => [row.session_id, row.events]));
  for (const { session_id: sessionKey, head_seq: headSeq, now } of updatedRows)
    unit.appended.push(...toStoredEvents(sessionKey, eventsOf.get(sessionKey) ?? [], { headSeq, time: now }));
  const headSeqs = new Map(updatedRows.map((row) => [row.session_id, row.head_seq]));
  for (const nextAppend of appends) {
    const headSeq = headSeqs.get(nextAppend.sessionKey);
    if (headSeq !== undefined) unit.applied.push({ append: nextAppend, headSeq });
  }
  return headSeqs;
}

interface EntryJson {
  type: string;
  run: string | null;
  data: object;
}

function toAppendRow({ sessionKey, runId = null, fence, expectedSeq, events, change = {} }: Append) {
  const entries = events.map(({ type, runId: ownRunId, ...data }): EntryJson => ({
    type,
    run: ownRunId === undefined ? runId : ownRunId,
    data,
  }));
  return {
    session_id: sessionKey,
    fence: fence ?? null,
    expects: expectedSeq ?? null,
    events: entries,
    count: entries.length,
    sets_active: change.activeRunId !== undefined,
    active: change.activeRunId ?? null,
    queue: change.queue ?? 0,
    approvals: change.approvals ?? 0,
    messages: change.messages ?? 0,
    input_tokens: change.inputTokens ?? 0,
    output_tokens: change.outputTokens ?? 0,
    cached_input_tokens: change.cachedInputTokens ?? 0,
    reasoning_tokens: change.reasoningTokens ?? 0,
    credits: change.credits ?? 0,
    title: change.title ?? null,
  };
}

function toStoredEvents(
  sessionKey: string,
  entries: readonly EntryJson[],
  head: { headSeq: number; time: Date },
): StoredEvent[] {
  const time = head.time.toISOString();
  const baseSeq = head.headSeq - entries.length;
  return entries.map(({ type, run, data }, index) => {
    const seq = baseSeq + index + 1;
    return { sessionKey, seq, runId: run, type, json: asJson(withSeq(type, data, seq)), time };
  });
}

function withSeq(type: string, data: object, seq: number): object {
  if (type !== 'message.completed') return data;
  const { message } = data as { message: { metadata?: object } };
  return { ...data, message: { ...message, metadata: { ...message.metadata, seq } } };
}

/**
 * A completed message has its own seq in its metadata. `append` sets it; for the events with which a session
 * is created, the caller has to set it with this function.
 */
export function withMessageSeq(event: LogEntry, seq: number): LogEntry {
  return withSeq(event.type, event, seq) as LogEntry;
}

/** The largest value of an integer column. */
export const maxSeq = 2_147_483_647;

/** A range of a session's history. A fork has one per ancestor, then its own. */
export interface Segment {
  sessionKey: string;
  upTo: number;
}

interface EventRow {
  session_id: string;
  seq: number;
  run_id: string | null;
  type: string;
  json: string;
  time: Date;
}

interface PageRow extends EventRow {
  /** Rows before the size limit was applied. */
  row_count: number;
}

function toEvent(
  { session_id: sessionKey, seq, run_id: runId, type, json, time }: EventRow,
  previous?: { row: EventRow; event: StoredEvent },
): StoredEvent {
  // All events of an append have the same time, and toISOString is the most expensive part of this function.
  const isSameTime = previous?.row.time.getTime() === time.getTime();
  return {
    sessionKey,
    seq,
    runId,
    type,
    json,
    time: previous && isSameTime ? previous.event.time : time.toISOString(),
  };
}

export interface EventQuery {
  sessionKey: string;
  runId: string;
  after: number;
  event: SessionEvent;
}

export interface MessagePageQuery {
  /** The seq of the last message of the previous page. */
  from: number | undefined;
  order: 'asc' | 'desc';
  limit: number;
}

export interface EventStore {
  /** At most `limit` events after a seq; fewer when they are large, but at least one while events remain. */
  read(segments: readonly Segment[], after: number, limit: number): Promise<StoredEvent[]>;
  /** All events that a conversation is projected from. */
  conversationEvents(segments: readonly Segment[], after: number): Promise<StoredEvent[]>;
  /** A page of completed messages, limited in size as `read` is. */
  messagePage(
    segments: readonly Segment[],
    page: MessagePageQuery,
  ): Promise<{ events: StoredEvent[]; hasMore: boolean }>;
  /** The `message.created` and `message.completed` of one message. */
  messageEvents(segments: readonly Segment[], messageId: string): Promise<StoredEvent[]>;
  /** The seq of the `message.created` whose message a run is still writing. */
  openMessageSeq(sessionKey: string, runId: string): Promise<number | undefined>;
  /** The newest event of a type, at or before `upTo`. */
  newestOfType(
    segments: readonly Segment[],
    type: 'run.started' | 'message.created',
    upTo: number,
  ): Promise<StoredEvent | undefined>;
  /** All events of a run, including those with which a fork ended the run for itself. */
  runEvents(segments: readonly Segment[], runId: string): Promise<StoredEvent[]>;
  /** The seq of an event of a run, after the seq `after`; undefined when the log has no such event. */
  findEvent(query: EventQuery): Promise<number | undefined>;
  /** The output of a tool; undefined when the event of that seq has none. */
  toolOutput(segments: readonly Segment[], seq: number): Promise<unknown>;
  /** The newest seq of each session; removed sessions are left out. */
  headSeqs(sessionKeys: readonly string[]): Promise<{ sessionKey: string; headSeq: number }[]>;
  /** The checkpointed text of the parts that are still open, whichever process writes them. */
  openTexts(sessionKeys: readonly string[]): Promise<(OpenPart & { sessionKey: string })[]>;
}

// Size of a page without its last event. A stream holds two pages while its reader is slow.
const readBytes = 1024 * 1024;
const messagesBytes = 4 * 1024 * 1024;
// Weight of compressed rows. Text is usually a few times its compressed size, and pglz compresses at most
// about 90 times, so a page is at most six times its limit. The exact size is known only after decompression.
const compressedWeight = 16;

const unlimitedCount = 1_000_000;

export function eventStore({ sql }: Pick<Database, 'sql'>): EventStore {
  return {
    read: async (segments, afterSeq, limit) =>
      (await readPage(sql, segments, { after: afterSeq, limit, maxBytes: readBytes, onlyMessages: false }))
        .events,
    conversationEvents: (segments, afterSeq) =>
      walkSegments(
        segments,
        { after: afterSeq, limit: unlimitedCount },
        (segment, fromSeq) => sql<EventRow[]>`
        select session_id, seq, run_id, type, data::text as json, time from agent.sessions_events
        where session_id = ${segment.sessionKey} and seq > ${fromSeq} and seq <= ${segment.upTo}
          and type in ('run.started', 'message.completed', 'message.updated', 'compaction.ended',
            'context.pruned', 'queue.removed', 'workspace.undone', 'workspace.redone')
        order by seq`,
      ),
    messagePage: (segments, { from, order, limit }) =>
      order === 'asc'
        ? readPage(sql, segments, { after: from ?? 0, limit, maxBytes: messagesBytes, onlyMessages: true })
        : readNewestMessages(sql, segments, { before: from ?? maxSeq, limit }),
    messageEvents: (segments, messageId) =>
      walkSegments(
        segments,
        { after: 0, limit: unlimitedCount },
        (segment) => sql<EventRow[]>`
        select session_id, seq, run_id, type, data::text as json, time from agent.sessions_events
        where session_id = ${segment.sessionKey} and data ->> 'messageId' = ${messageId}
          and seq <= ${segment.upTo} and type in ('message.created', 'message.completed')
        order by seq`,
      ),
    runEvents: (segments, runId) =>
      walkSegments(
        segments,
        { after: 0, limit: unlimitedCount },
        (segment, fromSeq) => sql<EventRow[]>`
        select session_id, seq, run_id, type, (${unfoldedData(sql)})::text as json, time
        from agent.sessions_events
        where run_id = ${runId} and session_id = ${segment.sessionKey} and seq > ${fromSeq}
          and seq <= ${segment.upTo}
        order by seq`,
      ),
    findEvent: (query) => findEvent(sql, query),
    toolOutput: (segments, seq) => readToolOutput(sql, segments, seq),
    openMessageSeq: (sessionKey, runId) => openMessageSeq(sql, sessionKey, runId),
    newestOfType: (segments, type, upTo) => findNewestOfType(sql, segments, type, upTo),
    async headSeqs(sessionKeys) {
      const rows = await sql<{ session_id: string; head_seq: number }[]>`
        select session_id, head_seq from agent.sessions_sessions
        where session_id = any(${[...sessionKeys]}::text[]) and deleted_at is null`;
      return rows.map((row) => ({ sessionKey: row.session_id, headSeq: row.head_seq }));
    },
    openTexts: (sessionKeys) => openTexts(sql, sessionKeys),
  };
}

/** One query per segment, because each is a single index scan. */
async function walkSegments(
  segments: readonly Segment[],
  { after, limit }: { after: number; limit: number },
  query: (segment: Segment, afterSeq: number, limit: number) => Promise<EventRow[]>,
): Promise<StoredEvent[]> {
  const events: StoredEvent[] = [];
  let fromSeq = after;
  for (const segment of segments) {
    if (segment.upTo <= fromSeq) continue;
    const rows = await query(segment, fromSeq, limit - events.length);
    for (const [index, row] of rows.entries()) {
      const previousRow = rows[index - 1];
      events.push(toEvent(row, previousRow && { row: previousRow, event: events.at(-1) as StoredEvent }));
    }
    if (events.length >= limit) return events;
    fromSeq = segment.upTo;
  }
  return events;
}

interface PageLimits {
  after: number;
  limit: number;
  maxBytes: number;
  /** Whether the page has completed messages only. */
  onlyMessages: boolean;
}

/** Limits the page by stored size, which is known without reading the events. */
async function readPage(
  sql: Sql,
  segments: readonly Segment[],
  { after, limit, maxBytes, onlyMessages }: PageLimits,
): Promise<{ events: StoredEvent[]; hasMore: boolean }> {
  let bytes = 0;
  let hasMore = false;
  const events = await walkSegments(
    segments,
    { after, limit: limit + 1 },
    async (segment, fromSeq, count) => {
      if (hasMore) return [];
      const rows = await sql<PageRow[]>`
      select session_id, seq, run_id, type, time, (${unfoldedData(sql)})::text as json, row_count from (
        select *, (count(*) over ())::integer as row_count,
          sum(bytes) over (order by seq rows unbounded preceding) - bytes as bytes_before
        from (
          select session_id, seq, run_id, type, time, data, folded,
            case when folded is null then pg_column_size(data)::bigint * case
              when pg_column_compression(data) is null then 1 else ${compressedWeight}::integer end
              else (folded ->> 'bytes')::bigint end as bytes
          from agent.sessions_events
          where session_id = ${segment.sessionKey} and seq > ${fromSeq}
            and seq <= ${segment.upTo} ${onlyMessages ? sql`and type = 'message.completed'` : sql``}
          order by seq limit ${count}
        ) candidates
      ) sized where bytes_before < ${Math.max(1, maxBytes - bytes)}::integer order by seq`;
      hasMore = rows.length < (rows[0]?.row_count ?? 0);
      for (const { json } of rows) bytes += Buffer.byteLength(json);
      return rows;
    },
  );
  return { events: events.slice(0, limit), hasMore: hasMore || events.length > limit };
}

/** Reads completed messages before a seq, the newest first, limited in size as `readPage` is. */
async function readNewestMessages(
  sql: Sql,
  segments: readonly Segment[],
  { before, limit }: { before: number; limit: number },
): Promise<{ events: StoredEvent[]; hasMore: boolean }> {
  const events: StoredEvent[] = [];
  let bytes = 0;
  for (const [index, segment] of [...segments.entries()].reverse()) {
    const afterSeq = segments[index - 1]?.upTo ?? 0;
    const upTo = Math.min(segment.upTo, before - 1);
    if (upTo <= afterSeq) continue;
    const rows = await sql<PageRow[]>`
      select session_id, seq, run_id, type, time, data::text as json, row_count from (
        select *, (count(*) over ())::integer as row_count,
          sum(bytes) over (order by seq desc rows unbounded preceding) - bytes as bytes_before
        from (
          select session_id, seq, run_id, type, time, data, pg_column_size(data)::bigint * case
            when pg_column_compression(data) is null then 1 else ${compressedWeight}::integer
            end as bytes
          from agent.sessions_events
          where session_id = ${segment.sessionKey} and seq > ${afterSeq} and seq <= ${upTo}
            and type = 'message.completed'
          order by seq desc limit ${limit + 1 - events.length}
        ) candidates
      ) sized where bytes_before < ${Math.max(1, messagesBytes - bytes)}::integer order by seq desc`;
    for (const row of rows) {
      events.push(toEvent(row));
      bytes += Buffer.byteLength(row.json);
    }
    if (rows.length < (rows[0]?.row_count ?? 0)) return { events: events.slice(0, limit), hasMore: true };
    if (events.length > limit) break;
  }
  return { events: events.slice(0, limit), hasMore: events.length > limit };
}

async function findEvent(
  sql: Sql,
  { sessionKey, runId, after, event: { type, ...data } }: EventQuery,
): Promise<number | undefined> {
  const [row] = await sql<{ seq: number }[]>`
    select seq from agent.sessions_events
    where session_id = ${sessionKey} and seq > ${after} and run_id = ${runId} and type = ${type}
      and data = ${asJson(data)}::text::jsonb
    order by seq desc limit 1`;
  return row?.seq;
}

async function readToolOutput(sql: Sql, segments: readonly Segment[], seq: number): Promise<unknown> {
  const segment = segments.find(({ upTo }) => seq <= upTo);
  if (segment === undefined) return undefined;
  const [row] = await sql<{ output: string }[]>`
    select ((${unfoldedData(sql)}) -> 'output')::text as output from agent.sessions_events
    where session_id = ${segment.sessionKey} and seq = ${seq} and type = 'tool.output'`;
  return row && (JSON.parse(row.output) as unknown);
}

async function openMessageSeq(sql: Sql, sessionKey: string, runId: string): Promise<number | undefined> {
  const [row] = await sql<{ seq: number | null }[]>`
    select min(created.seq) as seq from agent.sessions_events created
    where created.session_id = ${sessionKey} and created.run_id = ${runId}
      and created.type = 'message.created'
      and not exists (
        select 1 from agent.sessions_events completed
        where completed.session_id = created.session_id
          and completed.data ->> 'messageId' = created.data ->> 'messageId'
          and completed.type = 'message.completed')`;
  return row?.seq ?? undefined;
}

async function findNewestOfType(
  sql: Sql,
  segments: readonly Segment[],
  type: string,
  upTo: number,
): Promise<StoredEvent | undefined> {
  for (const segment of [...segments].reverse()) {
    const [row] = await sql<EventRow[]>`
      select session_id, seq, run_id, type, data::text as json, time from agent.sessions_events
      where session_id = ${segment.sessionKey} and seq <= ${Math.min(segment.upTo, upTo)}
        and type = ${type}
      order by seq desc limit 1`;
    if (row) return toEvent(row);
  }
  return undefined;
}

interface OpenTextRow {
  session_id: string;
  run_id: string;
  message_id: string;
  part_id: string;
  part_type: OpenPart['partType'];
  started_seq: number;
  text: string;
}

async function openTexts(
  sql: Sql,
  sessionKeys: readonly string[],
): Promise<(OpenPart & { sessionKey: string })[]> {
  const rows = await sql<OpenTextRow[]>`
    select session_id, run_id, message_id, part_id, part_type, started_seq,
      string_agg(piece, '' order by start_offset) as text
    from agent.sessions_checkpoints where session_id = any(${[...sessionKeys]}::text[])
    group by session_id, run_id, message_id, part_id, part_type, started_seq`;
  return rows.map((row) => ({
    sessionKey: row.session_id,
    runId: row.run_id,
    messageId: row.message_id,
    partId: row.part_id,
    partType: row.part_type,
    startedSeq: row.started_seq,
    text: row.text,
  }));
}

/**
 * All events of an unsettled run in its own session. None is folded: a session with an active run is not at
 * rest.
 */
export async function readRunEvents(
  sql: Sql,
  { runId, sessionKey }: { runId: string; sessionKey: string },
): Promise<StoredEvent[]> {
  const rows = await sql<EventRow[]>`
    select session_id, seq, run_id, type, data::text as json, time from agent.sessions_events
    where run_id = ${runId} and session_id = ${sessionKey} order by seq`;
  return rows.map((row) => toEvent(row));
}

/** The checkpointed text of one run, for its recovery. */
export async function readCheckpoints(
  sql: Sql,
  runId: string,
): Promise<{ partId: string; partType: 'text' | 'reasoning'; text: string }[]> {
  const rows = await sql<{ part_id: string; part_type: 'text' | 'reasoning'; text: string }[]>`
    select part_id, part_type, string_agg(piece, '' order by start_offset) as text
    from agent.sessions_checkpoints
    where run_id = ${runId} group by part_id, part_type, started_seq order by started_seq`;
  return rows.map((row) => ({ partId: row.part_id, partType: row.part_type, text: row.text }));
}

/**
 * Makes text of an open part durable; may be repeated. Writes nothing when the run
 * is no longer the session's active run.
 */
export async function insertCheckpoint(
  { tx }: UnitOfWork,
  { sessionKey, part, from, text }: { sessionKey: string; part: OpenPart; from: number; text: string },
): Promise<void> {
  await tx`
    insert into agent.sessions_checkpoints (session_id, run_id, message_id, part_id, part_type,
      started_seq, start_offset, piece)
    select ${sessionKey}, ${part.runId}, ${part.messageId}, ${part.partId}, ${part.partType},
      ${part.startedSeq}, ${from}, ${asText(text)}
    from agent.sessions_sessions where session_id = ${sessionKey} and active_run_id = ${part.runId}
      and not exists (select 1 from agent.sessions_checkpoints where session_id = ${sessionKey}
        and part_id = ${part.partId} and start_offset = ${from})`;
}

/** A CTE that deletes the checkpoints of parts, for the append whose events contain the complete parts. */
export function deleteCheckpoints(tx: Sql, runId: string, partIds: readonly string[]): ExtraStatements {
  return tx`, deleted_checkpoints as (
      delete from agent.sessions_checkpoints
      where run_id = ${runId} and part_id = any(${[...partIds]}::text[]) and exists (select from head)
    )`;
}
