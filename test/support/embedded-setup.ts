// Creates, once a run, an empty and a migrated data folder, which each world of the embedded engine
// copies.
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { connect } from '../../src/kernel/data/database.ts';
import { databaseFolder } from './database-folder.ts';
import { makeQueue, migrateAll, silentLog } from './template.ts';

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(databaseFolder, 'townhall-embedded-'));
  const emptyFolder = join(folder, 'empty');
  const migratedFolder = join(folder, 'migrated');
  await (await connect({ path: emptyFolder }, { log: silentLog })).close();
  const database = await connect({ path: migratedFolder }, { log: silentLog });
  console.log(`[${project.name}] runs on ${database.version}`);
  await migrateAll(database);
  await makeQueue(database);
  await database.close();
  const worldsFolder = join(folder, 'worlds');
  await mkdir(worldsFolder);
  project.provide('databaseSource', { engine: 'embedded', emptyFolder, migratedFolder, worldsFolder });
  return () => rm(folder, { recursive: true, force: true });
}
