// Facts about a database for an operator: version, durability, clock difference and migrations. Reads
// them without changing anything; the caller judges them.
import { systemClock } from '../clock.ts';
import type { Database } from './database.ts';
import { readUnsafeSettings } from './durability.ts';
import { readMigrationState, type MigrationState } from './migrate.ts';

export interface DatabaseFacts {
  engine: Database['engine'];
  version: string;
  /** The durability settings that are off. */
  unsafeSettings: string[];
  /** How far the database's clock is ahead of ours, corrected for the duration of the query. */
  clockAheadMs: number;
  answeredMs: number;
  bytes: number;
  migrations: MigrationState;
}

export async function readDatabaseFacts(
  database: Database,
  migrations: { schema: string; directory: string },
): Promise<DatabaseFacts> {
  const { sql, engine, version } = database;
  const startedMs = systemClock.monotonicMs();
  const [clock] = await sql<{ at: Date }[]>`select clock_timestamp() as at`;
  const answeredMs = systemClock.monotonicMs() - startedMs;
  // The database read its clock about halfway through the query.
  const ourTimeMs = systemClock.now().getTime() - answeredMs / 2;
  const unsafeSettings = await readUnsafeSettings(sql);
  const [size] = await sql<{ bytes: bigint }[]>`select pg_database_size(current_database()) as bytes`;
  return {
    engine,
    version,
    unsafeSettings,
    clockAheadMs: Math.round((clock?.at.getTime() ?? 0) - ourTimeMs),
    answeredMs: Math.round(answeredMs * 10) / 10,
    bytes: Number(size?.bytes ?? 0n),
    migrations: await readMigrationState(database, migrations),
  };
}
