// The log of sessions and the state of runs. The only file that names the tables `sessions_*`. Every function is one
// transaction, and the row of the session is its lock: `seq` has no gaps, and a run that was settled by somebody
// else (its lease had run out) can write nothing any more.
import type { Database, Sql, Tx } from '../../kernel/database.ts';
import type { RunUsage } from '../../contract/agent/types.gen.ts';
import type { RunError, RunOutcome, SessionEvent } from './events.ts';

export interface RunKey {
  runId: string;
  sessionId: string;
}

export interface NewRun extends RunKey {
  agentId: string;
  messageId: string;
  model: string;
  instanceId: string;
  leaseMs: number;
}

export interface OpenRun extends RunKey {
  messageId: string;
  model: string;
}

export interface Settlement {
  outcome: RunOutcome;
  usage: RunUsage;
  finishReason: string | null;
  error: RunError | null;
  events: SessionEvent[];
}

export interface SessionStore {
  /** A new session with its first run, accepted: from here on the run is never lost. */
  accept(run: NewRun, events: SessionEvent[]): Promise<void>;
  /** Accepted becomes running. False when the run is not this process's any more. */
  begin(run: RunKey, events: SessionEvent[]): Promise<boolean>;
  /** False when the run was settled meanwhile; nothing was written then. */
  append(run: RunKey, events: SessionEvent[]): Promise<boolean>;
  /** Ends the run once; false when it was settled already. */
  settle(run: RunKey, settlement: Settlement): Promise<boolean>;
  /** Says that the process is alive and still has its runs. */
  renewLeases(instanceId: string, leaseMs: number): Promise<void>;
  /** The same for a run whose process is gone: the settlement is made from what the run has written so far. */
  settleFor(run: RunKey, settlement: (events: SessionEvent[]) => Settlement): Promise<boolean>;
  /**
   * Open runs that another process does not keep: the lease is over, or leases do not count, or it is this process that
   * has them. The caller knows which of them it runs itself.
   */
  openRuns(query: { agentId: string; instanceId: string; trustLeases: boolean }): Promise<OpenRun[]>;
}

export function sessionStore(database: Pick<Database, 'sql' | 'tx'>): SessionStore {
  const { sql, tx } = database;
  return {
    accept: (run, events) =>
      tx(async (tx) => {
        await tx`
          insert into agent.sessions_sessions (session_id, agent_id, kind, active_run_id)
          values (${run.sessionId}, ${run.agentId}, 'execute', ${run.runId})`;
        await tx`
          insert into agent.sessions_runs (run_id, session_id, agent_id, message_id, model, status, instance_id, lease_until)
          values (${run.runId}, ${run.sessionId}, ${run.agentId}, ${run.messageId}, ${run.model}, 'accepted', ${run.instanceId},
            agent.townhall_now() + ${run.leaseMs} * interval '1 millisecond')`;
        await append(tx, run, events);
      }),
    begin: (run, events) =>
      tx(async (tx) => {
        // The session first, as everywhere: one order of locks, no deadlock.
        if (!(await append(tx, run, events))) return false;
        await tx`
          update agent.sessions_runs set status = 'running', started_at = agent.townhall_now()
          where run_id = ${run.runId} and status = 'accepted'`;
        return true;
      }),
    append: (run, events) => append(sql, run, events),
    settle: (run, settlement) => tx((tx) => settle(tx, run, settlement)),
    settleFor: (run, settlement) =>
      tx(async (tx) => {
        // Locked before it is read: a process that is slow rather than gone writes nothing in between.
        const held = await tx`
          select 1 from agent.sessions_sessions
          where session_id = ${run.sessionId} and active_run_id = ${run.runId} for update`;
        if (held.length === 0) return false;
        const rows = await tx<{ type: string; data: object }[]>`
          select type, data from agent.sessions_events where run_id = ${run.runId} order by seq`;
        return settle(tx, run, settlement(rows.map(({ type, data }) => ({ type, ...data }) as SessionEvent)));
      }),
    async renewLeases(instanceId, leaseMs) {
      await sql`
        update agent.sessions_runs set lease_until = agent.townhall_now() + ${leaseMs} * interval '1 millisecond'
        where instance_id = ${instanceId} and settled_at is null`;
    },
    async openRuns({ agentId, instanceId, trustLeases }) {
      const rows = await sql<{ run_id: string; session_id: string; message_id: string; model: string }[]>`
        select run_id, session_id, message_id, model from agent.sessions_runs
        where agent_id = ${agentId} and settled_at is null
          and (lease_until < agent.townhall_now() or instance_id = ${instanceId} or not ${trustLeases}::boolean)
        order by accepted_at`;
      return rows.map((row) => ({ runId: row.run_id, sessionId: row.session_id, messageId: row.message_id, model: row.model }));
    },
  };
}

async function settle(tx: Tx, run: RunKey, { outcome, usage, finishReason, error, events }: Settlement): Promise<boolean> {
  if (!(await append(tx, run, events))) return false;
  await tx`update agent.sessions_sessions set active_run_id = null where session_id = ${run.sessionId}`;
  await tx`
    update agent.sessions_runs
    set status = ${outcome}, settled_at = agent.townhall_now(), finish_reason = ${finishReason},
      usage = ${asJson(usage)}::text::jsonb, error = ${error && asJson(error)}::text::jsonb
    where run_id = ${run.runId} and settled_at is null`;
  return true;
}

// One statement, so that on its own it is one transaction and one sync of the disk. `active_run_id` is the fence.
async function append(sql: Sql, run: RunKey, events: SessionEvent[]): Promise<boolean> {
  const rows = events.map(({ type, ...data }) => ({ type, data }));
  const written = await sql`
    with head as (
      update agent.sessions_sessions
      set head_seq = head_seq + ${rows.length}::integer, updated_at = agent.townhall_now()
      where session_id = ${run.sessionId} and active_run_id = ${run.runId}
      returning head_seq
    )
    insert into agent.sessions_events (session_id, seq, run_id, type, data)
    select ${run.sessionId}, head.head_seq - ${rows.length}::integer + entry.place::integer, ${run.runId},
      entry.value ->> 'type', entry.value -> 'data'
    from head, jsonb_array_elements(${asJson(rows)}::text::jsonb) with ordinality as entry (value, place)`;
  return written.count === rows.length;
}

// PostgreSQL stores neither NUL nor half a surrogate pair in jsonb, and a model or a tool may write either.
// JSON.stringify gives both as escapes, and gives no other character of these ranges as one.
function asJson(value: unknown): string {
  return JSON.stringify(value).replace(/(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})/g, '$1\ufffd');
}
