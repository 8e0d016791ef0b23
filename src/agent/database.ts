// Opens the agent's database: embedded in the data folder, or PostgreSQL. It is a separate module, so
// that the database can open while the composition root is still loading.
import { join } from 'node:path';
import { connect, withSettingName, type Database } from '../kernel/data/database.ts';
import { makeSettingFolder } from '../kernel/folder.ts';
import type { Log } from '../kernel/log.ts';
import type { AgentConfig } from './config.ts';

/** Throws when another process holds the data folder, or the database does not answer. */
export async function openAgentDatabase(
  { dataDir, databaseUrl }: Pick<AgentConfig, 'dataDir' | 'databaseUrl'>,
  log: Log,
): Promise<Database> {
  await makeSettingFolder('AGENT_DATA_DIR', dataDir);
  const target = databaseUrl === undefined ? { path: join(dataDir, 'agent.db') } : { url: databaseUrl };
  return withSettingName('AGENT_DATABASE_URL', databaseUrl, connect(target, { log }));
}
