// The agent's data: its folder, readable by its owner alone, and the database in it or at its address. It is apart from
// the composition root so that a start may open it while everything else is still being loaded.
import { join } from 'node:path';
import { connect, withSettingName, type ConnectOptions, type Database } from '../kernel/data/database.ts';
import { makeSettingFolder } from '../kernel/folder.ts';
import type { Log } from '../kernel/log.ts';

export interface DataSettings {
  /** Absolute. */
  dataDir: string;
  /** A PostgreSQL instead of the database in the folder. */
  databaseUrl: string | undefined;
}

/** Throws when another process holds the folder, or the database is away. */
export async function openAgentDatabase(settings: DataSettings, log: Log): Promise<Database> {
  await makeSettingFolder('AGENT_DATA_DIR', settings.dataDir);
  return withSettingName('AGENT_DATABASE_URL', settings.databaseUrl, connect(placeOf(settings), { log }));
}

function placeOf({ databaseUrl, dataDir }: DataSettings): ConnectOptions {
  return databaseUrl === undefined ? { path: join(dataDir, 'agent.db') } : { url: databaseUrl };
}
