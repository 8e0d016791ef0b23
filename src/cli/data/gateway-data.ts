// What only the gateway's data has: variables that are stored, and secrets that are sealed under a master key, which is
// tried here without changing anything.
import type { GatewayConfig } from '../../gateway/config.ts';
import { envStore, unlock } from '../../gateway/env/index.ts';
import type { Database } from '../../kernel/data/database.ts';
import { databaseFacts, type DatabaseFacts } from '../../kernel/data/database-facts.ts';
import { commandLog, gatewayPlace } from './database-location.ts';

export interface GatewayFacts extends DatabaseFacts {
  /** The names of the variables that are stored; their values stay where they are. */
  storedKeys: string[];
}

export async function gatewayFacts(config: GatewayConfig, database: Database): Promise<GatewayFacts> {
  const facts = await databaseFacts(database, gatewayPlace(config).migrations);
  const isEmpty = facts.migrations.applied === 0;
  return { ...facts, storedKeys: isEmpty ? [] : (await envStore(database).list()).map(({ key }) => key) };
}

/** What of a database is sealed, as `survey` of its store says. */
export type Survey = Awaited<ReturnType<ReturnType<typeof envStore>['survey']>>;

/** Throws a SettingError unless the master key that is given here opens what is sealed; where nothing is, says so and changes nothing. */
export async function checkMasterKey(
  config: GatewayConfig,
  survey: Survey,
): Promise<'fits' | 'nothing sealed'> {
  if (survey.canary === null && survey.variables === 0) return 'nothing sealed';
  const { redactor, log } = commandLog();
  const dataFolder = config.databaseUrl === undefined ? config.databasePath : null;
  await unlock({ settings: config, store: { survey: async () => survey }, dataFolder, redactor, log });
  return 'fits';
}
