// SQL of session rows. A write either locks the row first, or is one statement that checks the seq
// it was planned from. So writers never deadlock, and no seq or queue position is assigned twice.
import type { Database, Sql } from '../../../kernel/data/database.ts';
import { asJson, asText } from './events.ts';
import { unfoldedData } from './fold-store.ts';
import { searchConditions, type SessionSearch } from './search-store.ts';
import { maxSeq, type Segment } from './store.ts';
import type { LogEntry, UnitOfWork } from './unit.ts';

export type SessionMode = 'work' | 'plan';

export type SessionWorkspace = 'shared' | 'folder' | 'worktree';

export type SessionKind = 'sdk' | 'chat' | 'dashboard' | 'execute';

export interface SessionRecord {
  /** Primary key, internal. */
  key: string;
  /** The id in the API, chosen by callers. */
  id: string;
  agentId: string;
  kind: SessionKind;
  title: string | null;
  model: string | null;
  reasoningEffort: string | null;
  system: string | null;
  metadata: Record<string, unknown>;
  attended: boolean;
  mode: SessionMode;
  workspace: SessionWorkspace;
  chatId: string | null;
  parentKey: string | null;
  parentId: string | null;
  forkSeq: number;
  forkMessageId: string | null;
  lineage: Segment[];
  headSeq: number;
  activeRunId: string | null;
  queueLength: number;
  pendingApprovals: number;
  messageCount: number;
  inputTokens: number;
  outputTokens: number;
  cachedInputTokens: number;
  reasoningTokens: number;
  credits: number;
  createdAt: string;
  updatedAt: string;
  archivedAt: string | null;
}

/** The segments of a session's history up to a seq: the parts of its ancestors, then its own. */
export function segmentsOf(
  session: Pick<SessionRecord, 'key' | 'lineage' | 'headSeq'>,
  upTo: number = session.headSeq,
): Segment[] {
  return [...session.lineage, { sessionKey: session.key, upTo: maxSeq }].map(({ sessionKey, upTo: end }) => ({
    sessionKey,
    upTo: Math.min(end, upTo, maxSeq),
  }));
}

/** Segments without an end, which also cover events that are appended after the session was read. */
export function openSegmentsOf(session: Pick<SessionRecord, 'key' | 'lineage' | 'headSeq'>): Segment[] {
  return segmentsOf(session, maxSeq);
}

export interface NewSession {
  key: string;
  id: string;
  agentId: string;
  kind: SessionKind;
  title?: string | null;
  model?: string | null;
  reasoningEffort?: string | null;
  system?: string | null;
  metadata?: object;
  attended?: boolean;
  mode?: SessionMode;
  workspace?: SessionWorkspace;
  chatId?: string | null;
  parentKey?: string | null;
  forkSeq?: number;
  forkMessageId?: string | null;
  lineage?: Segment[];
  messageCount?: number;
  events?: readonly LogEntry[];
}

interface SessionRow {
  session_id: string;
  public_id: string;
  agent_id: string;
  kind: SessionKind;
  title: string | null;
  model: string | null;
  reasoning_effort: string | null;
  system: string | null;
  metadata: Record<string, unknown>;
  attended: boolean;
  mode: SessionMode;
  workspace: SessionWorkspace;
  chat_id: string | null;
  parent_id: string | null;
  parent_public_id: string | null;
  fork_seq: number;
  fork_message_id: string | null;
  lineage: Segment[];
  head_seq: number;
  active_run_id: string | null;
  queue_length: number;
  pending_approvals: number;
  message_count: number;
  input_tokens: bigint;
  output_tokens: bigint;
  cached_input_tokens: bigint;
  reasoning_tokens: bigint;
  credits: bigint;
  created_at: Date;
  updated_at: Date;
  archived_at: Date | null;
}

function sessionOf(row: SessionRow): SessionRecord {
  return {
    key: row.session_id,
    id: row.public_id,
    agentId: row.agent_id,
    kind: row.kind,
    title: row.title,
    model: row.model,
    reasoningEffort: row.reasoning_effort,
    system: row.system,
    metadata: row.metadata,
    attended: row.attended,
    mode: row.mode,
    workspace: row.workspace,
    chatId: row.chat_id,
    parentKey: row.parent_id,
    parentId: row.parent_public_id,
    forkSeq: row.fork_seq,
    forkMessageId: row.fork_message_id,
    lineage: row.lineage,
    headSeq: row.head_seq,
    activeRunId: row.active_run_id,
    queueLength: row.queue_length,
    pendingApprovals: row.pending_approvals,
    messageCount: row.message_count,
    inputTokens: Number(row.input_tokens),
    outputTokens: Number(row.output_tokens),
    cachedInputTokens: Number(row.cached_input_tokens),
    reasoningTokens: Number(row.reasoning_tokens),
    credits: Number(row.credits),
    createdAt: row.created_at.toISOString(),
    updatedAt: row.updated_at.toISOString(),
    archivedAt: row.archived_at?.toISOString() ?? null,
  };
}

export type SessionLocator = { id: string } | { chatId: string } | { key: string };

/** The session, locked until the transaction ends. */
export async function lockSession(
  { tx }: UnitOfWork,
  agentId: string,
  locator: SessionLocator,
): Promise<SessionRecord | undefined> {
  const [row] = await tx<SessionRow[]>`
    select own.*, null as parent_public_id from agent.sessions_sessions own
    where own.agent_id = ${agentId} and own.deleted_at is null
      and ${locatorCondition(tx, locator)} for update`;
  return row && sessionOf(row);
}

/** The condition of the located session, for a query that names the table `own`. */
function locatorCondition(sql: Sql, locator: SessionLocator) {
  if ('id' in locator) return sql`own.public_id = ${locator.id}`;
  if ('chatId' in locator) return sql`own.chat_id = ${locator.chatId}`;
  return sql`own.session_id = ${locator.key}`;
}

/**
 * The existing sessions of these locators, locked until the transaction ends. One statement locks all of them
 * in the order of their keys, so that two calls never deadlock.
 */
export async function lockSessions(
  { tx }: UnitOfWork,
  agentId: string,
  locators: readonly SessionLocator[],
): Promise<SessionRecord[]> {
  if (locators.length === 0) return [];
  const ids = locators.flatMap((locator) => ('id' in locator ? [locator.id] : []));
  const chatIds = locators.flatMap((locator) => ('chatId' in locator ? [locator.chatId] : []));
  const keys = locators.flatMap((locator) => ('key' in locator ? [locator.key] : []));
  // Only the conditions that are needed, so that locators of one kind need one index.
  const conditions = [
    ...(ids.length === 0 ? [] : [tx`public_id = any(${ids}::text[])`]),
    ...(chatIds.length === 0 ? [] : [tx`chat_id = any(${chatIds}::text[])`]),
    ...(keys.length === 0 ? [] : [tx`session_id = any(${keys}::text[])`]),
  ].reduce((left, right) => tx`${left} or ${right}`);
  const rows = await tx<SessionRow[]>`
    select *, null as parent_public_id from agent.sessions_sessions
    where agent_id = ${agentId} and deleted_at is null and (${conditions})
    order by session_id for update`;
  return rows.map(sessionOf);
}

/**
 * Inserts sessions with their first events in one statement. Returns, by key, the inserted sessions: their id
 * and chat were free, and their parent still exists.
 */
export async function insertSessions(
  tx: Sql,
  sessions: readonly NewSession[],
): Promise<Map<string, SessionRecord>> {
  const rows = await tx<SessionRow[]>`
    with requested as materialized (
      select * from jsonb_to_recordset(${asJson(sessions.map(toRow))}::text::jsonb) as session (
        session_id text, public_id text, agent_id text, kind text, head_seq integer, title text,
        model text, reasoning_effort text, system text, metadata jsonb, attended boolean, mode text,
        workspace text, chat_id text, parent_id text, fork_seq integer, fork_message_id text,
        lineage jsonb, message_count integer, events jsonb)
    ), parent as (
      select session_id from agent.sessions_sessions
      where session_id = any(${sessions.flatMap(({ parentKey }) => parentKey ?? [])}::text[])
        and deleted_at is null for key share
    ), created as (
      insert into agent.sessions_sessions (
        session_id, public_id, agent_id, kind, head_seq, title, model, reasoning_effort, system, metadata,
        attended, mode, workspace, chat_id, parent_id, fork_seq, fork_message_id, lineage, message_count)
      select session_id, public_id, agent_id, kind, head_seq, title, model, reasoning_effort, system,
        metadata, attended, mode, workspace, chat_id, parent_id, fork_seq, fork_message_id, lineage,
        message_count
      from requested where parent_id is null or parent_id in (select session_id from parent)
      on conflict do nothing returning *
    ), inserted as (
      insert into agent.sessions_events (session_id, seq, run_id, type, data)
      select created.session_id, created.fork_seq + entry.ordinal::integer, entry.value ->> 'runId',
        entry.value ->> 'type', (entry.value - 'type') - 'runId'
      from created join requested using (session_id),
        jsonb_array_elements(requested.events) with ordinality as entry (value, ordinal)
    )
    select *, null as parent_public_id from created`;
  return new Map(rows.map((row) => [row.session_id, sessionOf(row)]));
}

function toRow(session: NewSession): object {
  return {
    session_id: session.key,
    public_id: session.id,
    agent_id: session.agentId,
    kind: session.kind,
    head_seq: (session.forkSeq ?? 0) + (session.events?.length ?? 0),
    title: session.title ?? null,
    model: session.model ?? null,
    reasoning_effort: session.reasoningEffort ?? null,
    system: session.system ?? null,
    metadata: session.metadata ?? {},
    attended: session.attended ?? false,
    mode: session.mode ?? 'work',
    workspace: session.workspace ?? 'shared',
    chat_id: session.chatId ?? null,
    parent_id: session.parentKey ?? null,
    fork_seq: session.forkSeq ?? 0,
    fork_message_id: session.forkMessageId ?? null,
    lineage: session.lineage ?? [],
    message_count: session.messageCount ?? 0,
    events: session.events ?? [],
  };
}

/**
 * Hides a session whose events a fork still refers to; deletes any other session with its runs and events.
 */
export async function removeSession({ tx }: UnitOfWork, sessionKey: string): Promise<'hidden' | 'gone'> {
  await tx`select from agent.sessions_sessions where session_id = ${sessionKey} for update`;
  const [child] = await tx`
    select 1 from agent.sessions_sessions
    where lineage @> ${asJson([{ sessionKey }])}::text::jsonb limit 1`;
  if (child) {
    // The caller has cancelled the session's runs. Runs that were accepted since then are deleted, as they
    // are with a deleted session.
    await tx`
      with hidden as (
        update agent.sessions_sessions
        set deleted_at = agent.townhall_now(), chat_id = null, active_run_id = null, queue_length = 0,
          pending_approvals = 0
        where session_id = ${sessionKey}
      )
      delete from agent.sessions_runs where session_id = ${sessionKey} and settled_at is null`;
    return 'hidden';
  }
  // No event can be appended under the lock, so this later statement sees all of them.
  await tx`
    with gone as (
      delete from agent.sessions_sessions where session_id = ${sessionKey}
    ), runs as (
      delete from agent.sessions_runs where session_id = ${sessionKey}
    )
    delete from agent.sessions_events where session_id = ${sessionKey}`;
  return 'gone';
}

export interface SessionPatch {
  title?: string;
  metadata?: object;
  model?: string | null;
  reasoningEffort?: string | null;
  attended?: boolean;
  mode?: SessionMode;
  archived?: boolean;
}

export async function patchSession(
  { tx }: UnitOfWork,
  sessionKey: string,
  patch: SessionPatch,
): Promise<void> {
  const { title, metadata, model, reasoningEffort, attended: isAttended, mode, archived: isArchived } = patch;
  await tx`
    update agent.sessions_sessions set
      title = case when ${title !== undefined}::boolean then ${textOrNull(title)}::text else title end,
      metadata = case when ${metadata !== undefined}::boolean
        then ${asJson(metadata ?? {})}::text::jsonb else metadata end,
      model = case when ${model !== undefined}::boolean then ${model ?? null}::text else model end,
      reasoning_effort = case when ${reasoningEffort !== undefined}::boolean
        then ${reasoningEffort ?? null}::text else reasoning_effort end,
      attended = case when ${isAttended !== undefined}::boolean
        then ${isAttended ?? false}::boolean else attended end,
      mode = coalesce(${mode ?? null}::text, mode),
      archived_at = case when ${isArchived === undefined}::boolean then archived_at
        when ${isArchived ?? false}::boolean then coalesce(archived_at, agent.townhall_now()) end
    where session_id = ${sessionKey}`;
}

/** Copies the events of a fork's ancestors into the fork, so that it refers to no other session. */
export async function copyAncestors({ tx }: UnitOfWork, session: SessionRecord): Promise<void> {
  let start = 0;
  for (const { sessionKey, upTo } of session.lineage) {
    await tx`
      insert into agent.sessions_events (session_id, seq, run_id, type, data, time)
      select ${session.key}, seq, run_id, type, ${unfoldedData(tx)}, time from agent.sessions_events
      where session_id = ${sessionKey} and seq > ${start} and seq <= ${upTo}
      on conflict do nothing`;
    start = upTo;
  }
  await tx`update agent.sessions_sessions set lineage = '[]' where session_id = ${session.key}`;
}

export interface SessionStore {
  session(agentId: string, locator: SessionLocator): Promise<SessionRecord | undefined>;
  list(query: ListQuery): Promise<SessionRecord[]>;
  /** Counts the sessions of an agent that do not use the shared workspace. */
  countOwnWorkspaces(agentId: string): Promise<number>;
  /** Returns those of the keys whose sessions exist. */
  existingKeys(keys: readonly string[]): Promise<Set<string>>;
  /** Keys of `execute` sessions whose retention has expired; at most 100. */
  expiredSessions(agentId: string, keptDays: number): Promise<string[]>;
}

export interface ListQuery extends SessionSearch {
  agentId: string;
  limit: number;
  before?: { createdAt: string; key: string };
  kind?: SessionKind;
  status?: 'idle' | 'running' | 'requires_action';
  archived?: boolean;
}

export function sessionStore({ sql }: Pick<Database, 'sql'>): SessionStore {
  return {
    async session(agentId, locator) {
      const [row] = await sql<SessionRow[]>`
        select own.*, parent.public_id as parent_public_id from agent.sessions_sessions own
        left join agent.sessions_sessions parent on parent.session_id = own.parent_id
        where own.agent_id = ${agentId} and own.deleted_at is null and ${locatorCondition(sql, locator)}`;
      return row && sessionOf(row);
    },
    async list({ agentId, limit, before, kind, status, archived, ...search }) {
      const matches = searchConditions(sql, agentId, search);
      // All columns but the system prompt, which may be long and is not in the list.
      const rows = await sql<SessionRow[]>`
        select own.session_id, own.public_id, own.agent_id, own.kind, own.title, own.model,
          own.reasoning_effort, null as system, own.metadata, own.attended, own.mode, own.workspace,
          own.chat_id, own.parent_id, own.fork_seq, own.fork_message_id, own.lineage, own.head_seq,
          own.active_run_id, own.queue_length, own.pending_approvals, own.message_count,
          own.input_tokens, own.output_tokens, own.cached_input_tokens, own.reasoning_tokens,
          own.credits, own.created_at, own.updated_at, own.archived_at,
          parent.public_id as parent_public_id
        from agent.sessions_sessions own
        left join agent.sessions_sessions parent on parent.session_id = own.parent_id
        where own.agent_id = ${agentId} and own.deleted_at is null
          and (${kind ?? null}::text is null or own.kind = ${kind ?? null})
          and (${status ?? null}::text is null or ${status ?? null}::text = case
            when own.pending_approvals > 0 then 'requires_action'
            when own.active_run_id is null then 'idle'
            else 'running' end)
          and (${archived ?? null}::boolean is null
            or (own.archived_at is not null) = ${archived ?? null}::boolean)
          ${matches.words} ${matches.metadata}
          and (${before === undefined}::boolean
            or (date_trunc('milliseconds', own.created_at), own.session_id)
              < (${before?.createdAt ?? null}::timestamptz, ${before?.key ?? null}::text))
        order by date_trunc('milliseconds', own.created_at) desc, own.session_id desc limit ${limit}`;
      return rows.map(sessionOf);
    },
    async countOwnWorkspaces(agentId) {
      const [row] = await sql<{ count: number }[]>`
        select count(*)::integer as count from agent.sessions_sessions
        where agent_id = ${agentId} and workspace <> 'shared' and deleted_at is null`;
      return row?.count ?? 0;
    },
    async existingKeys(keys) {
      const rows = await sql<{ session_id: string }[]>`
        select session_id from agent.sessions_sessions
        where session_id = any(${[...keys]}::text[]) and deleted_at is null`;
      return new Set(rows.map((row) => row.session_id));
    },
    async expiredSessions(agentId, keptDays) {
      const rows = await sql<{ session_id: string }[]>`
        select session_id from agent.sessions_sessions
        where agent_id = ${agentId} and kind = 'execute' and deleted_at is null
          and active_run_id is null and queue_length = 0
          and updated_at < agent.townhall_now() - ${keptDays} * interval '1 day' limit 100`;
      return rows.map((row) => row.session_id);
    },
  };
}

function textOrNull(text: string | null | undefined): string | null {
  return text === null || text === undefined ? null : asText(text);
}
