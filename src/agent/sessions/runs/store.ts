// SQL of runs and of the queue. Rows are written by the statement that appends to the log, or under the lock
// of the session.
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import type { Database, Sql } from '../../../kernel/data/database.ts';
import { asJson, type RunError, type RunOutcome } from '../event-log/events.ts';
import type { UnitOfWork } from '../event-log/unit.ts';
import type { ExtraStatements } from '../event-log/store.ts';

export type Delivery = 'queue' | 'steer' | 'interrupt' | 'reject' | 'compact';

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
  requestId: string | null;
  expiresInMs?: number | null;
  /** Set when this process starts the run at once. */
  start: { messageId: string | null } | null;
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

// The largest value of a bigint column.
const lastPlace = 9_223_372_036_854_775_807n;

/** The place of an interrupting input that is yet to be inserted: after all other interrupting inputs. */
export const lastUrgent = { isUrgent: true, place: lastPlace };

export interface LeaseHolder {
  instanceId: string;
  leaseMs: number;
}

/** The answer to an accepted input. */
export interface Receipt {
  runId: string;
  sessionId: string;
  messageId: string;
  status: 'accepted' | 'running';
  queued: boolean;
  queueItemId: string | null;
  queuePosition: number;
  /** What a waiting input waits for: earlier runs of its session, or a free place. */
  waitsFor?: 'session' | 'capacity';
  seq: number;
  eventsUrl: string;
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

/** CTEs for an append that insert its runs. The rows get their places in the order of `runs`. */
export function insertRuns(
  tx: Sql,
  runs: readonly NewRun[],
  { instanceId, leaseMs }: LeaseHolder,
): ExtraStatements {
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
    request_id: run.requestId,
    message_id: run.start?.messageId ?? null,
    starts: run.start !== null,
    expires_in_ms: run.expiresInMs ?? null,
  }));
  return tx`, accepted as (
    insert into agent.sessions_runs (
      run_id, session_id, agent_id, status, delivery, is_urgent, origin,
      queue_item_id, input_message_id, preview, model, reasoning_effort, prompt_id, prompt_hash,
      receipt, request_id, message_id, instance_id, lease_until, started_at, expires_at)
    select run_id, session_id, agent_id, case when starts then 'running' else 'accepted' end,
      delivery, is_urgent, origin,
      queue_item_id, input_message_id, preview, model, reasoning_effort, prompt_id, prompt_hash,
      nullif(receipt, 'null'::jsonb), request_id, message_id,
      case when starts then ${instanceId}::text end,
      case when starts then agent.townhall_now() + ${leaseMs} * interval '1 millisecond' end,
      case when starts then agent.townhall_now() end,
      agent.townhall_now() + expires_in_ms * interval '1 millisecond'
    from jsonb_to_recordset(${asJson(rows)}::text::jsonb) as run (
      ordinal integer, run_id text, session_id text, agent_id text, delivery text, is_urgent boolean,
      origin text, queue_item_id text, input_message_id text, preview text, model text,
      reasoning_effort text, prompt_id text, prompt_hash text, receipt jsonb, request_id text,
      message_id text, starts boolean, expires_in_ms integer)
    where session_id in (select session_id from head) order by ordinal
    )`;
}

/** Runs that were accepted with these idempotency keys. A run of another session may be among them. */
export async function runsByPrompt(
  { tx }: UnitOfWork,
  sessionKeys: readonly string[],
  promptIds: readonly string[],
): Promise<RunRecord[]> {
  const rows = await tx<RunRow[]>`
    select * from agent.sessions_runs
    where session_id = any(${[...sessionKeys]}::text[]) and prompt_id = any(${[...promptIds]}::text[])`;
  return rows.map(runOf);
}

/** The waiting runs in the order in which they will run. */
export async function waitingRuns(
  { tx }: UnitOfWork,
  sessionKey: string,
  limit = 1_000_000,
): Promise<RunRecord[]> {
  const rows = await tx<RunRow[]>`
    select * from agent.sessions_runs
    where session_id = ${sessionKey} and status = 'accepted' and steered_into is null
    order by is_urgent desc, place limit ${limit}`;
  return rows.map(runOf);
}

/**
 * Counts the agent's inputs that wait for a free place and start before the given run; without a run, all of
 * them. They are the waiting inputs of sessions without an active run.
 */
export async function waitingAhead(
  sql: Sql,
  agentId: string,
  { isUrgent, place }: Pick<RunRecord, 'isUrgent' | 'place'> = { isUrgent: false, place: lastPlace },
): Promise<number> {
  const [row] = await sql<{ ahead: number }[]>`
    select count(*)::integer as ahead from agent.sessions_runs run
    join agent.sessions_sessions session using (session_id)
    where run.agent_id = ${agentId} and run.status = 'accepted' and run.settled_at is null
      and run.steered_into is null and session.active_run_id is null
      and (not run.is_urgent, run.place) < (not ${isUrgent}::boolean, ${place}::bigint)`;
  return row?.ahead ?? 0;
}

export async function steerRun({ tx }: UnitOfWork, runId: string, into: string): Promise<void> {
  await tx`
    update agent.sessions_runs set steered_into = ${into}, started_at = agent.townhall_now()
    where run_id = ${runId}`;
}

export async function moveMessage({ tx }: UnitOfWork, runId: string, messageId: string): Promise<void> {
  await tx`update agent.sessions_runs set message_id = ${messageId} where run_id = ${runId}`;
}

export async function steeredRuns({ tx }: UnitOfWork, into: string): Promise<string[]> {
  const rows = await tx<{ run_id: string }[]>`
    select run_id from agent.sessions_runs where steered_into = ${into} and settled_at is null
    order by place`;
  return rows.map((row) => row.run_id);
}

/**
 * Whether a run is still abandoned: its process may have renewed the lease since `abandonedRuns`.
 * Called under the session's lock. FOR UPDATE, so that no renewal comes in between.
 */
export async function isAbandoned(
  { tx }: UnitOfWork,
  runId: string,
  { instanceId, trustLeases }: { instanceId: string; trustLeases: boolean },
): Promise<boolean> {
  const rows = await tx`
    select 1 from agent.sessions_runs
    where run_id = ${runId} and (lease_until < agent.townhall_now() or instance_id = ${instanceId}
      or not ${trustLeases}::boolean)
    for update`;
  return rows.length > 0;
}

export interface RunEnd {
  outcome: RunOutcome;
  usage: RunUsage;
  finishReason: string | null;
  error: RunError | null;
}

/**
 * CTEs for an append that end runs and start the next run. Runs that have ended already are left alone. The
 * appended events contain the text of the run `checkpointsOf`, whose checkpoints are deleted.
 */
export function advanceRuns(
  tx: Sql,
  {
    ended = null,
    checkpointsOf = null,
    next = null,
  }: {
    ended?: { runIds: readonly string[]; end: RunEnd } | null;
    checkpointsOf?: string | null;
    next?: { runId: string; messageId: string | null; model: string; holder: LeaseHolder } | null;
  },
): ExtraStatements {
  const end = ended?.end;
  return tx`, ended as (
      update agent.sessions_runs
      set status = ${end?.outcome ?? null}::text, settled_at = agent.townhall_now(),
        finish_reason = ${end?.finishReason ?? null}::text,
        usage = ${end ? asJson(end.usage) : null}::text::jsonb, error = ${end?.error ? asJson(end.error) : null}::text::jsonb
      where run_id = any(${[...(ended?.runIds ?? [])]}::text[]) and settled_at is null
        and exists (select from head)
    ), deleted_checkpoints as (
      delete from agent.sessions_checkpoints
      where run_id = ${checkpointsOf}::text and exists (select from head)
    ), started as (
      update agent.sessions_runs
      set status = 'running', started_at = agent.townhall_now(),
        message_id = ${next?.messageId ?? null}::text, model = ${next?.model ?? null}::text,
        instance_id = ${next?.holder.instanceId ?? null}::text,
        lease_until = agent.townhall_now()
          + ${next?.holder.leaseMs ?? 0}::integer * interval '1 millisecond'
      where run_id = ${next?.runId ?? null}::text and exists (select from head)
    )`;
}

export interface RunStore extends QueueStore, LeaseStore {
  run(sessionKey: string, runId: string): Promise<RunRecord | undefined>;
  /** The receipt of the run that a call with an Idempotency-Key has accepted. */
  receiptOfRequest(requestId: string): Promise<Receipt | null>;
}

export function runStore({ sql }: Pick<Database, 'sql'>): RunStore {
  return {
    async run(sessionKey, runId) {
      const [row] = await sql<RunRow[]>`
        select * from agent.sessions_runs where session_id = ${sessionKey} and run_id = ${runId}`;
      return row && runOf(row);
    },
    async receiptOfRequest(requestId) {
      const [row] = await sql<{ receipt: Receipt }[]>`
        select receipt from agent.sessions_runs
        where request_id = ${requestId} and receipt is not null`;
      return row?.receipt ?? null;
    },
    ...queueStore(sql),
    ...leaseStore(sql),
  };
}

/** Queries of the inputs that wait. */
interface QueueStore {
  queue(sessionKey: string): Promise<RunRecord[]>;
  queueItem(sessionKey: string, queueItemId: string): Promise<RunRecord | undefined>;
  /** The run ids of expired inputs, by session. */
  expiredInputs(agentId: string): Promise<Map<string, string[]>>;
  /** The milliseconds until the next input expires; null when none will. */
  nextExpiryMs(agentId: string): Promise<number | null>;
  /** Sessions with waiting inputs and no active run, in the order in which they start. */
  idleQueues(agentId: string, limit: number, except: readonly string[]): Promise<string[]>;
  /** How many inputs start before one whose session has no active run. */
  waitingAhead(agentId: string, run: Pick<RunRecord, 'isUrgent' | 'place'>): Promise<number>;
}

function queueStore(sql: Sql): QueueStore {
  return {
    async queue(sessionKey) {
      const rows = await sql<RunRow[]>`
        select * from agent.sessions_runs
        where session_id = ${sessionKey} and status = 'accepted' and steered_into is null
        order by is_urgent desc, place`;
      return rows.map(runOf);
    },
    async queueItem(sessionKey, queueItemId) {
      const [row] = await sql<RunRow[]>`
        select * from agent.sessions_runs
        where session_id = ${sessionKey} and queue_item_id = ${queueItemId}`;
      return row && runOf(row);
    },
    async expiredInputs(agentId) {
      const rows = await sql<{ session_id: string; run_ids: string[] }[]>`
        select session_id, array_agg(run_id) as run_ids from agent.sessions_runs
        where agent_id = ${agentId} and status = 'accepted' and steered_into is null
          and expires_at <= agent.townhall_now()
        group by session_id`;
      return new Map(rows.map((row) => [row.session_id, row.run_ids]));
    },
    async nextExpiryMs(agentId) {
      const [row] = await sql<{ in_ms: number | null }[]>`
        select (extract(epoch from min(expires_at) - agent.townhall_now()) * 1000)::float8 as in_ms
        from agent.sessions_runs
        where agent_id = ${agentId} and status = 'accepted' and steered_into is null
          and expires_at is not null`;
      return row?.in_ms ?? null;
    },
    async idleQueues(agentId, limit, except) {
      const rows = await sql<{ session_id: string }[]>`
        select run.session_id from agent.sessions_runs run
        join agent.sessions_sessions session using (session_id)
        where run.agent_id = ${agentId} and run.status = 'accepted' and run.settled_at is null
          and run.steered_into is null and session.active_run_id is null
          and run.session_id <> all(${[...except]}::text[])
        group by run.session_id order by bool_or(run.is_urgent) desc, min(run.place) limit ${limit}`;
      return rows.map((row) => row.session_id);
    },
    waitingAhead: (agentId, run) => waitingAhead(sql, agentId, run),
  };
}

/** Queries of the runs that processes own by a lease. */
interface LeaseStore {
  renewLeases(instanceId: string, leaseMs: number): Promise<void>;
  requestCancel(runId: string): Promise<void>;
  /** Runs of this process for which a cancellation was requested. */
  cancelRequests(instanceId: string): Promise<string[]>;
  /**
   * Running runs whose lease has expired (without `trustLeases` all running runs),
   * and those of this process; the caller filters out the runs that it executes.
   */
  abandonedRuns(query: { agentId: string; instanceId: string; trustLeases: boolean }): Promise<RunRecord[]>;
}

function leaseStore(sql: Sql): LeaseStore {
  return {
    async renewLeases(instanceId, leaseMs) {
      await sql`
        update agent.sessions_runs
        set lease_until = agent.townhall_now() + ${leaseMs} * interval '1 millisecond'
        where instance_id = ${instanceId} and settled_at is null`;
    },
    async requestCancel(runId) {
      await sql`
        update agent.sessions_runs set cancel_requested = true
        where run_id = ${runId} and settled_at is null`;
    },
    async cancelRequests(instanceId) {
      const rows = await sql<{ run_id: string }[]>`
        select run_id from agent.sessions_runs
        where instance_id = ${instanceId} and settled_at is null and cancel_requested`;
      return rows.map((row) => row.run_id);
    },
    async abandonedRuns({ agentId, instanceId, trustLeases }) {
      const rows = await sql<RunRow[]>`
        select * from agent.sessions_runs
        where agent_id = ${agentId} and settled_at is null and status = 'running'
          and (lease_until < agent.townhall_now() or instance_id = ${instanceId}
            or not ${trustLeases}::boolean)
        order by place`;
      return rows.map(runOf);
    },
  };
}
