// Control handlers of a server that holds an embedded database, which no other process can open. They
// report its state and copy it. Gateway and agent have the same handlers, so that one command works
// with both.
import { writeFile } from 'node:fs/promises';
import type { ControlHandler } from '../control.ts';
import type { Database } from './database.ts';
import { readDatabaseFacts, type DatabaseFacts } from './database-facts.ts';

export interface DatabaseControls extends Record<string, ControlHandler> {
  'db.facts': () => Promise<DatabaseFacts>;
  'db.backup': ControlHandler;
}

export function databaseControls(
  database: Database,
  migrations: { schema: string; directory: string },
): DatabaseControls {
  return {
    'db.facts': () => readDatabaseFacts(database, migrations),
    // The command has created the file, and 'r+' fails if it is missing. The control socket is in the
    // data folder, so every caller of this handler has access to the same data already.
    'db.backup': async (input) => {
      const bytes = await database.dump?.();
      if (bytes === undefined) throw new Error('PostgreSQL has its own program for backups; use pg_dump.');
      await writeFile((input as { file: string }).file, bytes, { flag: 'r+' });
      return { bytes: bytes.byteLength };
    },
  };
}
