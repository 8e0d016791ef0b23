// Waiting until a statement of another connection is blocked by a lock.
import type { Sql } from '../../src/kernel/data/database.ts';
import { until } from './until.ts';

/** Resolves when a statement in this database waits for a lock; PostgreSQL only. */
export async function waitForBlockedStatement(sql: Sql): Promise<void> {
  await until(async () => {
    const statements = await sql`
      select 1 from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`;
    return statements.length > 0;
  }, 'a statement waits for a lock');
}
