// The log itself: what may be appended and what is read. The row of the session is the lock of its writers, so `seq` has
// no gaps; `active_run_id` is the fence: a run that somebody else has settled can write nothing any more.
import type { Database, Sql } from '../../../kernel/data/database.ts';
import { asJson, asText, type StoredEvent } from './events.ts';
import type { OpenPart } from './bus.ts';
import type { Append, LogEntry, Unit } from './unit.ts';

export type { Append, LogEntry, SessionChange } from './unit.ts';

/**
 * Further parts of the statement that appends, each with a comma before it. In `head` are the sessions that are appended to;
 * they write nothing for any other.
 */
export type ExtraStatements = ReturnType<typeof noExtraStatements>;
const noExtraStatements = (tx: Sql) => tx``;

/** The seq of the newest event, or null when the fence was closed or the session stands elsewhere; then nothing was written. */
export async function append(unit: Unit, one: Append, extra?: ExtraStatements): Promise<number | null> {
  return (await appendAll(unit, [one], extra)).get(one.sessionKey) ?? null;
}

/** The same for several sessions in one statement, each of them once: the seq of its newest event by the session's key. */
export async function appendAll(
  unit: Unit,
  all: readonly Append[],
  extra: ExtraStatements = noExtraStatements(unit.tx),
): Promise<Map<string, number>> {
  const entries = new Map<string, { type: string; run: string | null; data: object }[]>();
  const rows = all.map(
    ({ sessionKey, runId = null, fence = null, expectedSeq: expects = null, events, change = {} }) => {
      const {
        queue = 0,
        approvals = 0,
        messages = 0,
        inputTokens = 0,
        outputTokens = 0,
        title = null,
      } = change;
      const own = events.map(({ type, runId: ownRun, ...data }) => ({
        type,
        run: ownRun === undefined ? runId : ownRun,
        data,
      }));
      entries.set(sessionKey, own);
      return {
        session_id: sessionKey,
        fence,
        expects,
        events: own,
        count: own.length,
        sets_active: change.activeRunId !== undefined,
        active: change.activeRunId ?? null,
        queue,
        approvals,
        messages,
        input_tokens: inputTokens,
        output_tokens: outputTokens,
        title,
      };
    },
  );
  const written = await unit.tx<{ session_id: string; head_seq: number; now: Date }[]>`
    with head as (
      update agent.sessions_sessions session
      set head_seq = session.head_seq + one.count, updated_at = agent.townhall_now(),
        active_run_id = case when one.sets_active then one.active else session.active_run_id end,
        queue_length = session.queue_length + one.queue, pending_approvals = session.pending_approvals + one.approvals,
        message_count = session.message_count + one.messages,
        input_tokens = session.input_tokens + one.input_tokens, output_tokens = session.output_tokens + one.output_tokens,
        title = coalesce(session.title, one.title)
      from jsonb_to_recordset(${asJson(rows)}::text::jsonb) as one (session_id text, fence text, expects integer, events jsonb, count integer, sets_active boolean, active text,
        queue integer, approvals integer, messages integer, input_tokens integer, output_tokens integer, title text)
      where session.session_id = one.session_id and (one.fence is null or session.active_run_id = one.fence)
        and (one.expects is null or (session.head_seq = one.expects and session.deleted_at is null))
      returning session.session_id, session.head_seq, session.head_seq - one.count as base, one.events
    ), written as (
      insert into agent.sessions_events (session_id, seq, run_id, type, data)
      select head.session_id, place.seq, entry.value ->> 'run', entry.value ->> 'type',
        case when entry.value ->> 'type' = 'message.completed'
          then jsonb_set(entry.value -> 'data', '{message,metadata,seq}', to_jsonb(place.seq)) else entry.value -> 'data' end
      from head, jsonb_array_elements(head.events) with ordinality as entry (value, ordinal),
        lateral (select head.base + entry.ordinal::integer as seq) as place
    )${extra}
    select session_id, head_seq, agent.townhall_now() as now from head`;
  for (const { session_id: sessionKey, head_seq: headSeq, now } of written) {
    const own = entries.get(sessionKey) ?? [];
    const time = now.toISOString();
    own.forEach(({ type, run, data }, index) => {
      const seq = headSeq - own.length + 1 + index;
      unit.appended.push({ sessionKey, seq, runId: run, type, json: asJson(withSeq(type, data, seq)), time });
    });
  }
  const headSeqs = new Map(written.map((row) => [row.session_id, row.head_seq]));
  for (const one of all) {
    const headSeq = headSeqs.get(one.sessionKey);
    if (headSeq !== undefined) unit.moved.push({ append: one, headSeq });
  }
  return headSeqs;
}

function withSeq(type: string, data: object, seq: number): object {
  if (type !== 'message.completed') return data;
  const { message } = data as { message: { metadata?: object } };
  return { ...data, message: { ...message, metadata: { ...message.metadata, seq } } };
}

/** As it is kept by one who writes it without `append`: a message knows its own seq. */
export function withMessageSeq(event: LogEntry, seq: number): LogEntry {
  return withSeq(event.type, event, seq) as LogEntry;
}

/** Where a session's events lie: those of each ancestor up to a seq, then its own. */
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
  /** How many there were before any was left out. */
  found: number;
}

function toEvent(
  { session_id: sessionKey, seq, run_id: runId, type, json, time }: EventRow,
  before?: { row: EventRow; event: StoredEvent },
): StoredEvent {
  // Events of one append have one time, and writing it out costs more than all the rest.
  const isSame = before?.row.time.getTime() === time.getTime();
  return {
    sessionKey,
    seq,
    runId,
    type,
    json,
    time: isSame ? (before as { event: StoredEvent }).event.time : time.toISOString(),
  };
}

export interface EventStore {
  /** Those after a seq: as many as `limit`, or fewer where they are large; one at least, where there is one. */
  read(segments: readonly Segment[], after: number, limit: number): Promise<StoredEvent[]>;
  /** The events that a conversation is rebuilt from, all of them. */
  conversationEvents(segments: readonly Segment[], after: number): Promise<StoredEvent[]>;
  /** A page of those that complete a message, bounded as `read` is. */
  messagePage(
    segments: readonly Segment[],
    after: number,
    limit: number,
  ): Promise<{ events: StoredEvent[]; hasMore: boolean }>;
  /** The `message.created` and `message.completed` of one message. */
  messageEvents(segments: readonly Segment[], messageId: string): Promise<StoredEvent[]>;
  /** The seq at which the message began that a run is writing; undefined when it writes none. */
  openMessageSeq(sessionKey: string, runId: string): Promise<number | undefined>;
  /** The newest event of the type up to a seq. */
  newestOfType(
    segments: readonly Segment[],
    type: 'run.started' | 'message.created',
    upTo: number,
  ): Promise<StoredEvent | undefined>;
  /** Everything that one run has written there; a fork may have written of it too, for itself. */
  ofRun(segments: readonly Segment[], runId: string): Promise<StoredEvent[]>;
  /** Of those that have not been removed. */
  headSeqs(sessionKeys: readonly string[]): Promise<{ sessionKey: string; headSeq: number }[]>;
  /** The open text of runs of other processes, by session. */
  openTexts(sessionKeys: readonly string[]): Promise<(OpenPart & { sessionKey: string })[]>;
}

// What a page holds besides its last event: of a stream it waits for its reader, and the next page with it.
const readBytes = 1024 * 1024;
const messagesBytes = 4 * 1024 * 1024;
// How often what is stored compressed counts: text is a few times as long as that, and by PostgreSQL's own way never
// more than ninety, so that a page is at most six times what it may hold. The exact length is known only by making it.
const compressedWeight = 16;

export function eventStore({ sql }: Pick<Database, 'sql'>): EventStore {
  // A segment a query, since each is one walk along the index.
  async function walk(
    segments: readonly Segment[],
    after: number,
    limit: number,
    one: (segment: Segment, after: number, limit: number) => Promise<EventRow[]>,
  ): Promise<StoredEvent[]> {
    const found: StoredEvent[] = [];
    let from = after;
    for (const segment of segments) {
      if (segment.upTo <= from) continue;
      const rows = await one(segment, from, limit - found.length);
      for (const [index, row] of rows.entries()) {
        const before = rows[index - 1];
        found.push(toEvent(row, before && { row: before, event: found.at(-1) as StoredEvent }));
      }
      if (found.length >= limit) return found;
      from = segment.upTo;
    }
    return found;
  }

  // By how much is stored before an event, which is known without reading it.
  async function readPage(
    segments: readonly Segment[],
    after: number,
    { limit, maxBytes, onlyMessages = false }: { limit: number; maxBytes: number; onlyMessages?: boolean },
  ) {
    let bytes = 0;
    let hasMore = false;
    const events = await walk(segments, after, limit + 1, async (segment, from, count) => {
      if (hasMore) return [];
      const rows = await sql<PageRow[]>`
        select session_id, seq, run_id, type, time, data::text as json, found from (
          select *, (count(*) over ())::integer as found, sum(bytes) over (order by seq rows unbounded preceding) - bytes as bytes_before from (
            select session_id, seq, run_id, type, time, data, pg_column_size(data)::bigint * case when pg_column_compression(data) is null then 1 else ${compressedWeight}::integer end as bytes
            from agent.sessions_events
            where session_id = ${segment.sessionKey} and seq > ${from} and seq <= ${segment.upTo} ${onlyMessages ? sql`and type = 'message.completed'` : sql``} order by seq limit ${count}
          ) found
        ) counted where bytes_before < ${Math.max(1, maxBytes - bytes)}::integer order by seq`;
      hasMore = rows.length < (rows[0]?.found ?? 0);
      for (const { json } of rows) bytes += Buffer.byteLength(json);
      return rows;
    });
    return { events: events.slice(0, limit), hasMore: hasMore || events.length > limit };
  }

  const everything = 1_000_000;
  return {
    read: async (segments, after, limit) =>
      (await readPage(segments, after, { limit, maxBytes: readBytes })).events,
    conversationEvents: (segments, after) =>
      walk(
        segments,
        after,
        everything,
        (segment, from) => sql<EventRow[]>`
        select session_id, seq, run_id, type, data::text as json, time from agent.sessions_events
        where session_id = ${segment.sessionKey} and seq > ${from} and seq <= ${segment.upTo}
          and type in ('run.started', 'message.completed', 'compaction.ended', 'queue.removed') order by seq`,
      ),
    messagePage: (segments, after, limit) =>
      readPage(segments, after, { limit, maxBytes: messagesBytes, onlyMessages: true }),
    messageEvents: (segments, messageId) =>
      walk(
        segments,
        0,
        everything,
        (segment) => sql<EventRow[]>`
        select session_id, seq, run_id, type, data::text as json, time from agent.sessions_events
        where session_id = ${segment.sessionKey} and data ->> 'messageId' = ${messageId} and seq <= ${segment.upTo}
          and type in ('message.created', 'message.completed') order by seq`,
      ),
    async openMessageSeq(sessionKey, runId) {
      const [row] = await sql<{ seq: number | null }[]>`
        select min(begun.seq) as seq from agent.sessions_events begun
        where begun.session_id = ${sessionKey} and begun.run_id = ${runId} and begun.type = 'message.created'
          and not exists (
            select 1 from agent.sessions_events ended
            where ended.session_id = begun.session_id and ended.data ->> 'messageId' = begun.data ->> 'messageId' and ended.type = 'message.completed')`;
      return row?.seq ?? undefined;
    },
    async newestOfType(segments, type, upTo) {
      for (const segment of [...segments].reverse()) {
        const [row] = await sql<EventRow[]>`
          select session_id, seq, run_id, type, data::text as json, time from agent.sessions_events
          where session_id = ${segment.sessionKey} and seq <= ${Math.min(segment.upTo, upTo)} and type = ${type} order by seq desc limit 1`;
        if (row) return toEvent(row);
      }
      return undefined;
    },
    ofRun: (segments, runId) =>
      walk(
        segments,
        0,
        everything,
        (segment, from) => sql<EventRow[]>`
        select session_id, seq, run_id, type, data::text as json, time from agent.sessions_events
        where run_id = ${runId} and session_id = ${segment.sessionKey} and seq > ${from} and seq <= ${segment.upTo} order by seq`,
      ),
    async headSeqs(sessionKeys) {
      const rows = await sql<{ session_id: string; head_seq: number }[]>`
        select session_id, head_seq from agent.sessions_sessions where session_id = any(${[...sessionKeys]}::text[]) and deleted_at is null`;
      return rows.map((row) => ({ sessionKey: row.session_id, headSeq: row.head_seq }));
    },
    async openTexts(sessionKeys) {
      const rows = await sql<
        {
          session_id: string;
          run_id: string;
          message_id: string;
          part_id: string;
          part_type: string;
          started_seq: number;
          text: string;
        }[]
      >`
        select session_id, run_id, message_id, part_id, part_type, started_seq, string_agg(piece, '' order by start_offset) as text
        from agent.sessions_checkpoints where session_id = any(${[...sessionKeys]}::text[])
        group by session_id, run_id, message_id, part_id, part_type, started_seq`;
      return rows.map((row) => ({
        sessionKey: row.session_id,
        runId: row.run_id,
        messageId: row.message_id,
        partId: row.part_id,
        partType: row.part_type as OpenPart['partType'],
        startedSeq: row.started_seq,
        text: row.text,
      }));
    },
  };
}

/** Everything that one run has written into its session. */
export async function runEvents(
  sql: Sql,
  { runId, sessionKey }: { runId: string; sessionKey: string },
): Promise<StoredEvent[]> {
  const rows = await sql<EventRow[]>`
    select session_id, seq, run_id, type, data::text as json, time from agent.sessions_events where run_id = ${runId} and session_id = ${sessionKey} order by seq`;
  return rows.map((row) => toEvent(row));
}

/** Open text of one run, for its recovery. */
export async function readCheckpoints(
  sql: Sql,
  runId: string,
): Promise<{ partId: string; partType: 'text' | 'reasoning'; text: string }[]> {
  const rows = await sql<{ part_id: string; part_type: 'text' | 'reasoning'; text: string }[]>`
    select part_id, part_type, string_agg(piece, '' order by start_offset) as text from agent.sessions_checkpoints
    where run_id = ${runId} group by part_id, part_type, started_seq order by started_seq`;
  return rows.map((row) => ({ partId: row.part_id, partType: row.part_type, text: row.text }));
}

/** Makes a piece of open text durable; nothing is written for a run that may not write any more. */
export async function insertCheckpoint(
  unit: Unit,
  sessionKey: string,
  part: OpenPart,
  from: number,
  piece: string,
): Promise<void> {
  await unit.tx`
    insert into agent.sessions_checkpoints (session_id, run_id, message_id, part_id, part_type, started_seq, start_offset, piece)
    select ${sessionKey}, ${part.runId}, ${part.messageId}, ${part.partId}, ${part.partType}, ${part.startedSeq}, ${from}, ${asText(piece)}
    from agent.sessions_sessions where session_id = ${sessionKey} and active_run_id = ${part.runId}`;
}

/** Beside the append that has these parts as a whole. */
export function deleteCheckpoints(tx: Sql, runId: string, partIds: readonly string[]): ExtraStatements {
  return tx`, forgotten as (
      delete from agent.sessions_checkpoints where run_id = ${runId} and part_id = any(${[...partIds]}::text[]) and exists (select from head)
    )`;
}
