// Frees the space of deleted rows. PostgreSQL's autovacuum is a separate process, which the embedded engine
// does not have. Instead, the engine's thread calls `step` while it is idle.

export interface VacuumEngine {
  /** The rows of a statement; null when the engine refused it or its reads were interrupted. */
  query(statement: string): (string | null)[][] | null;
  nowMs(): number;
}

export interface Vacuum {
  /** Vacuums at most one table. Must be called outside of transactions. */
  step(): void;
}

interface Table {
  oid: string;
  name: string;
}

// A smaller table stays as it is: its dead rows are pruned when their pages are next written.
const minTableBytes = 256 * 1024;
// The rule of PostgreSQL's autovacuum: 50 rows and a fifth of the table.
const dueTablesQuery = `
  select relid, relid::regclass from pg_stat_user_tables
  where n_dead_tup > 50 + 0.2 * n_live_tup and pg_total_relation_size(relid) >= ${minTableBytes}
  order by n_dead_tup desc limit 20`;
// VACUUM truncates the free end of a table but never shrinks an index, so an emptied table with large indexes
// needs VACUUM FULL.
const emptyTableQuery = (oid: string) =>
  `select from pg_class where oid = ${oid} and relpages = 0 and pg_total_relation_size(oid) > 64 * 1024`;
// For a table whose statistics have few pages the planner plans to read the whole table, and a cached plan
// would still do so after the table has grown. Unknown statistics count as ten pages.
const resetStatistics = (oid: string) =>
  `update pg_class set relpages = 0, reltuples = -1 where oid = ${oid} and relpages < 10 and reltuples >= 0`;

// Retry of an interrupted vacuum: the delay doubles each time.
const firstDelayMs = 60_000;
const maxDelayMs = 60 * 60_000;

export function createVacuum({ query, nowMs }: VacuumEngine, { everyMs }: { everyMs: number }): Vacuum {
  let dueTables: Table[] = [];
  let nextCheckMs = nowMs() + everyMs;
  const delays = new Map<string, { delayMs: number; untilMs: number }>();

  function findDue(): Table[] {
    nextCheckMs = nowMs() + everyMs;
    // PostgreSQL adds the row counts of recent statements at the end of this one, so the next query sees
    // them.
    query('select pg_stat_force_next_flush()');
    const rows = query(dueTablesQuery) ?? [];
    return rows
      .map(([oid, name]) => ({ oid: oid ?? '', name: name ?? '' }))
      .filter(({ oid }) => (delays.get(oid)?.untilMs ?? 0) <= nowMs());
  }

  function postpone({ oid }: Table): void {
    const delayMs = Math.min(maxDelayMs, (delays.get(oid)?.delayMs ?? firstDelayMs / 2) * 2);
    delays.set(oid, { delayMs, untilMs: nowMs() + delayMs });
  }

  function vacuum(table: Table): boolean {
    const { oid, name } = table;
    if (query(`vacuum ${name}`) === null) return false;
    const isEmpty = (query(emptyTableQuery(oid)) ?? []).length > 0;
    const isDone = !isEmpty || query(`vacuum full ${name}`) !== null;
    query(resetStatistics(oid));
    return isDone;
  }

  return {
    step() {
      if (dueTables.length === 0 && nowMs() >= nextCheckMs) dueTables = findDue();
      const table = dueTables.shift();
      if (table === undefined) return;
      if (vacuum(table)) delays.delete(table.oid);
      else postpone(table);
    },
  };
}
