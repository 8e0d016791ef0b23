// SQL of the two filters of the session list that have indexes of their own: words and metadata.
import type { Sql } from '../../../kernel/data/database.ts';
import { asJson, asText } from './events.ts';

export interface SessionSearch {
  /** Words that a message or the title must contain. */
  search?: string | undefined;
  /** Members that the session's metadata must contain. */
  metadata?: object | undefined;
}

type Condition = ReturnType<typeof everySession>;
const everySession = (sql: Sql) => sql``;

/** Conditions on the session `own`; each starts with `and`. */
export function searchConditions(
  sql: Sql,
  agentId: string,
  { search, metadata }: SessionSearch,
): { words: Condition; metadata: Condition } {
  return {
    words: search === undefined ? everySession(sql) : wordsCondition(sql, agentId, search),
    // The second condition lets the planner use the partial index.
    metadata:
      metadata === undefined
        ? everySession(sql)
        : sql`and own.metadata @> ${asJson(metadata)}::text::jsonb and own.metadata <> '{}'`,
  };
}

/**
 * Matches sessions where one message or the title contains all words; the last word may be a prefix. A fork
 * also matches by the messages of its ancestors up to its fork point.
 */
function wordsCondition(sql: Sql, agentId: string, search: string): Condition {
  // The text of a tsquery ends with its last lexeme, so `:*` after it makes that lexeme a prefix. A search
  // without any word becomes null and matches nothing.
  const query = sql`(nullif(plainto_tsquery('pg_catalog.simple', ${asText(search)})::text, '') || ':*')::tsquery`;
  // `is true` makes it a hashed subplan, which runs once. As a join it may run once per session.
  return sql`and (own.session_id in (
      with hits as materialized (
        select session_id, min(seq) as seq from agent.sessions_events
        where type = 'message.completed' and agent.sessions_message_words(data) @@ ${query}
        group by session_id
      )
      select session_id from hits
      union
      select fork.session_id from agent.sessions_sessions fork
        cross join lateral jsonb_to_recordset(fork.lineage) as segment ("sessionKey" text, "upTo" integer)
        join hits on hits.session_id = segment."sessionKey" and hits.seq <= segment."upTo"
      where fork.agent_id = ${agentId} and fork.lineage <> '[]'
      union
      select session_id from agent.sessions_sessions titled
      where titled.agent_id = ${agentId} and titled.title is not null
        and agent.sessions_title_words(titled.title) @@ ${query}
    )) is true`;
}
