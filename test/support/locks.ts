// Waiting until statements of other connections are blocked by locks.
import type { Sql } from '../../src/kernel/data/database.ts';
import { until } from './until.ts';

/** Resolves when a statement in this database, or `count` of them, wait for locks; PostgreSQL only. */
export async function waitForBlockedStatement(sql: Sql, count = 1): Promise<void> {
  await until(async () => {
    const statements = await sql`
      select 1 from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`;
    return statements.length >= count;
  }, `${count} statements wait for locks`);
}
