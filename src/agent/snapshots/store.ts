// SQL of changed files. The only file that names the tables `snapshots_*`.
import { isForeignKeyViolation } from '../../kernel/data/database-errors.ts';
import type { Database, Sql } from '../../kernel/data/database.ts';
import type { FileState } from './tree.ts';

export type ChangesStatus = 'open' | 'applied' | 'undone';

export interface ChangesRecord {
  runId: string;
  sessionKey: string;
  status: ChangesStatus;
  treeHash: string | null;
}

export interface StoredChange {
  path: string;
  before: FileState | null;
  after: FileState | null;
  /** Null for files that are not text, or too large to compare. */
  additions: number | null;
  deletions: number | null;
}

export interface SnapshotStore {
  open(record: { runId: string; sessionKey: string; treeHash: string }): Promise<void>;
  /** Writes the changes of an open record and closes it; deletes the record when there are none. */
  close(runId: string, changes: readonly StoredChange[]): Promise<void>;
  remove(runId: string): Promise<void>;
  removeSession(sessionKey: string): Promise<void>;
  record(sessionKey: string, runId: string): Promise<ChangesRecord | undefined>;
  changes(runId: string): Promise<StoredChange[]>;
  /** Deletes the changes of a session's oldest runs beyond this number. */
  prune(sessionKey: string, runs: number): Promise<void>;
  /** Deletes the changes of the oldest runs of all sessions; returns how many. */
  pruneOldest(count: number): Promise<number>;
  /** The trees of open records of the agent. */
  openTrees(): Promise<string[]>;
  /** Returns those of the hashes that a change refers to. */
  used(hashes: readonly string[]): Promise<Set<string>>;
}

interface FileRow {
  path: string;
  before_hash: string | null;
  before_mode: number | null;
  after_hash: string | null;
  after_mode: number | null;
  additions: number | null;
  deletions: number | null;
}

export function snapshotStore({ sql, tx }: Pick<Database, 'sql' | 'tx'>, agentId: string): SnapshotStore {
  return {
    async open({ runId, sessionKey, treeHash }) {
      await sql`
        insert into agent.snapshots_runs (run_id, agent_id, session_id, status, tree_hash)
        values (${runId}, ${agentId}, ${sessionKey}, 'open', ${treeHash}) on conflict do nothing`.catch(
        (error: unknown) => {
          // The session was deleted meanwhile.
          if (!isForeignKeyViolation(error)) throw error;
        },
      );
    },
    async close(runId, changes) {
      if (changes.length === 0) {
        await sql`delete from agent.snapshots_runs where run_id = ${runId} and status = 'open'`;
        return;
      }
      await tx(async (unit) => {
        const [row] = await unit`
          update agent.snapshots_runs set status = 'applied', tree_hash = null
          where run_id = ${runId} and status = 'open' returning 1 as closed`;
        if (row) await insertFiles(unit, runId, changes);
      });
    },
    async remove(runId) {
      await sql`delete from agent.snapshots_runs where run_id = ${runId}`;
    },
    async removeSession(sessionKey) {
      await sql`delete from agent.snapshots_runs where session_id = ${sessionKey}`;
    },
    async record(sessionKey, runId) {
      const [row] = await sql<{ status: ChangesStatus; tree_hash: string | null }[]>`
        select status, tree_hash from agent.snapshots_runs
        where run_id = ${runId} and session_id = ${sessionKey}`;
      return row && { runId, sessionKey, status: row.status, treeHash: row.tree_hash };
    },
    async changes(runId) {
      const rows = await sql<FileRow[]>`
        select path, before_hash, before_mode, after_hash, after_mode, additions, deletions
        from agent.snapshots_files where run_id = ${runId} order by path collate "C"`;
      return rows.map(changeOf);
    },
    async prune(sessionKey, runs) {
      await sql`
        delete from agent.snapshots_runs where run_id in (
          select run_id from agent.snapshots_runs where session_id = ${sessionKey} and status <> 'open'
          order by created_at desc, run_id desc offset ${runs})`;
    },
    async pruneOldest(count) {
      const rows = await sql`
        delete from agent.snapshots_runs where run_id in (
          select run_id from agent.snapshots_runs where agent_id = ${agentId} and status <> 'open'
          order by created_at, run_id limit ${count})
        returning 1 as removed`;
      return rows.length;
    },
    async openTrees() {
      const rows = await sql<{ tree_hash: string }[]>`
        select tree_hash from agent.snapshots_runs where agent_id = ${agentId} and tree_hash is not null`;
      return rows.map((row) => row.tree_hash);
    },
    async used(hashes) {
      const rows = await sql<{ hash: string }[]>`
        select before_hash as hash from agent.snapshots_files where before_hash = any(${[...hashes]}::text[])
        union select after_hash from agent.snapshots_files where after_hash = any(${[...hashes]}::text[])`;
      return new Set(rows.map(({ hash }) => hash));
    },
  };
}

/** Whether the record has the status. Locks it, so that the status stays until the transaction ends. */
export async function hasStatus(tx: Sql, runId: string, status: ChangesStatus): Promise<boolean> {
  const rows = await tx`
    select 1 from agent.snapshots_runs where run_id = ${runId} and status = ${status} for update`;
  return rows.length > 0;
}

export async function changeStatus(tx: Sql, runId: string, to: ChangesStatus): Promise<void> {
  await tx`update agent.snapshots_runs set status = ${to} where run_id = ${runId}`;
}

async function insertFiles(tx: Sql, runId: string, changes: readonly StoredChange[]): Promise<void> {
  const rows = changes.map(({ path, before, after, additions, deletions }) => ({
    path,
    before_hash: before?.hash ?? null,
    before_mode: before?.mode ?? null,
    after_hash: after?.hash ?? null,
    after_mode: after?.mode ?? null,
    additions,
    deletions,
  }));
  await tx`
    insert into agent.snapshots_files (
      run_id, path, before_hash, before_mode, after_hash, after_mode, additions, deletions)
    select ${runId}, path, before_hash, before_mode, after_hash, after_mode, additions, deletions
    from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) as change (
      path text, before_hash text, before_mode integer,
      after_hash text, after_mode integer, additions integer, deletions integer)`;
}

function changeOf(row: FileRow): StoredChange {
  return {
    path: row.path,
    before: stateOf(row.before_hash, row.before_mode),
    after: stateOf(row.after_hash, row.after_mode),
    additions: row.additions,
    deletions: row.deletions,
  };
}

function stateOf(hash: string | null, mode: number | null): FileState | null {
  return hash === null ? null : { hash, mode: mode ?? 0o644 };
}
