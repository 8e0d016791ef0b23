// Starts an installed PostgreSQL that has its client programs (pg_dump, pg_restore), in a folder of
// its own; the one from npm lacks them. Null without an installation.
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
  const candidates = globSync('/usr/lib/postgresql/*/bin/postgres').map((path) => dirname(path));
  const binaries = candidates
    .filter((folder) => ['initdb', 'pg_dump', 'pg_restore'].every((name) => existsSync(join(folder, name))))
    .sort()
    .at(-1);
  const owner = userInfo().uid === 0 ? await findPostgresUser() : undefined;
  if (binaries === undefined || (userInfo().uid === 0 && owner === undefined)) return null;
  const folder = await mkdtemp(join(tmpdir(), 'townhall-installed-pg-'));
  await chmod(folder, 0o755);
  const data = join(folder, 'data');
  if (owner !== undefined) await chown(folder, owner.uid, owner.gid);
  const account = owner ?? {};
  await run(
    join(binaries, 'initdb'),
    ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C'],
    account,
  );
  const port = await freePort();
  const server = spawn(
    join(binaries, 'postgres'),
    [
      '-D',
      data,
      '-p',
      String(port),
      '-c',
      'listen_addresses=127.0.0.1',
      '-c',
      `unix_socket_directories=${folder}`,
      '-c',
      'shared_buffers=32MB',
    ],
    { ...account, stdio: 'ignore' },
  );
  const exit = new Promise((resolve) => server.once('close', resolve));
  const deadlineMs = performance.now() + startMs;
  for (;;) {
    const isUp = await run(join(binaries, 'pg_isready'), ['-h', '127.0.0.1', '-p', String(port)]).then(
      () => true,
      () => false,
    );
    if (isUp) break;
    if (performance.now() > deadlineMs) throw new Error('The installed PostgreSQL does not start.');
    await sleep(pollMs);
  }
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

async function findPostgresUser(): Promise<{ uid: number; gid: number } | undefined> {
  const line = (await readFile('/etc/passwd', 'utf8'))
    .split('\n')
    .find((entry) => entry.startsWith('postgres:'));
  const [, , uid, gid] = line?.split(':') ?? [];
  return uid === undefined || gid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) };
}
