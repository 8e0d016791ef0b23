// Composition root of the gateway: constructs every service and passes each the dependencies that it
// declares. The steps of the assembly are in the files beside it.
import { join, resolve } from 'node:path';
import contractDocument from '../contract/gateway/bundle.json' with { type: 'json' };
import { assetPath } from '../kernel/assets.ts';
import { closeOnError, createClosers } from '../kernel/closers.ts';
import type { Closers } from '../kernel/closers.ts';
import { serveControl } from '../kernel/control.ts';
import { migrate } from '../kernel/data/database.ts';
import { databaseControls } from '../kernel/data/database-controls.ts';
import type { Database } from '../kernel/data/database.ts';
import { makeSettingFolder } from '../kernel/folder.ts';
import { Problem } from '../kernel/problem.ts';
import { localPerson } from './accounts/index.ts';
import { requireModelsFiles } from './ai/index.ts';
import { catalogFile, gatewaySettings } from './config.ts';
import type { GatewayConfig } from './config.ts';
import { createControlHandlers, type ServerDescription } from './control.ts';
import { openGatewayDatabase } from './database.ts';
import { creditsStore, readLedgerView, sqlAllotmentStore } from './credits/index.ts';
import { directory } from './directory.ts';
import { envStore, requireMasterKeys, unlock } from './env/index.ts';
import { payments, paymentsStore } from './payments/index.ts';
import { loadProject, registerServices } from './services/index.ts';
import type { Project, ProjectService } from './services/index.ts';
import { registryRules, openProjectDatabase, loadProjectServices, openProject } from './project.ts';
import type { CreateGatewayOptions, Gateway, Assembly } from './assembly.ts';
import { openInfrastructure } from './infrastructure.ts';
import { openTenants } from './tenants.ts';
import { openModels } from './models.ts';
import { createReadiness, openHttp } from './http-server.ts';
import { openLifecycle } from './lifecycle.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Tenants } from './tenants.ts';
export type { CreateGatewayOptions, Gateway } from './assembly.ts';
export { localLoginNotice } from './lifecycle.ts';

/** Loads and validates a project's services without serving them. Throws the same errors as a start would. */
export async function inspectProject(
  project: Project,
): Promise<{ id: string; name: string; env: readonly string[] }[]> {
  const services = registerServices(await loadProject(project), registryRules());
  return [...services.values()].map(({ id, name, env }) => ({ id, name, env: env.map(({ key }) => key) }));
}

/** Opens and migrates the database, then constructs the services. Closes what it opened when it throws. */
export async function createGateway(config: GatewayConfig, options: CreateGatewayOptions): Promise<Gateway> {
  const { log, redactor, progress = () => {} } = options;
  const isEmbedded = config.databaseUrl === undefined;
  const closers = createClosers();
  const { openingDatabase } = options;
  openingDatabase?.catch(() => {});
  closers.defer(async () => (await openingDatabase?.catch(() => undefined))?.close());
  return closeOnError(closers, async () => {
    const projectServices = await checkSettings(config, options);
    progress(isEmbedded ? 'opening the embedded database' : 'connecting to PostgreSQL');
    const database = options.database ?? (await openDatabase(config, options, closers));
    // Unlock before the migrations: a database whose master key is missing must stay unchanged.
    const vault = await unlock({
      settings: config,
      store: envStore(database),
      dataFolder: isEmbedded ? config.databasePath : null,
      redactor,
      log,
    });
    progress('bringing the database up to date');
    await migrate(database, { ...migrations(), log });
    progress('starting the services');
    const projectDatabase = await openProjectDatabase(config, options, database);
    if (projectDatabase !== database) closers.defer(() => projectDatabase.close());
    return assemble({
      config,
      options,
      database,
      projectDatabase,
      projectServices,
      vault,
      isLocalEdition: database.engine === 'embedded',
      lifecycle: { phase: 'created', url: null },
      services: [],
      defer: (part) => {
        closers.defer(() => part.close?.());
        return part;
      },
      closers,
      fetch: (input, init) => fetch(input, init),
    });
  });
}

/**
 * Checks everything that a start needs before anything is written: a start that fails must not change the
 * installation. Returns the services of the project.
 */
async function checkSettings(
  config: GatewayConfig,
  options: CreateGatewayOptions,
): Promise<ReadonlyMap<string, ProjectService>> {
  const { redactor, clock } = options;
  const isEmbedded = config.databaseUrl === undefined;
  const projectServices = await loadProjectServices(options);
  await requireMasterKeys(config, { isEmbedded, redactor });
  await requireModelsFiles({
    catalogFile: catalogFile(config),
    modelsFile: config.modelsFile,
    clock,
    guideDirectory: assetPath('docs/guides'),
  });
  if (isEmbedded) await makeSettingFolder('DATABASE_PATH', config.databasePath);
  return projectServices;
}

async function openDatabase(
  config: GatewayConfig,
  { openingDatabase, databaseLimits, log }: CreateGatewayOptions,
  closers: Closers,
): Promise<Database> {
  if (openingDatabase !== undefined) return openingDatabase;
  const database = await openGatewayDatabase(config, { log, limits: databaseLimits });
  closers.defer(() => database.close());
  return database;
}

function migrations() {
  return { schema: 'gateway', directory: assetPath('src/gateway/migrations') };
}

async function assemble(assembly: Assembly): Promise<Gateway> {
  const { database, services, isLocalEdition } = assembly;
  const infrastructure = await openInfrastructure(assembly);
  const tenants = openTenants(assembly, infrastructure);
  const models = await openModels(assembly, infrastructure, tenants);
  const paymentService = openPayments(assembly, infrastructure, tenants);
  const project = openProject(assembly, infrastructure, tenants);
  const slices = [
    infrastructure.env,
    tenants.cities,
    tenants.bureaus,
    tenants.accounts,
    models.ai,
    tenants.admin,
    tenants.credits,
    tenants.usage,
    infrastructure.audit,
    paymentService,
  ];
  services.push(...slices, ...project.services.listed);
  const readiness = createReadiness(assembly, infrastructure, {
    jobs: models.jobs,
    project,
    credits: tenants.credits,
  });
  const directoryService = directory({
    services: () => services.map(({ name, title, env }) => ({ id: name, title, env })),
    ready: readiness,
    contract: contractDocument,
  });
  const http = openHttp(assembly, infrastructure, {
    tenants,
    handlers: Object.fromEntries(
      [...slices, project.services, directoryService].flatMap(({ handlers }) => Object.entries(handlers)),
    ),
  });
  await createFirstRecords(assembly, tenants);
  if (isLocalEdition) await openControl(assembly, { infrastructure, tenants, models });
  infrastructure.env.start();
  infrastructure.audit.start();
  return {
    ...openLifecycle(assembly, { infrastructure, tenants, models, project, http }),
    database,
    recordCity: (deployment) => tenants.cities.record(deployment),
    projectServices: project.services.listed,
    hasAdministrator: () => tenants.admin.exists(),
    hasLocalLogin: infrastructure.hasLocalLogin,
    setupAdministrator: (adminId, password) => tenants.admin.setup(adminId, password),
    resetAdministrator: (adminId, password) => tenants.admin.reset(adminId, password),
    machines: tenants.admin.machines,
    rewrapEnv: () => infrastructure.env.rewrap(),
    checkProviders: () => models.ai.checkProviders(),
    pollPayments: () => paymentService.poll(),
    issueLocalToken: () => tenants.accounts.issueUserToken({ bureauId: 'local', person: localPerson }),
    readMetrics: () => infrastructure.telemetry.readMetrics(),
    identify: tenants.identify,
  };
}

/** Opens the control socket, which commands on this machine use. */
async function openControl(
  assembly: Assembly,
  {
    infrastructure,
    tenants,
    models,
  }: {
    infrastructure: Infrastructure;
    tenants: Tenants;
    models: Awaited<ReturnType<typeof openModels>>;
  },
): Promise<void> {
  const { config, options, database, closers } = assembly;
  const control = await serveControl(
    join(config.databasePath, 'control.sock'),
    createControlHandlers({
      admin: tenants.admin,
      audit: infrastructure.audit,
      credits: tenants.credits,
      ledger: ledgerControls(database),
      env: infrastructure.env,
      ai: models.ai,
      database: databaseControls(database, migrations()),
      listEnv: () => envStore(database).list(),
      recentLines: options.recentLines,
      describeServer: () => describeServer(assembly),
    }),
    { log: options.log },
  );
  closers.defer(() => control.close());
}

function describeServer({ config, options, lifecycle }: Assembly): ServerDescription {
  return {
    gateway: lifecycle.url,
    agent: options.localEdition?.().agentUrl ?? null,
    modelsFile: config.modelsFile === undefined ? null : resolve(config.modelsFile),
    variables: Object.keys(options.env).filter((name) => (options.env[name] ?? '') !== ''),
  };
}

function ledgerControls(database: Database) {
  const allotments = sqlAllotmentStore(database);
  return {
    show: (userId: string) => readLedgerView({ credits: creditsStore(database), allotments }, userId),
    generation: () => allotments.generation(),
  };
}

function openPayments(
  { options, fetch, database, isLocalEdition, defer }: Assembly,
  { audit: auditLog, env, queue, publicUrl }: Infrastructure,
  { users, bureaus: bureauService, credits: creditsService }: Tenants,
) {
  return defer(
    payments({
      store: paymentsStore(database),
      balances: creditsService.balances,
      users,
      audit: auditLog,
      bureaus: bureauService,
      env: env.reader,
      baseUrl: publicUrl,
      fetch,
      // With the queue, only one replica polls at a time. The local edition has only one process and does
      // not need the queue.
      queue: isLocalEdition ? null : queue,
      clock: options.clock,
      log: options.log,
    }),
  );
}

/** Creates the administrator of the settings and the Bureau of the local edition, unless they exist. */
async function createFirstRecords(
  { config, options, isLocalEdition }: Assembly,
  { admin: adminService, bureaus: bureauService }: Tenants,
): Promise<void> {
  if (config.adminId !== undefined && config.adminPassword !== undefined) {
    options.redactor.hold(config.adminPassword);
    // Both settings are ignored once there is an administrator. A conflict means
    // that another replica, starting at the same time, has just created it.
    if (!(await adminService.exists())) {
      await adminService.setup(config.adminId, config.adminPassword).catch((error: unknown) => {
        if (!(error instanceof Problem && error.kind === 'conflict')) throw error;
      });
    }
  }
  // The port 0 is replaced by a free port only when the server listens, so the default port stands in for it.
  if (isLocalEdition)
    await bureauService.ensureLocal(`http://127.0.0.1:${config.port || gatewaySettings.port.fallback}`);
}
