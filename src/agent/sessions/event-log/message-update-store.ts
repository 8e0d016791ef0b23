// SQL of later changes to completed messages, and of the inputs that still wait at some point of the log.
import type { Database, Sql } from '../../../kernel/data/database.ts';
import type { Segment } from './store.ts';

export interface MessageUpdateStore {
  /** The members of the metadata that later events have changed, by message id. */
  updates(
    segments: readonly Segment[],
    messageIds: readonly string[],
  ): Promise<Map<string, Record<string, unknown>>>;
  /** The inputs that were in the queue at the end of a segment, in the order of their acceptance. */
  waitingInputs(segment: Segment): Promise<WaitingInput[]>;
}

export interface WaitingInput {
  runId: string;
  queueItemId: string;
  /** Null for a compaction. */
  messageId: string | null;
}

export function messageUpdateStore({ sql }: Pick<Database, 'sql'>): MessageUpdateStore {
  return {
    async updates(segments, messageIds) {
      const updates = new Map<string, Record<string, unknown>>();
      let start = 0;
      for (const segment of segments) {
        for (const { message_id: id, metadata } of await readUpdates(sql, {
          segment,
          from: start,
          messageIds,
        }))
          updates.set(id, { ...updates.get(id), ...metadata });
        start = segment.upTo;
      }
      return updates;
    },
    waitingInputs: (segment) => readWaitingInputs(sql, segment),
  };
}

async function readUpdates(
  sql: Sql,
  { segment, from, messageIds }: { segment: Segment; from: number; messageIds: readonly string[] },
): Promise<{ message_id: string; metadata: Record<string, unknown> }[]> {
  if (segment.upTo <= from || messageIds.length === 0) return [];
  return sql<{ message_id: string; metadata: Record<string, unknown> }[]>`
    select data ->> 'messageId' as message_id, data -> 'metadata' as metadata from agent.sessions_events
    where session_id = ${segment.sessionKey} and type = 'message.updated'
      and data ->> 'messageId' = any(${[...messageIds]}::text[])
      and seq > ${from} and seq <= ${segment.upTo} order by seq`;
}

async function readWaitingInputs(sql: Sql, { sessionKey, upTo }: Segment): Promise<WaitingInput[]> {
  const rows = await sql<{ run_id: string; queue_item_id: string; message_id: string | null }[]>`
    select run_id, data ->> 'queueItemId' as queue_item_id, data ->> 'messageId' as message_id
    from agent.sessions_events added
    where session_id = ${sessionKey} and seq <= ${upTo} and type = 'queue.added'
      and not exists (
        select 1 from agent.sessions_events removed
        where removed.run_id = added.run_id and removed.session_id = added.session_id
          and removed.seq <= ${upTo} and removed.type = 'queue.removed')
    order by seq`;
  return rows.map((row) => ({
    runId: row.run_id,
    queueItemId: row.queue_item_id,
    messageId: row.message_id,
  }));
}
