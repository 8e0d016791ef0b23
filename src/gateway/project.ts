// Loads the services of a project and constructs the resources of their actions.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import contractDocument from '../contract/gateway/bundle.json' with { type: 'json' };
import { connect, migrate } from '../kernel/data/database.ts';
import type { Database } from '../kernel/data/database.ts';
import { containErrors } from '../kernel/operator-errors.ts';
import { directoryStorage } from '../kernel/storage/storage.ts';
import { isStartupKey } from './config.ts';
import type { GatewayConfig } from './config.ts';
import { reservedServiceIds } from './contract-paths.ts';
import { databaseOptions } from './database.ts';
import {
  loadProject,
  openResources,
  registerServices,
  services as createProjectServices,
} from './services/index.ts';
import type { ProjectService } from './services/index.ts';
import type { CreateGatewayOptions, Assembly } from './assembly.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Tenants } from './tenants.ts';

export async function loadProjectServices(
  options: Pick<CreateGatewayOptions, 'project' | 'services'>,
): Promise<ReadonlyMap<string, ProjectService>> {
  const embedded = (options.services ?? []).map((definition) => ({
    definition,
    source: 'the embedding program',
  }));
  const projectServices = options.project === undefined ? [] : await loadProject(options.project);
  return registerServices([...embedded, ...projectServices], registryRules());
}

export function registryRules() {
  return { reservedIds: reservedServiceIds(contractDocument.paths), isReservedKey: isStartupKey };
}

/**
 * The database of the project's actions. On PostgreSQL it has connections of its own, so that slow
 * queries of actions cannot exhaust the server's pool. The embedded engine has one session for both.
 */
export async function openProjectDatabase(
  config: GatewayConfig,
  { project, databaseLimits, log }: CreateGatewayOptions,
  database: Database,
): Promise<Database> {
  if (project?.resources.database === undefined) return database;
  const folder = join(project.directory, 'migrations');
  if (existsSync(folder)) await migrate(database, { schema: 'project', directory: folder, log });
  if (database.engine === 'embedded') return database;
  return connect(
    { ...databaseOptions(config), limits: { ...databaseLimits, maxConnections: projectConnections } },
    { log },
  );
}

const projectConnections = 5;

/** Constructs the project's services and the resources of their actions. */
export function openProject(
  { config, options, projectDatabase, projectServices, closers }: Assembly,
  { env, queue }: Infrastructure,
  { users, bureaus: bureauService, ledger }: Tenants,
) {
  if (projectServices.size > 0) closers.defer(containErrors());
  const resources = openResources({
    declared: options.project?.resources ?? {},
    database: projectDatabase,
    queue,
    openStorage: directoryStorage,
    projectServices,
    env: env.reader,
    log: options.log,
  });
  const services = createProjectServices({
    projectServices,
    resources,
    env: env.reader,
    findUser: (userId) => users.findUser(userId),
    findBureau: (bureauId) => bureauService.find(bureauId),
    ledger,
    clock: options.clock,
    actionMs: config.actionMs,
  });
  return { services, hasJobs: [...projectServices.values()].some(({ jobs }) => jobs.size > 0) };
}
