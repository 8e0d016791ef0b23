// Shared by the global setups and the databases of tests: schemas, addresses and a silent log.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { migrate, type Database } from '../../src/kernel/data/database.ts';
import { createJobs } from '../../src/kernel/data/jobs.ts';
import { silentLog } from '../../src/kernel/log.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /**
     * The source of the run's databases; absent in the project `once`, whose few worlds run their own
     * migrations.
     */
    databaseSource: DatabaseSource | undefined;
  }
}

export type DatabaseSource =
  | {
      engine: 'embedded';
      emptyFolder: string;
      migratedFolder: string;
      /** The folder of all worlds. */
      worldsFolder: string;
    }
  | { engine: 'postgres'; url: string; migratedTemplate: string; isOurs: boolean };

const source = join(import.meta.dirname, '..', '..', 'src');

export async function migrateAll(database: Database): Promise<void> {
  for (const schema of ['gateway', 'agent']) {
    const directory = join(source, schema, 'migrations');
    if (existsSync(directory)) await migrate(database, { schema, directory, log: silentLog });
  }
}

/** Creates the tables of the queue, which its first start would otherwise create in each world. */
export async function makeQueue(database: Database): Promise<void> {
  const jobs = createJobs(database, { schema: 'pgboss', log: silentLog });
  jobs.start();
  await jobs.ready();
  await jobs.stop({ timeoutMs: 1_000 });
}

/** The same server with another database. */
export function databaseUrl(url: string, database: string): string {
  const serverUrl = new URL(url);
  serverUrl.pathname = `/${database}`;
  return serverUrl.href;
}

export { silentLog };
