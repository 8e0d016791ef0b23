// Opens the gateway's database: embedded in a folder, or on a PostgreSQL server. A separate module, so that a
// start can open the database while the composition root is still loading.
import { connect, withSettingName } from '../kernel/data/database.ts';
import type { ConnectOptions, Database, DatabaseLimits } from '../kernel/data/database.ts';
import { hasCluster } from '../kernel/data/embedded/embedded.ts';
import type { Log } from '../kernel/log.ts';
import type { GatewayConfig } from './config.ts';

type DatabaseSettings = Pick<GatewayConfig, 'databaseUrl' | 'databasePath' | 'databasePrepare'>;

/** The location of the database in the settings, as an option of `connect`. */
export function databaseOptions(config: DatabaseSettings): ConnectOptions {
  if (config.databaseUrl === undefined) return { path: config.databasePath };
  return config.databasePrepare === undefined
    ? { url: config.databaseUrl }
    : { url: config.databaseUrl, prepare: config.databasePrepare };
}

/** Throws when another process holds the data folder, or the database does not answer. */
export function openGatewayDatabase(
  config: DatabaseSettings,
  { log, limits = {} }: { log: Log; limits?: Partial<DatabaseLimits> | undefined },
): Promise<Database> {
  const connectionPromise = connect({ ...databaseOptions(config), limits }, { log });
  return withSettingName('DATABASE_URL', config.databaseUrl, connectionPromise);
}

/** Whether the database exists already: it is on a PostgreSQL server, or its folder contains a cluster. */
export function databaseExists(config: DatabaseSettings): boolean {
  return config.databaseUrl !== undefined || hasCluster(config.databasePath);
}
