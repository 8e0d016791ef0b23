// SQL of the plugins `memory` and `schedule`. The only file that names the tables `plugins_*`.
import type { Database, Tx } from '../../../kernel/data/database.ts';

export interface Note {
  noteId: string;
  key: string | null;
  text: string;
  updatedAt: string;
}

export interface Schedule {
  scheduleId: string;
  instructions: string;
  cron: string | null;
  timeZone: string;
  dueAt: string | null;
  lastRunId: string | null;
}

export interface NoteStore {
  /**
   * Inserts the note, or replaces the note with the same key. Returns null, and stores nothing, when there
   * are already `maxNotes` other notes.
   */
  put(
    note: { noteId: string; key: string | null; text: string },
    limits: { maxNotes: number },
  ): Promise<Note | null>;
  search(query: string, limit: number): Promise<Note[]>;
  list(limit: number): Promise<Note[]>;
  /** Removes the note with the id or key. Returns whether it existed. */
  remove(idOrKey: string): Promise<boolean>;
}

export interface NewSchedule {
  scheduleId: string;
  instructions: string;
  cron: string | null;
  timeZone: string;
  dueAt: Date;
}

interface AddOptions {
  maxOpen: number;
  enqueue(tx: Tx): Promise<unknown>;
}

export interface ScheduleStore {
  /**
   * Inserts the schedule and calls `enqueue` in the same transaction: if that throws, nothing is stored.
   * Returns null when `maxOpen` schedules are already open.
   */
  add(schedule: NewSchedule, options: AddOptions): Promise<Schedule | null>;
  find(scheduleId: string): Promise<Schedule | undefined>;
  /** Schedules with a pending occurrence, ordered by its time. */
  listOpen(): Promise<Schedule[]>;
  /**
   * Replaces the occurrence at `dueAt` by the next one. False when it is no longer pending: another
   * worker has advanced the schedule, or it was cancelled.
   */
  advance(scheduleId: string, dueAt: Date, next: Date | null): Promise<boolean>;
  recordRun(scheduleId: string, runId: string): Promise<void>;
  /** Returns whether an occurrence was pending. */
  cancel(scheduleId: string): Promise<boolean>;
}

interface NoteRow {
  note_id: string;
  key: string | null;
  text: string;
  updated_at: Date;
}

interface ScheduleRow {
  schedule_id: string;
  instructions: string;
  cron: string | null;
  time_zone: string;
  due_at: Date | null;
  last_run_id: string | null;
}

export function noteStore(
  { sql, tx: transaction }: Pick<Database, 'sql' | 'tx'>,
  agentId: string,
): NoteStore {
  return {
    put: ({ noteId, key, text }, { maxNotes }) =>
      transaction(async (tx) => {
        await lockTable(tx, 'notes', agentId);
        const [others] = await tx<{ count: number }[]>`
          select count(*)::int as count from agent.plugins_notes
          where agent_id = ${agentId} and (key is null or key is distinct from ${key})`;
        if ((others?.count ?? 0) >= maxNotes) return null;
        const rows = await tx<NoteRow[]>`
          insert into agent.plugins_notes (note_id, agent_id, key, text)
          values (${noteId}, ${agentId}, ${key}, ${text})
          on conflict (agent_id, key) do update set text = excluded.text, updated_at = agent.townhall_now()
          returning note_id, key, text, updated_at`;
        return rows.map(noteOf)[0] as Note;
      }),
    async search(query, limit) {
      // The full-text index finds whole words; strpos finds parts of words and punctuation.
      const rows = await sql<NoteRow[]>`
        select note_id, key, text, updated_at from agent.plugins_notes
        where agent_id = ${agentId}
          and (search @@ websearch_to_tsquery('simple', ${query})
            or strpos(lower(text), lower(${query})) > 0
            or strpos(lower(coalesce(key, '')), lower(${query})) > 0)
        order by ts_rank(search, websearch_to_tsquery('simple', ${query})) desc, updated_at desc, note_id
        limit ${limit}`;
      return rows.map(noteOf);
    },
    async list(limit) {
      const rows = await sql<NoteRow[]>`
        select note_id, key, text, updated_at from agent.plugins_notes
        where agent_id = ${agentId} order by updated_at desc, note_id desc limit ${limit}`;
      return rows.map(noteOf);
    },
    async remove(idOrKey) {
      const rows = await sql`
        delete from agent.plugins_notes
        where agent_id = ${agentId} and (note_id = ${idOrKey} or key = ${idOrKey}) returning note_id`;
      return rows.length > 0;
    },
  };
}

export function scheduleStore(
  { sql, tx: transaction }: Pick<Database, 'sql' | 'tx'>,
  agentId: string,
): ScheduleStore {
  return {
    add: (schedule, options) => transaction(async (tx) => addSchedule(tx, agentId, schedule, options)),
    async find(scheduleId) {
      const rows = await sql<ScheduleRow[]>`
        select schedule_id, instructions, cron, time_zone, due_at, last_run_id from agent.plugins_schedules
        where agent_id = ${agentId} and schedule_id = ${scheduleId}`;
      return rows.map(scheduleOf)[0];
    },
    async listOpen() {
      const rows = await sql<ScheduleRow[]>`
        select schedule_id, instructions, cron, time_zone, due_at, last_run_id from agent.plugins_schedules
        where agent_id = ${agentId} and due_at is not null order by due_at, schedule_id`;
      return rows.map(scheduleOf);
    },
    async advance(scheduleId, dueAt, next) {
      // Compare-and-set on due_at: of two workers, only one advances the schedule.
      const rows = await sql`
        update agent.plugins_schedules set due_at = ${next}, last_due_at = ${dueAt}
        where agent_id = ${agentId} and schedule_id = ${scheduleId} and due_at = ${dueAt}
        returning schedule_id`;
      return rows.length > 0;
    },
    async recordRun(scheduleId, runId) {
      await sql`
        update agent.plugins_schedules set last_run_id = ${runId}
        where agent_id = ${agentId} and schedule_id = ${scheduleId}`;
    },
    async cancel(scheduleId) {
      const rows = await sql`
        update agent.plugins_schedules set due_at = null
        where agent_id = ${agentId} and schedule_id = ${scheduleId} and due_at is not null
        returning schedule_id`;
      return rows.length > 0;
    },
  };
}

async function addSchedule(
  tx: Tx,
  agentId: string,
  { scheduleId, instructions, cron, timeZone, dueAt }: NewSchedule,
  { maxOpen, enqueue }: AddOptions,
): Promise<Schedule | null> {
  await lockTable(tx, 'schedules', agentId);
  const [open] = await tx<{ count: number }[]>`
    select count(*)::int as count from agent.plugins_schedules
    where agent_id = ${agentId} and due_at is not null`;
  if ((open?.count ?? 0) >= maxOpen) return null;
  const rows = await tx<ScheduleRow[]>`
    insert into agent.plugins_schedules (schedule_id, agent_id, instructions, cron, time_zone, due_at)
    values (${scheduleId}, ${agentId}, ${instructions}, ${cron}, ${timeZone}, ${dueAt})
    returning schedule_id, instructions, cron, time_zone, due_at, last_run_id`;
  await enqueue(tx);
  return rows.map(scheduleOf)[0] as Schedule;
}

// Serializes the transactions that count an agent's rows and add one: two of them at once would see the same
// count and together exceed the limit.
async function lockTable(tx: Tx, table: 'notes' | 'schedules', agentId: string): Promise<void> {
  await tx`select pg_advisory_xact_lock(hashtextextended(${`agent.plugins_${table}.${agentId}`}, 0))`;
}

function noteOf(row: NoteRow): Note {
  return { noteId: row.note_id, key: row.key, text: row.text, updatedAt: row.updated_at.toISOString() };
}

function scheduleOf(row: ScheduleRow): Schedule {
  return {
    scheduleId: row.schedule_id,
    instructions: row.instructions,
    cron: row.cron,
    timeZone: row.time_zone,
    dueAt: row.due_at?.toISOString() ?? null,
    lastRunId: row.last_run_id,
  };
}
