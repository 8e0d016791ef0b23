// The two databases that commands look after, the gateway's and the agent's: where each is, who may hold it, and how it
// is opened when nobody does. Nothing else of a server is needed for that.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { AgentData } from '../../agent/config.ts';
import { controlPath } from '../../agent/control/index.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { assetPath } from '../../kernel/assets.ts';
import { callControl } from '../../kernel/control.ts';
import { connect, withSettingName, type Database } from '../../kernel/data/database.ts';
import { createLog, type Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { createRedactor, type Redactor } from '../../kernel/secrets/secret.ts';

export interface DatabasePlace {
  /** Whose database it is. */
  surface: 'gateway' | 'agent';
  databaseUrl: string | undefined;
  databasePrepare: boolean | undefined;
  /** Folder of the embedded database, which counts where there is no address. */
  databasePath: string;
  /** Where a server that holds the folder can be asked. */
  socket: string;
  migrations: { schema: string; directory: string };
}

export function gatewayPlace({ databaseUrl, databasePrepare, databasePath }: GatewayConfig): DatabasePlace {
  return {
    surface: 'gateway',
    databaseUrl,
    databasePrepare,
    databasePath,
    socket: join(databasePath, 'control.sock'),
    migrations: { schema: 'gateway', directory: assetPath('src/gateway/migrations') },
  };
}

export function agentPlace({ dataDir, databaseUrl }: AgentData): DatabasePlace {
  return {
    surface: 'agent',
    databaseUrl,
    databasePrepare: undefined,
    databasePath: join(dataDir, 'agent.db'),
    socket: controlPath(dataDir),
    migrations: { schema: 'agent', directory: assetPath('src/agent/migrations') },
  };
}

/** Whether there is a database to open; a PostgreSQL is taken to be. */
export function hasDatabase({ databaseUrl, databasePath }: DatabasePlace): boolean {
  return databaseUrl !== undefined || existsSync(join(databasePath, 'pg'));
}

/** For commands about what is there already: one that mistakes the folder must not leave a new database in it. */
export function requireDatabase(place: DatabasePlace): void {
  if (hasDatabase(place)) return;
  const elsewhere = place.surface === 'gateway' ? '--database-path' : '--data-dir';
  throw new Error(
    `There is no database at ${place.databasePath}; the first start of the ${place.surface} makes one. Where it lies elsewhere, say so with ${elsewhere}.`,
  );
}

/** Asks the server that holds the embedded database, or undefined when none runs. */
export async function askServer(
  { databaseUrl, socket }: DatabasePlace,
  name: string,
  input: unknown,
): Promise<unknown> {
  if (databaseUrl !== undefined) return undefined;
  try {
    return await callControl(socket, name, input);
  } catch (error) {
    if (error instanceof Problem && error.code === 'not_ready') return undefined;
    throw error;
  }
}

/** Opens the database, which must be there, for the length of the work. */
export async function withDatabase<T>(
  place: DatabasePlace,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  requireDatabase(place);
  const { databaseUrl, databasePrepare, databasePath } = place;
  const { log } = commandLog();
  const opening = connect(
    databaseUrl === undefined
      ? { path: databasePath }
      : { url: databaseUrl, ...(databasePrepare === undefined ? {} : { prepare: databasePrepare }) },
    { log },
  );
  const database = await withSettingName(
    place.surface === 'agent' ? 'AGENT_DATABASE_URL' : 'DATABASE_URL',
    databaseUrl,
    opening,
  );
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

/** What is logged goes to standard error, and only when it matters. */
export function commandLog(): { log: Log; redactor: Redactor } {
  const redactor = createRedactor();
  return {
    redactor,
    log: createLog({ level: 'warn', redactor, write: (line) => void process.stderr.write(line) }),
  };
}
