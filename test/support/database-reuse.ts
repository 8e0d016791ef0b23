// Reuses embedded databases between the tests of one worker. Starting an engine takes a second of
// processor time, emptying its tables only some milliseconds, so a released database is emptied and
// kept for the next test.
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ConnectOptions, Database, Sql } from '../../src/kernel/data/database.ts';

export interface ReusableDatabase {
  database: Database;
  options: ConnectOptions;
  /** Closes the database and removes its folder. */
  destroy(): Promise<void>;
}

interface Snapshot {
  /**
   * A digest of tables, triggers, constraints and functions. A database whose digest changed is not
   * reused.
   */
  fingerprint: string;
  tables: string[];
  sequences: string[];
  /** The rows that migrations insert, by table, as a JSON array. */
  rows: Map<string, string>;
}

const snapshots = new WeakMap<Database, Snapshot>();
const idleDatabases: ReusableDatabase[] = [];

/** An emptied database of an earlier test; undefined without one. */
export function takeIdle(): ReusableDatabase | undefined {
  return idleDatabases.pop();
}

/**
 * Records the state to which `release` returns a database. Call it once, right after the
 * migrations.
 */
export async function markFresh(database: Database): Promise<void> {
  snapshots.set(database, await readSnapshot(database.sql));
}

/** Empties the database for the next test, or destroys it when the test has closed or changed it. */
export async function release(database: ReusableDatabase): Promise<void> {
  const snapshot = snapshots.get(database.database);
  const isEmptied =
    snapshot !== undefined && (await emptyTables(database.database, snapshot).catch(() => false));
  if (!isEmptied) return database.destroy();
  await removeServerFiles(database.options);
  idleDatabases.push(database);
}

/**
 * Removes the journal, the media and the key that a gateway stores beside the cluster folder `pg`
 * and its lock.
 */
async function removeServerFiles(options: ConnectOptions): Promise<void> {
  if (!('path' in options)) return;
  const { path } = options;
  const entries = (await readdir(path)).filter((name) => name !== 'pg' && !name.startsWith('townhall.'));
  await Promise.all(entries.map((name) => rm(join(path, name), { recursive: true, force: true })));
}

/** Destroys all idle databases except `keptCount` of them, at the end of a test file. */
export async function destroyIdle(keptCount: number): Promise<void> {
  await Promise.all(idleDatabases.splice(keptCount).map((database) => database.destroy()));
}

async function readSnapshot(sql: Sql): Promise<Snapshot> {
  const relations = await sql<{ name: string; kind: string }[]>`
    select format('%I.%I', n.nspname, c.relname) as name, c.relkind as kind
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'S') and n.nspname in ('gateway', 'agent', 'pgboss')
      and not c.relispartition
    order by 1`;
  const tables = relations
    .filter(({ name, kind }) => kind !== 'S' && !/\.(?:migrations|version)$/.test(name))
    .map(({ name }) => name);
  const rows = new Map<string, string>();
  for (const table of tables) {
    const [content] = await sql.unsafe<{ rows: string | null }[]>(
      `select json_agg(t)::text as rows from ${table} t`,
    );
    if (typeof content?.rows === 'string') rows.set(table, content.rows);
  }
  return {
    fingerprint: await fingerprint(sql),
    tables,
    sequences: relations.filter(({ kind }) => kind === 'S').map(({ name }) => name),
    rows,
  };
}

async function fingerprint(sql: Sql): Promise<string> {
  const [row] = await sql<{ fingerprint: string }[]>`
    with ours as (
      select oid, nspname from pg_namespace
      where nspname not like 'pg\\_%' and nspname <> 'information_schema'
    ),
    parts as (
      select concat_ws('/', 'class', c.oid, c.relname, c.relkind::text, c.relnatts) as part
        from pg_class c join ours on ours.oid = c.relnamespace
      union all select concat_ws('/', 'trigger', t.oid, t.tgenabled::text) from pg_trigger t
      union all select concat_ws('/', 'constraint', k.oid, pg_get_constraintdef(k.oid))
        from pg_constraint k join ours on ours.oid = k.connamespace
      union all select concat_ws('/', 'function', p.oid, md5(p.prosrc))
        from pg_proc p join ours on ours.oid = p.pronamespace
      union all select concat_ws('/', 'schema', nspname) from ours
    )
    select md5(string_agg(part, ',' order by part)) as fingerprint from parts`;
  return row?.fingerprint ?? '';
}

async function emptyTables(database: Database, snapshot: Snapshot): Promise<boolean> {
  if ((await fingerprint(database.sql)) !== snapshot.fingerprint) return false;
  await database.tx(async (tx) => {
    // Triggers are off: some tables refuse a delete, and no change notice may be sent.
    await tx`set local session_replication_role = replica`;
    const filledTables = await tx.unsafe<{ name: string }[]>(
      snapshot.tables
        .map((name) => `select '${name}' as name where exists (select from ${name})`)
        .join(' union all '),
    );
    // A test leaves few rows in few tables, which is faster to delete than 60 tables are to truncate.
    for (const { name } of filledTables) await tx.unsafe(`delete from ${name}`);
    for (const sequence of snapshot.sequences) await tx`select setval(${sequence}, 1, false)`;
    for (const [table, rows] of snapshot.rows)
      await tx.unsafe(
        `insert into ${table} select * from json_populate_recordset(null::${table}, $1::text::json)`,
        [rows],
      );
  });
  return true;
}
