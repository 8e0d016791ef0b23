// The settings of a PostgreSQL server without which a commit may be lost in a power cut.
import { unavailableProblem } from './database-errors.ts';
import type { Sql } from './queries.ts';

/** The names of the durability settings that are off. */
export async function readUnsafeSettings(sql: Sql): Promise<string[]> {
  const settings = await sql<{ name: string }[]>`
    select name from pg_settings
    where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off'
    order by name`;
  return settings.map(({ name }) => name);
}

/** Throws a 503 that names the settings which are off. */
export async function requireDurability(sql: Sql): Promise<void> {
  const names = await readUnsafeSettings(sql);
  if (names.length === 0) return;
  throw unavailableProblem(
    `The PostgreSQL server has ${names.join(' and ')} off, so it would confirm commits that a power cut can undo. Turn it on.`,
  );
}
