// Sessions, runs and the queue between them. Whatever writes to a session either locks its row before anything else, or is
// one statement that writes only while the row stands at the seq it was planned from: no deadlock, and positions that
// cannot be given twice.
import type { Database, Sql } from '../../kernel/data/database.ts';
import type { RunUsage } from '../../contract/agent/types.gen.ts';
import { asJson, asText, type RunError, type RunOutcome } from './events.ts';
import { createBatches } from './log/batches.ts';
import type { Unit } from './log/committer.ts';
import type { Alongside, LogEntry, Segment } from './log/store.ts';

export type SessionKind = 'sdk' | 'chat' | 'dashboard' | 'execute';
export type Delivery = 'queue' | 'steer' | 'interrupt' | 'reject' | 'compact';

export interface SessionRecord {
  /** What the log knows it by. */
  key: string;
  /** What callers know it by. */
  id: string;
  agentId: string;
  kind: SessionKind;
  title: string | null;
  model: string | null;
  reasoningEffort: string | null;
  system: string | null;
  metadata: Record<string, unknown>;
  attended: boolean;
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
  createdAt: string;
  updatedAt: string;
  archivedAt: string | null;
}

/** Where its events lie. */
export function segmentsOf(session: Pick<SessionRecord, 'key' | 'lineage' | 'headSeq'>, upTo: number = session.headSeq): Segment[] {
  return [...session.lineage, { sessionKey: session.key, upTo: Number.MAX_SAFE_INTEGER }].map(({ sessionKey, upTo: end }) => ({ sessionKey, upTo: Math.min(end, upTo, 2_147_483_647) }));
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
  chatId?: string | null;
  parentKey?: string | null;
  forkSeq?: number;
  forkMessageId?: string | null;
  lineage?: Segment[];
  messageCount?: number;
  events?: readonly LogEntry[];
}

export interface NewRun {
  runId: string;
  sessionKey: string;
  agentId: string;
  delivery: Delivery;
  isUrgent: boolean;
  origin: string;
  queueItemId: string | null;
  inputMessageId: string | null;
  preview: string;
  model: string | null;
  reasoningEffort: string | null;
  promptId: string | null;
  promptHash: string | null;
  receipt: object | null;
  expiresInMs?: number | null;
  begins: { messageId: string | null } | null;
}

export interface RunRecord {
  runId: string;
  sessionKey: string;
  status: 'accepted' | 'running' | RunOutcome;
  delivery: Delivery;
  isUrgent: boolean;
  place: bigint;
  origin: string;
  model: string | null;
  reasoningEffort: string | null;
  queueItemId: string | null;
  inputMessageId: string | null;
  messageId: string | null;
  preview: string;
  instanceId: string | null;
  steeredInto: string | null;
  receipt: object | null;
  promptId: string | null;
  promptHash: string | null;
  usage: RunUsage | null;
  finishReason: string | null;
  error: RunError | null;
  acceptedAt: string;
  startedAt: string | null;
  settledAt: string | null;
}

export interface Holder {
  instanceId: string;
  leaseMs: number;
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
    createdAt: row.created_at.toISOString(),
    updatedAt: row.updated_at.toISOString(),
    archivedAt: row.archived_at?.toISOString() ?? null,
  };
}

interface RunRow {
  run_id: string;
  session_id: string;
  status: RunRecord['status'];
  delivery: Delivery;
  is_urgent: boolean;
  place: bigint;
  origin: string;
  model: string | null;
  reasoning_effort: string | null;
  queue_item_id: string | null;
  input_message_id: string | null;
  message_id: string | null;
  preview: string;
  instance_id: string | null;
  steered_into: string | null;
  receipt: object | null;
  prompt_id: string | null;
  prompt_hash: string | null;
  usage: RunUsage | null;
  finish_reason: string | null;
  error: RunError | null;
  accepted_at: Date;
  started_at: Date | null;
  settled_at: Date | null;
}

function runOf(row: RunRow): RunRecord {
  return {
    runId: row.run_id,
    sessionKey: row.session_id,
    status: row.status,
    delivery: row.delivery,
    isUrgent: row.is_urgent,
    place: row.place,
    origin: row.origin,
    model: row.model,
    reasoningEffort: row.reasoning_effort,
    queueItemId: row.queue_item_id,
    inputMessageId: row.input_message_id,
    messageId: row.message_id,
    preview: row.preview,
    instanceId: row.instance_id,
    steeredInto: row.steered_into,
    receipt: row.receipt,
    promptId: row.prompt_id,
    promptHash: row.prompt_hash,
    usage: row.usage,
    finishReason: row.finish_reason,
    error: row.error,
    acceptedAt: row.accepted_at.toISOString(),
    startedAt: row.started_at?.toISOString() ?? null,
    settledAt: row.settled_at?.toISOString() ?? null,
  };
}

export type Named = { id: string } | { chatId: string } | { key: string };

/** The session, locked until the transaction ends. */
export async function lockSession({ tx }: Unit, agentId: string, named: Named): Promise<SessionRecord | undefined> {
  const [row] = await tx<SessionRow[]>`
    select *, null as parent_public_id from agent.sessions_sessions
    where agent_id = ${agentId} and deleted_at is null and ${
      'id' in named ? tx`public_id = ${named.id}` : 'chatId' in named ? tx`chat_id = ${named.chatId}` : tx`session_id = ${named.key}`
    } for update`;
  return row && sessionOf(row);
}

/** All of them that are there, locked; each kind of name in one statement, in one order, so that two of these never wait for each other. */
export async function lockSessions({ tx }: Unit, agentId: string, named: readonly Named[]): Promise<SessionRecord[]> {
  const ids = named.flatMap((name) => ('id' in name ? [name.id] : []));
  const chats = named.flatMap((name) => ('chatId' in name ? [name.chatId] : []));
  const rows: SessionRow[] = [];
  if (ids.length > 0) {
    rows.push(...(await tx<SessionRow[]>`
      select *, null as parent_public_id from agent.sessions_sessions
      where agent_id = ${agentId} and deleted_at is null and public_id = any(${[...new Set(ids)]}::text[]) order by session_id for update`));
  }
  if (chats.length > 0) {
    rows.push(...(await tx<SessionRow[]>`
      select *, null as parent_public_id from agent.sessions_sessions
      where agent_id = ${agentId} and deleted_at is null and chat_id = any(${[...new Set(chats)]}::text[]) order by session_id for update`));
  }
  return rows.map(sessionOf);
}

/**
 * Sessions and their first events in one statement, which needs no transaction around it: those whose id and chat were free,
 * and whose parent is still there, by their keys.
 */
export async function insertSessions(tx: Sql, sessions: readonly NewSession[]): Promise<Map<string, SessionRecord>> {
  const rows = await tx<SessionRow[]>`
    with asked as materialized (
      select * from jsonb_to_recordset(${asJson(sessions.map(toRow))}::text::jsonb) as one (session_id text, public_id text, agent_id text, kind text, head_seq integer,
        title text, model text, reasoning_effort text, system text, metadata jsonb, attended boolean, chat_id text, parent_id text, fork_seq integer,
        fork_message_id text, lineage jsonb, message_count integer, events jsonb)
    ), parent as (
      select session_id from agent.sessions_sessions
      where session_id = any(${sessions.flatMap(({ parentKey }) => parentKey ?? [])}::text[]) and deleted_at is null for key share
    ), made as (
      insert into agent.sessions_sessions (session_id, public_id, agent_id, kind, head_seq, title, model, reasoning_effort, system, metadata,
        attended, chat_id, parent_id, fork_seq, fork_message_id, lineage, message_count)
      select session_id, public_id, agent_id, kind, head_seq, title, model, reasoning_effort, system, metadata,
        attended, chat_id, parent_id, fork_seq, fork_message_id, lineage, message_count
      from asked where parent_id is null or parent_id in (select session_id from parent)
      on conflict do nothing returning *
    ), written as (
      insert into agent.sessions_events (session_id, seq, run_id, type, data)
      select made.session_id, made.fork_seq + entry.ordinal::integer, entry.value ->> 'runId', entry.value ->> 'type', (entry.value - 'type') - 'runId'
      from made join asked using (session_id), jsonb_array_elements(asked.events) with ordinality as entry (value, ordinal)
    )
    select *, null as parent_public_id from made`;
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
    chat_id: session.chatId ?? null,
    parent_id: session.parentKey ?? null,
    fork_seq: session.forkSeq ?? 0,
    fork_message_id: session.forkMessageId ?? null,
    lineage: session.lineage ?? [],
    message_count: session.messageCount ?? 0,
    events: session.events ?? [],
  };
}

/** Beside an append, in their order, which is that of their acceptance. What `begins` is at once running, in this process. */
export function insertRuns(tx: Sql, runs: readonly NewRun[], { instanceId, leaseMs }: Holder): Alongside {
  const rows = runs.map((run, ordinal) => ({
    ordinal,
    run_id: run.runId,
    session_id: run.sessionKey,
    agent_id: run.agentId,
    delivery: run.delivery,
    is_urgent: run.isUrgent,
    origin: run.origin,
    queue_item_id: run.queueItemId,
    input_message_id: run.inputMessageId,
    preview: run.preview,
    model: run.model,
    reasoning_effort: run.reasoningEffort,
    prompt_id: run.promptId,
    prompt_hash: run.promptHash,
    receipt: run.receipt,
    message_id: run.begins?.messageId ?? null,
    begins: run.begins !== null,
    expires_in_ms: run.expiresInMs ?? null,
  }));
  return tx`, accepted as (
    insert into agent.sessions_runs (run_id, session_id, agent_id, status, delivery, is_urgent, origin, queue_item_id, input_message_id, preview, model,
      reasoning_effort, prompt_id, prompt_hash, receipt, message_id, instance_id, lease_until, started_at, expires_at)
    select run_id, session_id, agent_id, case when begins then 'running' else 'accepted' end, delivery, is_urgent, origin, queue_item_id, input_message_id, preview, model,
      reasoning_effort, prompt_id, prompt_hash, nullif(receipt, 'null'::jsonb), message_id, case when begins then ${instanceId}::text end,
      case when begins then agent.townhall_now() + ${leaseMs} * interval '1 millisecond' end, case when begins then agent.townhall_now() end,
      agent.townhall_now() + expires_in_ms * interval '1 millisecond'
    from jsonb_to_recordset(${asJson(rows)}::text::jsonb) as run (ordinal integer, run_id text, session_id text, agent_id text, delivery text, is_urgent boolean, origin text,
      queue_item_id text, input_message_id text, preview text, model text, reasoning_effort text, prompt_id text, prompt_hash text, receipt jsonb, message_id text, begins boolean, expires_in_ms integer)
    where session_id in (select session_id from head) order by ordinal
    )`;
}

/** What was accepted under these ids of the callers' own; another session's run of the same id may be among them. */
export async function runsByPrompt({ tx }: Unit, sessionKeys: readonly string[], promptIds: readonly string[]): Promise<RunRecord[]> {
  const rows = await tx<RunRow[]>`
    select * from agent.sessions_runs where session_id = any(${[...sessionKeys]}::text[]) and prompt_id = any(${[...promptIds]}::text[])`;
  return rows.map(runOf);
}

/** What waits in a session, in the order in which it will run. */
export async function waitingRuns({ tx }: Unit, sessionKey: string, limit = 1_000_000): Promise<RunRecord[]> {
  const rows = await tx<RunRow[]>`
    select * from agent.sessions_runs where session_id = ${sessionKey} and status = 'accepted' and steered_into is null order by is_urgent desc, place limit ${limit}`;
  return rows.map(runOf);
}

export async function steerRun({ tx }: Unit, runId: string, into: string): Promise<void> {
  await tx`update agent.sessions_runs set steered_into = ${into}, started_at = agent.townhall_now() where run_id = ${runId}`;
}

export async function moveMessage({ tx }: Unit, runId: string, messageId: string): Promise<void> {
  await tx`update agent.sessions_runs set message_id = ${messageId} where run_id = ${runId}`;
}

export async function steeredRuns({ tx }: Unit, into: string): Promise<string[]> {
  const rows = await tx<{ run_id: string }[]>`
    select run_id from agent.sessions_runs where steered_into = ${into} and settled_at is null order by place`;
  return rows.map((row) => row.run_id);
}

export interface RunEnd {
  outcome: RunOutcome;
  usage: RunUsage;
  finishReason: string | null;
  error: RunError | null;
}

/**
 * Beside an append: what runs leave behind and how the next begins. Those that have ended stay as they are. `forget` is the
 * run whose open text is in the log by now.
 */
export function moveOn(tx: Sql, ended: { runIds: readonly string[]; end: RunEnd } | null, forget: string | null, next: { runId: string; messageId: string | null; model: string; holder: Holder } | null): Alongside {
  const end = ended?.end;
  return tx`, ended as (
      update agent.sessions_runs
      set status = ${end?.outcome ?? null}::text, settled_at = agent.townhall_now(), finish_reason = ${end?.finishReason ?? null}::text,
        usage = ${end ? asJson(end.usage) : null}::text::jsonb, error = ${end?.error ? asJson(end.error) : null}::text::jsonb
      where run_id = any(${[...(ended?.runIds ?? [])]}::text[]) and settled_at is null and exists (select from head)
    ), forgotten as (
      delete from agent.sessions_checkpoints where run_id = ${forget}::text and exists (select from head)
    ), begun as (
      update agent.sessions_runs
      set status = 'running', started_at = agent.townhall_now(), message_id = ${next?.messageId ?? null}::text, model = ${next?.model ?? null}::text,
        instance_id = ${next?.holder.instanceId ?? null}::text, lease_until = agent.townhall_now() + ${next?.holder.leaseMs ?? 0}::integer * interval '1 millisecond'
      where run_id = ${next?.runId ?? null}::text and exists (select from head)
    )`;
}

export async function removeSession({ tx }: Unit, sessionKey: string): Promise<'hidden' | 'gone'> {
  await tx`select from agent.sessions_sessions where session_id = ${sessionKey} for update`;
  const [child] = await tx`
    select 1 from agent.sessions_sessions
    where lineage @> ${asJson([{ sessionKey }])}::text::jsonb limit 1`;
  if (child) {
    // What began in this very moment ends with it, as where nothing stays.
    await tx`
      with hidden as (
        update agent.sessions_sessions set deleted_at = agent.townhall_now(), chat_id = null, active_run_id = null, queue_length = 0, pending_approvals = 0
        where session_id = ${sessionKey}
      )
      delete from agent.sessions_runs where session_id = ${sessionKey} and settled_at is null`;
    return 'hidden';
  }
  // Under the lock nothing is appended to it any more, so a later statement sees all that there is.
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
  archived?: boolean;
}

export async function patchSession({ tx }: Unit, sessionKey: string, patch: SessionPatch): Promise<void> {
  const { title, metadata, model, reasoningEffort, attended, archived } = patch;
  await tx`
    update agent.sessions_sessions set
      title = case when ${title !== undefined}::boolean then ${textOrNull(title)}::text else title end,
      metadata = case when ${metadata !== undefined}::boolean then ${asJson(metadata ?? {})}::text::jsonb else metadata end,
      model = case when ${model !== undefined}::boolean then ${model ?? null}::text else model end,
      reasoning_effort = case when ${reasoningEffort !== undefined}::boolean then ${reasoningEffort ?? null}::text else reasoning_effort end,
      attended = case when ${attended !== undefined}::boolean then ${attended ?? false}::boolean else attended end,
      archived_at = case when ${archived === undefined}::boolean then archived_at when ${archived ?? false}::boolean then coalesce(archived_at, agent.townhall_now()) else null end
    where session_id = ${sessionKey}`;
}

/** Makes a fork stand on its own: its ancestors' events become its own, and it refers to nobody. */
export async function flatten({ tx }: Unit, session: SessionRecord): Promise<void> {
  let from = 0;
  for (const { sessionKey, upTo } of session.lineage) {
    await tx`
      insert into agent.sessions_events (session_id, seq, run_id, type, data, time)
      select ${session.key}, seq, run_id, type, data, time from agent.sessions_events
      where session_id = ${sessionKey} and seq > ${from} and seq <= ${upTo}
      on conflict do nothing`;
    from = upTo;
  }
  await tx`update agent.sessions_sessions set lineage = '[]' where session_id = ${session.key}`;
}

export interface SessionStore {
  /** With its first events; undefined when the id is taken or the parent is gone. Several that come at one time are made in one statement. */
  create(session: NewSession): Promise<SessionRecord | undefined>;
  session(agentId: string, named: Named): Promise<SessionRecord | undefined>;
  list(query: ListQuery): Promise<SessionRecord[]>;
  run(sessionKey: string, runId: string): Promise<RunRecord | undefined>;
  queue(sessionKey: string): Promise<RunRecord[]>;
  queueItem(sessionKey: string, queueItemId: string): Promise<RunRecord | undefined>;
  renewLeases(instanceId: string, leaseMs: number): Promise<void>;
  requestCancel(runId: string): Promise<void>;
  /** Of the runs of this process, those that somebody wants ended. */
  cancelRequests(instanceId: string): Promise<string[]>;
  /**
   * Running runs that another process does not keep: the lease is over, or leases do not count, or it is this process that
   * has them. The caller knows which of them it runs itself.
   */
  abandonedRuns(query: { agentId: string; instanceId: string; trustLeases: boolean }): Promise<RunRecord[]>;
  /** What has waited for longer than it may, by session. */
  expiredInputs(agentId: string): Promise<Map<string, string[]>>;
  /** How long until the next of them; null when nothing that waits has an end. */
  nextExpiryMs(agentId: string): Promise<number | null>;
  /** Sessions in which something waits and nothing runs. */
  idleQueues(agentId: string): Promise<string[]>;
  /** Execute sessions that nobody will ask for any more. */
  expiredSessions(agentId: string, keptDays: number): Promise<string[]>;
}

export interface ListQuery {
  agentId: string;
  limit: number;
  before?: { createdAt: string; key: string };
  kind?: SessionKind;
  status?: 'idle' | 'running' | 'requires_action';
  archived?: boolean;
}

export function sessionStore({ sql }: Pick<Database, 'sql'>): SessionStore {
  const create = createBatches(
    async (sessions: readonly NewSession[]) => {
      const made = await insertSessions(sql, sessions);
      return sessions.map(({ key }) => made.get(key));
    },
    { largest: 64 },
  );
  return {
    create,
    async session(agentId, named) {
      const [row] = await sql<SessionRow[]>`
        select own.*, parent.public_id as parent_public_id from agent.sessions_sessions own
        left join agent.sessions_sessions parent on parent.session_id = own.parent_id
        where own.agent_id = ${agentId} and own.deleted_at is null and ${
          'id' in named ? sql`own.public_id = ${named.id}` : 'chatId' in named ? sql`own.chat_id = ${named.chatId}` : sql`own.session_id = ${named.key}`
        }`;
      return row && sessionOf(row);
    },
    async list({ agentId, limit, before, kind, status, archived }) {
      const rows = await sql<SessionRow[]>`
        select own.*, parent.public_id as parent_public_id from agent.sessions_sessions own
        left join agent.sessions_sessions parent on parent.session_id = own.parent_id
        where own.agent_id = ${agentId} and own.deleted_at is null
          and (${kind ?? null}::text is null or own.kind = ${kind ?? null})
          and (${status ?? null}::text is null or ${status ?? null}::text = case when own.pending_approvals > 0 then 'requires_action' when own.active_run_id is null then 'idle' else 'running' end)
          and (${archived ?? null}::boolean is null or (own.archived_at is not null) = ${archived ?? null}::boolean)
          and (${before === undefined}::boolean or (date_trunc('milliseconds', own.created_at), own.session_id) < (${before?.createdAt ?? null}::timestamptz, ${before?.key ?? null}::text))
        order by date_trunc('milliseconds', own.created_at) desc, own.session_id desc limit ${limit}`;
      return rows.map(sessionOf);
    },
    async run(sessionKey, runId) {
      const [row] = await sql<RunRow[]>`select * from agent.sessions_runs where session_id = ${sessionKey} and run_id = ${runId}`;
      return row && runOf(row);
    },
    async queue(sessionKey) {
      const rows = await sql<RunRow[]>`
        select * from agent.sessions_runs where session_id = ${sessionKey} and status = 'accepted' and steered_into is null order by is_urgent desc, place`;
      return rows.map(runOf);
    },
    async queueItem(sessionKey, queueItemId) {
      const [row] = await sql<RunRow[]>`select * from agent.sessions_runs where session_id = ${sessionKey} and queue_item_id = ${queueItemId}`;
      return row && runOf(row);
    },
    async renewLeases(instanceId, leaseMs) {
      await sql`
        update agent.sessions_runs set lease_until = agent.townhall_now() + ${leaseMs} * interval '1 millisecond'
        where instance_id = ${instanceId} and settled_at is null`;
    },
    async requestCancel(runId) {
      await sql`update agent.sessions_runs set cancel_requested = true where run_id = ${runId} and settled_at is null`;
    },
    async cancelRequests(instanceId) {
      const rows = await sql<{ run_id: string }[]>`
        select run_id from agent.sessions_runs where instance_id = ${instanceId} and settled_at is null and cancel_requested`;
      return rows.map((row) => row.run_id);
    },
    async abandonedRuns({ agentId, instanceId, trustLeases }) {
      const rows = await sql<RunRow[]>`
        select * from agent.sessions_runs
        where agent_id = ${agentId} and settled_at is null and status = 'running'
          and (lease_until < agent.townhall_now() or instance_id = ${instanceId} or not ${trustLeases}::boolean)
        order by place`;
      return rows.map(runOf);
    },
    async expiredInputs(agentId) {
      const rows = await sql<{ session_id: string; run_ids: string[] }[]>`
        select session_id, array_agg(run_id) as run_ids from agent.sessions_runs
        where agent_id = ${agentId} and status = 'accepted' and steered_into is null and expires_at <= agent.townhall_now() group by session_id`;
      return new Map(rows.map((row) => [row.session_id, row.run_ids]));
    },
    async nextExpiryMs(agentId) {
      const [row] = await sql<{ in_ms: number | null }[]>`
        select (extract(epoch from min(expires_at) - agent.townhall_now()) * 1000)::float8 as in_ms from agent.sessions_runs
        where agent_id = ${agentId} and status = 'accepted' and steered_into is null and expires_at is not null`;
      return row?.in_ms ?? null;
    },
    async idleQueues(agentId) {
      const rows = await sql<{ session_id: string }[]>`
        select distinct run.session_id from agent.sessions_runs run join agent.sessions_sessions session using (session_id)
        where run.agent_id = ${agentId} and run.status = 'accepted' and run.steered_into is null and session.active_run_id is null`;
      return rows.map((row) => row.session_id);
    },
    async expiredSessions(agentId, keptDays) {
      const rows = await sql<{ session_id: string }[]>`
        select session_id from agent.sessions_sessions
        where agent_id = ${agentId} and kind = 'execute' and deleted_at is null and active_run_id is null and queue_length = 0
          and updated_at < agent.townhall_now() - ${keptDays} * interval '1 day' limit 100`;
      return rows.map((row) => row.session_id);
    },
  };
}

function textOrNull(text: string | null | undefined): string | null {
  return text === null || text === undefined ? null : asText(text);
}
