// The number of PostgreSQL connections of each worker. All workers together stay below 80 % of the
// server's limit, which leaves connections for another gateway, an agent and an operator's console.
import { connect } from '../../../kernel/data/database.ts';
import type { Log } from '../../../kernel/log.ts';
import { SettingError } from '../../../kernel/settings.ts';

// Besides its pool, a gateway has a connection for jobs, one for notifications and one for long
// statements.
const connectionsBesidePool = 3;
// As `gateway/project.ts` limits them.
const projectConnections = 5;
const mostConnections = 10;
const fewestConnections = 2;

export interface WorkerConnectionsOptions {
  workers: number;
  maxConnections: number;
  hasProject: boolean;
}

/** The size of each worker's pool. Throws a SettingError when there are too few connections. */
export function divideConnections({ workers, maxConnections, hasProject }: WorkerConnectionsOptions): number {
  const share = Math.floor((maxConnections * 0.8) / workers);
  const size = share - connectionsBesidePool - (hasProject ? projectConnections : 0);
  if (size >= fewestConnections) return Math.min(size, mostConnections);
  throw new SettingError(
    `WORKERS ${workers} is too many for a database with ${maxConnections} connections; raise max_connections, or start fewer workers.`,
  );
}

/** Reads the connection limit of the PostgreSQL at the address. */
export async function readMaxConnections(url: string, log: Log): Promise<number> {
  const database = await connect({ url, limits: { maxConnections: 1 } }, { log });
  try {
    const [row] = await database.sql<{ setting: string }[]>`
      select setting from pg_settings where name = 'max_connections'`;
    return Number(row?.setting);
  } finally {
    await database.close();
  }
}
