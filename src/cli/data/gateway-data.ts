// The gateway's data as a command finds it that must not change it: who holds it, what it says of itself, and whether
// the master key that is given here is its own.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { GatewayConfig } from '../../gateway/config.ts';
import { envStore, unlock } from '../../gateway/env/index.ts';
import { shipped } from '../../kernel/assets.ts';
import { callControl } from '../../kernel/control.ts';
import { connect, type Database } from '../../kernel/data/database.ts';
import { databaseFacts, type DatabaseFacts } from '../../kernel/data/database-facts.ts';
import { createLog, type Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { createRedactor, type Redactor } from '../../kernel/secrets/secret.ts';

export const gatewayMigrations = { schema: 'gateway', directory: shipped('src/gateway/migrations') };

export interface GatewayFacts extends DatabaseFacts {
  /** The names of the variables that are stored; their values stay where they are. */
  storedKeys: string[];
}

/** What is logged goes to standard error, and only when it matters. */
export function commandLog(): { log: Log; redactor: Redactor } {
  const redactor = createRedactor();
  return { redactor, log: createLog({ level: 'warn', redactor, write: (line) => void process.stderr.write(line) }) };
}

/** Whether there is a database to open; a PostgreSQL is taken to be. */
export function hasDatabase({ databaseUrl, databasePath }: GatewayConfig): boolean {
  return databaseUrl !== undefined || existsSync(join(databasePath, 'pg'));
}

/** Asks the server that holds the embedded database, or undefined when none runs. */
export async function askServer(config: GatewayConfig, name: string, input: unknown): Promise<unknown> {
  if (config.databaseUrl !== undefined) return undefined;
  try {
    return await callControl(join(config.databasePath, 'control.sock'), name, input);
  } catch (error) {
    if (error instanceof Problem && error.code === 'not_ready') return undefined;
    throw error;
  }
}

/** Opens the database for the length of the work. */
export async function withDatabase<T>(config: GatewayConfig, work: (database: Database) => Promise<T>): Promise<T> {
  const { log } = commandLog();
  const database = await connect(config.databaseUrl === undefined ? { path: config.databasePath } : { url: config.databaseUrl, ...(config.databasePrepare === undefined ? {} : { prepare: config.databasePrepare }) }, { log });
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

export async function gatewayFacts(database: Database): Promise<GatewayFacts> {
  const facts = await databaseFacts(database, gatewayMigrations);
  const isEmpty = facts.migrations.applied === 0;
  return { ...facts, storedKeys: isEmpty ? [] : (await envStore(database).list()).map(({ key }) => key) };
}

/** What of a database is sealed, as `survey` of its store says. */
export type Survey = Awaited<ReturnType<ReturnType<typeof envStore>['survey']>>;

/** Throws a SettingError unless the master key that is given here opens what is sealed; where nothing is, says so and changes nothing. */
export async function checkMasterKey(config: GatewayConfig, survey: Survey): Promise<'fits' | 'nothing sealed'> {
  if (survey.canary === null && survey.variables === 0) return 'nothing sealed';
  const { redactor, log } = commandLog();
  const dataFolder = config.databaseUrl === undefined ? config.databasePath : null;
  await unlock({ settings: config, store: { survey: async () => survey }, dataFolder, redactor, log });
  return 'fits';
}
