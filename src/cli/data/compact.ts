// Compacts the embedded database of a stopped server: rewrites its tables without the space of deleted rows.
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { compactTables } from '../../kernel/data/compact.ts';
import { SettingError } from '../../kernel/settings.ts';
import {
  hasDatabase,
  missingDatabase,
  readRunningFacts,
  withDatabase,
  type DatabaseLocation,
} from './database-location.ts';
import { connectionVariables } from './postgres-tools.ts';

export interface CompactResult {
  /** The size of the database's folder on the disk. */
  bytesBefore: number;
  bytesAfter: number;
}

/** Throws a SettingError, without a change, for a PostgreSQL, a running server and a missing database. */
export async function compact(
  location: DatabaseLocation,
  progress: (step: string) => void,
): Promise<CompactResult> {
  if (location.databaseUrl !== undefined) throw postgresAdvice(location.databaseUrl);
  if ((await readRunningFacts(location)) !== undefined)
    throw new SettingError(
      `the ${location.surface} is running, and compacting would block it; stop it first. Nothing was changed. A running server reuses the space of deleted rows by itself.`,
    );
  if (!hasDatabase(location)) throw new SettingError(missingDatabase(location));
  const folder = join(location.databasePath, 'pg');
  const bytesBefore = await measureFolder(folder);
  await withDatabase(location, (database) =>
    compactTables(database, ({ name, bytesBefore: before, bytesAfter: after }) => {
      if (before > after) progress(`${name}: ${formatMegabytes(before)} to ${formatMegabytes(after)}`);
    }),
  );
  return { bytesBefore, bytesAfter: await measureFolder(folder) };
}

export function formatMegabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

function postgresAdvice(databaseUrl: string): SettingError {
  const name = connectionVariables(databaseUrl)['PGDATABASE'] ?? 'DATABASE';
  return new SettingError(
    `this database is a PostgreSQL, whose autovacuum reuses the space of deleted rows. To give it back to the disk, stop the servers and run: vacuumdb --full --analyze --dbname=${name}`,
  );
}

async function measureFolder(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const sizes = await Promise.all(
    entries
      .filter((entry) => entry.isFile())
      .map(async (entry) => (await stat(join(entry.parentPath, entry.name))).size),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}
