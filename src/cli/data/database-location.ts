// The two databases that commands work on, the gateway's and the agent's: their location, the server that
// may hold them open, and how a command opens them itself.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { AgentData } from '../../agent/config.ts';
import { controlPath } from '../../agent/control.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { assetPath } from '../../kernel/assets.ts';
import { callControl } from '../../kernel/control.ts';
import { connect, withSettingName, type Database } from '../../kernel/data/database.ts';
import type { DatabaseFacts } from '../../kernel/data/database-facts.ts';
import { Problem } from '../../kernel/problem.ts';
import { stderrLog } from '../command-line/stderr-log.ts';

export interface DatabaseLocation {
  /** The server that owns the database. */
  surface: 'gateway' | 'agent';
  databaseUrl: string | undefined;
  databasePrepare: boolean | undefined;
  /** Folder of the embedded database; used without a `databaseUrl`. */
  databasePath: string;
  /** Control socket of a server that holds the embedded database. */
  socket: string;
  migrations: { schema: string; directory: string };
}

export function gatewayDatabase({
  databaseUrl,
  databasePrepare,
  databasePath,
}: GatewayConfig): DatabaseLocation {
  return {
    surface: 'gateway',
    databaseUrl,
    databasePrepare,
    databasePath,
    socket: join(databasePath, 'control.sock'),
    migrations: { schema: 'gateway', directory: assetPath('src/gateway/migrations') },
  };
}

export function agentDatabase({ dataDir, databaseUrl }: AgentData): DatabaseLocation {
  return {
    surface: 'agent',
    databaseUrl,
    databasePrepare: undefined,
    databasePath: join(dataDir, 'agent.db'),
    socket: controlPath(dataDir),
    migrations: { schema: 'agent', directory: assetPath('src/agent/migrations') },
  };
}

/** Whether a database exists; a PostgreSQL is assumed to exist. */
export function hasDatabase({ databaseUrl, databasePath }: DatabaseLocation): boolean {
  return databaseUrl !== undefined || existsSync(join(databasePath, 'pg'));
}

/** Throws without a database, so that a command with a mistyped folder does not create one. */
export function requireDatabase(location: DatabaseLocation): void {
  if (!hasDatabase(location)) throw new Error(missingDatabase(location));
}

/** The error message for a missing database, with advice. */
export function missingDatabase({ surface, databasePath }: DatabaseLocation): string {
  const option = surface === 'gateway' ? '--database-path' : '--data-dir';
  return `There is no database at ${databasePath}; the first start of the ${surface} creates one. If it is elsewhere, set ${option}.`;
}

/**
 * Sends the request to the server that holds the embedded database, over its control socket. Runs
 * `otherwise` when no server runs, and for a PostgreSQL, which a command can open while servers use it.
 */
export async function askServer<T>(
  { databaseUrl, socket }: Pick<DatabaseLocation, 'databaseUrl' | 'socket'>,
  request: { name: string; input: unknown },
  otherwise: () => Promise<T>,
): Promise<T> {
  if (databaseUrl === undefined) {
    try {
      return (await callControl(socket, request.name, request.input)) as T;
    } catch (error) {
      if (!(error instanceof Problem && error.code === 'not_ready')) throw error;
    }
  }
  return otherwise();
}

/**
 * The facts that a running server reports about its embedded database; undefined when no server runs,
 * and for a PostgreSQL.
 */
export function readRunningFacts<Facts extends DatabaseFacts>(
  location: DatabaseLocation,
): Promise<Facts | undefined> {
  return askServer<Facts | undefined>(location, { name: 'db.facts', input: null }, async () => undefined);
}

/** Opens the database, which must exist, and closes it after the work. */
export async function withDatabase<T>(
  location: DatabaseLocation,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  requireDatabase(location);
  const { databaseUrl, databasePrepare, databasePath } = location;
  const { log } = stderrLog();
  const connection = connect(
    databaseUrl === undefined
      ? { path: databasePath }
      : { url: databaseUrl, ...(databasePrepare === undefined ? {} : { prepare: databasePrepare }) },
    { log },
  );
  const setting = location.surface === 'agent' ? 'AGENT_DATABASE_URL' : 'DATABASE_URL';
  const database = await withSettingName(setting, databaseUrl, connection);
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}
