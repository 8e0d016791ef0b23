// Control handlers of a server that holds an embedded database, which no other process can open:
// its state, and a copy of it. Gateway and agent answer the same, so that one command serves both.
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
    // The command has created the file: 'r+' fails where it is missing. The socket lies in the data
    // folder, so that a caller of this handler has access to the same data already.
    'db.backup': async (input) => {
      const bytes = await database.dump?.();
      if (bytes === undefined) throw new Error('This engine has a program of its own for backups.');
      await writeFile((input as { file: string }).file, bytes, { flag: 'r+' });
      return { bytes: bytes.byteLength };
    },
  };
}
