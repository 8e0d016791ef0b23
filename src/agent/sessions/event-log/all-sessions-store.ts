// SQL of the stream of all sessions of an agent.
import type { Database, Sql } from '../../../kernel/data/database.ts';

/** A session with events after `fromSeq` that a reader may have missed. */
export interface ChangedSession {
  key: string;
  /** The id in the API. */
  id: string;
  /** The seq of the newest event before the time `sinceMs` of the query. */
  fromSeq: number;
  headSeq: number;
}

export interface AllSessionsStore {
  /** Sessions with events at or after a time, in the order of their keys, after `afterKey`. */
  changedSince(query: {
    agentId: string;
    sinceMs: number;
    afterKey: string;
    limit: number;
  }): Promise<ChangedSession[]>;
  /**
   * The sessions with these keys, whether or not they have events after `fromSeq`; removed sessions are left
   * out.
   */
  find(query: {
    agentId: string;
    sinceMs: number;
    sessionKeys: readonly string[];
  }): Promise<Omit<ChangedSession, 'headSeq'>[]>;
}

export function allSessionsStore({ sql }: Pick<Database, 'sql'>): AllSessionsStore {
  return {
    async changedSince({ agentId, sinceMs, afterKey, limit }) {
      const sinceTime = new Date(sinceMs).toISOString();
      const rows = await sql<{ session_id: string; public_id: string; from_seq: number; head_seq: number }[]>`
        select own.session_id, own.public_id, own.head_seq, ${fromSeq(sql, sinceTime)} as from_seq
        from agent.sessions_sessions own
        where own.agent_id = ${agentId} and own.deleted_at is null
          and own.updated_at >= ${sinceTime}::timestamptz and own.session_id > ${afterKey}
        order by own.session_id limit ${limit}`;
      return rows.map((row) => ({
        key: row.session_id,
        id: row.public_id,
        fromSeq: row.from_seq,
        headSeq: row.head_seq,
      }));
    },
    async find({ agentId, sinceMs, sessionKeys }) {
      const sinceTime = new Date(sinceMs).toISOString();
      const rows = await sql<{ session_id: string; public_id: string; from_seq: number }[]>`
        select own.session_id, own.public_id, ${fromSeq(sql, sinceTime)} as from_seq
        from agent.sessions_sessions own
        where own.agent_id = ${agentId} and own.deleted_at is null
          and own.session_id = any(${[...sessionKeys]}::text[])`;
      return rows.map((row) => ({ key: row.session_id, id: row.public_id, fromSeq: row.from_seq }));
    },
  };
}

// A session's events are in the order of time, so the newest event before `sinceTime` is found quickly from
// their end. A fork may have copies of older events of its ancestors, all up to `fork_seq`.
function fromSeq(sql: Sql, sinceTime: string) {
  return sql`greatest((
      select event.seq from agent.sessions_events event
      where event.session_id = own.session_id and event.time < ${sinceTime}::timestamptz
      order by event.seq desc limit 1
    ), own.fork_seq)`;
}
