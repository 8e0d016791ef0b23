// What the global setups and the worlds share: the schemas, the addresses, and a log that is silent.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { migrate, type Database } from '../../src/kernel/data/database.ts';
import { createJobs } from '../../src/kernel/data/jobs.ts';
import type { Log } from '../../src/kernel/log.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Where the worlds of the run come from; absent in `once`, whose few worlds grow from the seed. */
    databaseSource: DatabaseSource | undefined;
  }
}

export type DatabaseSource =
  | {
      engine: 'embedded';
      emptyFolder: string;
      migratedFolder: string;
      /** Of all worlds. */ worldsFolder: string;
    }
  | { engine: 'postgres'; url: string; migratedTemplate: string; isOurs: boolean };

const source = join(import.meta.dirname, '..', '..', 'src');

export async function migrateAll(database: Database): Promise<void> {
  for (const schema of ['gateway', 'agent']) {
    const directory = join(source, schema, 'migrations');
    if (existsSync(directory)) await migrate(database, { schema, directory, log: silentLog });
  }
}

/** The tables of the queue, which its first start would make in each world. */
export async function makeQueue(database: Database): Promise<void> {
  const jobs = createJobs(database, { schema: 'pgboss', log: silentLog });
  jobs.start();
  await jobs.ready();
  await jobs.stop({ timeoutMs: 1_000 });
}

/** The same server, another database. */
export function databaseUrl(url: string, database: string): string {
  const other = new URL(url);
  other.pathname = `/${database}`;
  return other.href;
}

/** Keeps the output of a run for the tests themselves. */
export const silentLog: Log = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => silentLog,
};
