// Data that only the gateway's database has: stored variables, and secrets sealed with a master
// key.
import type { GatewayConfig } from '../../gateway/config.ts';
import { envStore, unlock } from '../../gateway/env/index.ts';
import type { Database } from '../../kernel/data/database.ts';
import { readDatabaseFacts, type DatabaseFacts } from '../../kernel/data/database-facts.ts';
import { stderrLog } from '../command-line/stderr-log.ts';
import { gatewayDatabase } from './database-location.ts';

export interface GatewayFacts extends DatabaseFacts {
  /** The names of the stored variables; values are never read. */
  storedKeys: string[];
}

export async function readGatewayFacts(config: GatewayConfig, database: Database): Promise<GatewayFacts> {
  const facts = await readDatabaseFacts(database, gatewayDatabase(config).migrations);
  const isEmpty = facts.migrations.applied === 0;
  return { ...facts, storedKeys: isEmpty ? [] : (await envStore(database).list()).map(({ key }) => key) };
}

/** The sealed values of a database, as the store's `survey` reports them. */
export type SealSurvey = Awaited<ReturnType<ReturnType<typeof envStore>['survey']>>;
export type MasterKeyVerdict = 'fits' | 'nothing sealed';

/** Throws a SettingError unless the given master key opens the sealed values. Changes nothing. */
export async function checkMasterKey(config: GatewayConfig, survey: SealSurvey): Promise<MasterKeyVerdict> {
  if (survey.canary === null && survey.variableCount === 0) return 'nothing sealed';
  const { redactor, log } = stderrLog();
  const dataFolder = config.databaseUrl === undefined ? config.databasePath : null;
  await unlock({ settings: config, store: { survey: async () => survey }, dataFolder, redactor, log });
  return 'fits';
}
