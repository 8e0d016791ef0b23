// Starts an installed PostgreSQL with its client programs (pg_dump, pg_restore), which the PostgreSQL
// from npm lacks, in a folder of its own. Null if none is installed.
import { execFile, spawn } from 'node:child_process';
import { existsSync, globSync } from 'node:fs';
import { chmod, chown, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir, userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { freePort } from './free-port.ts';

const run = promisify(execFile);
const startMs = 90_000;
const pollMs = 100;

export interface InstalledPostgres {
  /** URL of the database `postgres`, including the password. */
  url: string;
  binaries: string;
  stop(): Promise<void>;
}

export async function startInstalledPostgres(): Promise<InstalledPostgres | null> {
  const binaries = findBinaries();
  const isRoot = userInfo().uid === 0;
  // PostgreSQL refuses to run as root.
  const owner = isRoot ? await findPostgresUser() : undefined;
  if (binaries === undefined || (isRoot && owner === undefined)) return null;
  const folder = await mkdtemp(join(tmpdir(), 'townhall-installed-pg-'));
  await chmod(folder, 0o755);
  if (owner !== undefined) await chown(folder, owner.uid, owner.gid);
  const data = join(folder, 'data');
  // `trust` accepts any password. The one in the URL is there for tests that look for it in outputs.
  const cluster = ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C'];
  await run(join(binaries, 'initdb'), cluster, owner ?? {});
  const port = await freePort();
  const settings = [
    'listen_addresses=127.0.0.1',
    `unix_socket_directories=${folder}`,
    'shared_buffers=32MB',
  ].flatMap((setting) => ['-c', setting]);
  const server = spawn(join(binaries, 'postgres'), ['-D', data, '-p', String(port), ...settings], {
    ...owner,
    stdio: 'ignore',
  });
  const exit = new Promise((resolve) => server.once('close', resolve));
  await waitForServer(binaries, port);
  return {
    url: `postgres://postgres:CANARY-db-password@127.0.0.1:${port}/postgres`,
    binaries,
    async stop() {
      server.kill('SIGINT');
      await exit;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** The folder of the newest version that has the client programs. */
function findBinaries(): string | undefined {
  return globSync('/usr/lib/postgresql/*/bin/postgres')
    .map((path) => dirname(path))
    .filter((folder) => ['initdb', 'pg_dump', 'pg_restore'].every((name) => existsSync(join(folder, name))))
    .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))
    .at(-1);
}

async function waitForServer(binaries: string, port: number): Promise<void> {
  const deadlineMs = performance.now() + startMs;
  for (;;) {
    const isUp = await run(join(binaries, 'pg_isready'), ['-h', '127.0.0.1', '-p', String(port)]).then(
      () => true,
      () => false,
    );
    if (isUp) return;
    if (performance.now() > deadlineMs) throw new Error('The installed PostgreSQL does not start.');
    await sleep(pollMs);
  }
}

async function findPostgresUser(): Promise<{ uid: number; gid: number } | undefined> {
  const line = (await readFile('/etc/passwd', 'utf8'))
    .split('\n')
    .find((entry) => entry.startsWith('postgres:'));
  const [, , uid, gid] = line?.split(':') ?? [];
  return uid === undefined || gid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) };
}
