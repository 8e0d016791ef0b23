// Prepares, once a run, a PostgreSQL server (DATABASE_URL, or one from npm) with a migrated
// template database, which each world clones.
import { randomBytes } from 'node:crypto';
import type { TestProject } from 'vitest/node';
import { connect } from '../../src/kernel/data/database.ts';
import { startServer } from './postgres-server.ts';
import { databaseUrl, makeQueue, migrateAll, silentLog } from './template.ts';

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const externalUrl = process.env['DATABASE_URL'];
  const server = externalUrl ? { url: externalUrl, stop: async () => undefined } : await startServer();
  const migratedTemplate = `townhall_template_${randomBytes(4).toString('hex')}`;
  const admin = await connect({ url: server.url }, { log: silentLog });
  const origin = externalUrl ? 'the server of DATABASE_URL' : 'a server of its own';
  console.log(`[${project.name}] runs on ${origin}: ${admin.version}`);
  const session = admin.session({ deadlineMs: 60_000 });
  await session.sql.unsafe(`create database ${migratedTemplate}`);
  const template = await connect({ url: databaseUrl(server.url, migratedTemplate) }, { log: silentLog });
  try {
    await migrateAll(template);
    await makeQueue(template);
  } finally {
    await template.close();
  }
  project.provide('databaseSource', {
    engine: 'postgres',
    url: server.url,
    migratedTemplate,
    isOurs: !externalUrl,
  });
  return async () => {
    await session.sql.unsafe(`drop database ${migratedTemplate} with (force)`);
    await session.close();
    await admin.close();
    await server.stop();
  };
}
