// SQL of folded events. A completed message repeats the texts, inputs and outputs of the events before it, so
// in sessions at rest these events are folded: they store a reference to the message instead. Reads unfold
// them.
import type { Sql } from '../../../kernel/data/database.ts';

/** An SQL expression for the data of an event as it was written, whether the event is folded or not. */
export function unfoldedData(sql: Sql): ReturnType<Sql> {
  return sql`case when folded is null then data else agent.sessions_unfolded(session_id, data, folded) end`;
}

export interface FoldableSession {
  key: string;
  foldedSeq: number;
  headSeq: number;
}

/** Sessions with events to fold: archived sessions, and sessions without a change for `idleHours`. */
export async function findFoldableSessions(
  sql: Sql,
  { agentId, idleHours, limit }: { agentId: string; idleHours: number; limit: number },
): Promise<FoldableSession[]> {
  const rows = await sql<{ session_id: string; folded_seq: number; head_seq: number }[]>`
    select session_id, folded_seq, head_seq from agent.sessions_sessions
    where agent_id = ${agentId} and folded_seq < head_seq and active_run_id is null and queue_length = 0
      and (archived_at is not null
        or updated_at < agent.townhall_now() - ${idleHours}::integer * interval '1 hour')
    limit ${limit}`;
  return rows.map((row) => ({ key: row.session_id, foldedSeq: row.folded_seq, headSeq: row.head_seq }));
}

// A reference takes about as many bytes, so folding anything smaller saves nothing.
const minBytes = 200;
// Only messages that complete at most this many events after the folded range are searched.
const maxDistance = 2_000;

/** Folds the events of a session after `from` and up to `to`. May be repeated. */
export async function foldEvents(
  sql: Sql,
  { key, from, to }: { key: string; from: number; to: number },
): Promise<void> {
  await sql`
    with parts as materialized (
      select message.seq, message.data ->> 'messageId' as message_id, part.ordinal - 1 as index, part.value
      from agent.sessions_events message,
        jsonb_array_elements(message.data #> '{message,parts}') with ordinality as part (value, ordinal)
      where message.session_id = ${key} and message.type = 'message.completed'
        and message.seq > ${from}::integer and message.seq <= ${to}::integer + ${maxDistance}::integer
    ), matches as materialized (
      select distinct on (event.seq) event.seq, member.name, parts.seq as message_seq, parts.index,
        octet_length(event.data::text) as bytes
      from agent.sessions_events event
      join (values ('part.ended', 'text'), ('tool.started', 'input'), ('tool.output', 'output'))
        as member (type, name) on member.type = event.type
      join parts on parts.message_id = event.data ->> 'messageId' and parts.seq > event.seq
        and parts.value -> member.name = event.data -> member.name
      where event.session_id = ${key} and event.seq > ${from}::integer and event.seq <= ${to}::integer
        and event.folded is null
        and event.type in ('part.ended', 'tool.started', 'tool.output')
          and pg_column_size(event.data -> member.name) > ${minBytes}::integer
      order by event.seq, parts.seq, parts.index
    ), folded as (
      update agent.sessions_events event
      set data = event.data - matches.name,
        folded = jsonb_build_object('seq', matches.message_seq, 'part', matches.index,
          'member', matches.name, 'bytes', matches.bytes)
      from matches where event.session_id = ${key} and event.seq = matches.seq and event.folded is null
    )
    update agent.sessions_sessions set folded_seq = ${to}::integer where session_id = ${key}`;
}
