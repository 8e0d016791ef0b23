// Composition root of the gateway: constructs every service and passes each the
// dependencies that it declares.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import contractDocument from '../contract/gateway/bundle.json' with { type: 'json' };
import { scopeOperations } from '../contract/gateway/operations.gen.ts';
import { assetExists, assetPath } from '../kernel/assets.ts';
import { withTimeout } from '../kernel/async.ts';
import type { Clock } from '../kernel/clock.ts';
import { closeOnError, createClosers, type Closers } from '../kernel/closers.ts';
import { serveControl } from '../kernel/control.ts';
import { createChanges } from '../kernel/data/changes.ts';
import { createContract, type ContractOptions } from '../kernel/contract/contract.ts';
import { createIdempotency } from '../kernel/data/idempotency.ts';
import { createRateLimiter } from '../kernel/http/rate-limits.ts';
import { trustProxies } from '../kernel/http/proxies.ts';
import { createSharedRateLimiter } from '../kernel/http/shared-rate-limiter.ts';
import { connect, migrate } from '../kernel/data/database.ts';
import { requireDescriptors } from '../kernel/descriptors.ts';
import { databaseControls } from '../kernel/data/database-controls.ts';
import type { Database, DatabaseLimits } from '../kernel/data/database.ts';
import { createJobs } from '../kernel/data/jobs.ts';
import { makeSettingFolder } from '../kernel/folder.ts';
import type { Log } from '../kernel/log.ts';
import { Problem } from '../kernel/problem.ts';
import { parseToken } from '../kernel/secrets/secret.ts';
import type { RecentLines } from '../kernel/recent-lines.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';
import type { CloseOptions } from '../kernel/http/drain.ts';
import { createServer, type FilePages, type ListenAddress } from '../kernel/http/server.ts';
import { openTelemetry } from '../kernel/telemetry/telemetry.ts';
import { telemetrySecrets, telemetrySettings } from '../kernel/telemetry/telemetry-settings.ts';
import { containErrors } from '../kernel/operator-errors.ts';
import { showDatabase } from '../kernel/telemetry/database-metrics.ts';
import { createConcurrencyLimit, defaultConcurrency } from '../kernel/secrets/concurrency-limit.ts';
import { s3Settings } from '../kernel/data/s3-settings.ts';
import { s3Storage } from '../kernel/data/s3-storage.ts';
import { directoryStorage } from '../kernel/data/storage.ts';
import type { Vault } from '../kernel/secrets/vault.ts';
import { accounts, accountsStores, localPerson, mayLogInLocally } from './accounts/index.ts';
import type { IssuedToken } from './accounts/index.ts';
import { admin, adminStore } from './admin/index.ts';
import type { CredentialsSet, AdminAttemptLimits, Machines } from './admin/index.ts';
import {
  ai,
  alarmStore,
  alarmWindowMs,
  createLinks,
  defaultAlarmsToStop,
  jobPayments,
  jobsStore,
  mediaJobs,
  requireModelsFiles,
  createResponseSockets,
  maxSocketMessageBytes,
  storedResponses,
  storedResponsesStore,
} from './ai/index.ts';
import type { BreakerChannel, ProviderCheck } from './ai/index.ts';
import { audit, auditStore } from './audit/index.ts';
import { bureaus, bureausStore } from './bureaus/index.ts';
import { cities, citiesStore, type Deployment } from './cities/index.ts';
import { catalogFile, isStartupKey, journalFolder } from './config.ts';
import type { GatewayConfig } from './config.ts';
import { loginPaths, reservedServiceIds } from './contract-paths.ts';
import { createControlHandlers } from './control.ts';
import { databaseOptions, openGatewayDatabase } from './database.ts';
import {
  credits,
  creditsStore,
  journalDirectory,
  readLedgerView,
  settlementJournal,
  sqlAllotmentStore,
} from './credits/index.ts';
import type { LedgerTimes } from './credits/index.ts';
import { devicePage, devicePath } from './device-page/index.ts';
import { directory } from './directory.ts';
import { env as environment, envStore, requireMasterKeys, unlock } from './env/index.ts';
import type { RewrapResult } from './env/index.ts';
import { frontPage, type LocalEditionLinks } from './front-page.ts';
import { idempotencyCaller, identityLogFields, identityOfScheme, type Identity } from './identity.ts';
import { restrictToOwnBureau } from './machine-scope.ts';
import { loginPages } from './login-page/index.ts';
import { mail } from './mail.ts';
import { payments, paymentsStore } from './payments/index.ts';
import { createRequestLimiter } from './rate-limits.ts';
import { createCredentialRecheck } from './running-calls.ts';
import type { Service } from './service.ts';
import {
  loadProject,
  openResources,
  registerServices,
  services as createProjectServices,
} from './services/index.ts';
import type { Project, ProjectService, ServiceDefinition } from './services/index.ts';
import { createUpstreamObserver, observeLedger } from './telemetry/index.ts';
import { usage, usageStore } from './usage/index.ts';

/** The options of `createGateway`, from the process that runs it. */
export interface CreateGatewayOptions {
  /** Environment variables for declared keys, such as a provider's API key. */
  env: Readonly<Record<string, string | undefined>>;
  log: Log;
  redactor: Redactor;
  clock: Clock;
  /**
   * An open database that stays open; without it the gateway opens and closes that
   * of its settings. Meant for tests.
   */
  database?: Database;
  /** The database of the settings as it is being opened; the gateway closes it, also when its start fails. */
  openingDatabase?: Promise<Database> | undefined;
  /** Overrides of the default database timeouts, for slow machines. */
  databaseLimits?: Partial<DatabaseLimits>;
  /** The project of the declaration; its services are served beside the gateway's own. */
  project?: Project | undefined;
  /** Services of an embedding program, beside those of a project. */
  services?: readonly ServiceDefinition[];
  /** Called with a short description of each startup step. */
  progress?: (step: string) => void;
  /** The links of `/` in the local edition; called at each request. */
  localEdition?: () => LocalEditionLinks;
  /** The latest lines of the log, for `townhall logs`. */
  recentLines?: Pick<RecentLines, 'read'>;
  /** Builds `build/docs` at the first request of a page, where it is absent. */
  buildPortal?: (() => Promise<void>) | undefined;
  /** Version of the installation, for traces. */
  version?: string;
  /** Overrides of the ledger's intervals, for tests of crash recovery. */
  ledger?: Partial<LedgerTimes>;
  /** Overrides of the limits on password attempts of administrators, for measurements. */
  attemptLimits?: Partial<AdminAttemptLimits>;
  /** False in a worker: its primary process serves the metrics of all workers on one port. */
  servesMetrics?: boolean;
  /** Shares the circuit breakers of providers with the other workers. */
  breakerChannel?: BreakerChannel;
  /** Validates every response against the contract. Meant for tests: it costs time per response. */
  validateResponses?: boolean;
}

/** A gateway whose database is open and migrated. */
export interface Gateway {
  database: Database;
  /**
   * Listens at the configured address, or at `place`. May be called again for a
   * further place. Rejects when the address is taken.
   */
  listen(place?: ListenAddress): Promise<{ url: string; port: number }>;
  /** Refuses new requests, waits for running ones, then closes everything that `createGateway` opened. */
  close(options?: Pick<CloseOptions, 'noticeMs' | 'lingerMs'>): Promise<void>;
  /** Records a deployment, as `POST /v1/cities/upsert` does. */
  recordCity(deployment: Omit<Deployment, 'deployedAt'>): Promise<void>;
  /** The services of the project with the keys that they declare. */
  projectServices: readonly Pick<Service, 'name' | 'title' | 'env'>[];
  hasAdministrator(): Promise<boolean>;
  /** Whether callers on this machine can log in without credentials now. */
  hasLocalLogin(): boolean;
  setupAdministrator(adminId: string, password: string): Promise<CredentialsSet>;
  resetAdministrator(adminId: string, password: string): Promise<CredentialsSet>;
  /** The credentials of products' backends. */
  machines: Machines;
  /** Encrypts every stored value under the first of the master keys. */
  rewrapEnv(): Promise<RewrapResult>;
  /** Sends one test request to each configured model provider. */
  checkProviders(): Promise<ProviderCheck[]>;
  /**
   * Polls payment providers about pending payments now; resolves with the number of payments that changed.
   */
  pollPayments(): Promise<number>;
  /** A token for the local user of the local edition. */
  issueLocalToken(): Promise<IssuedToken>;
  /** The metrics in the format of Prometheus; empty where they are off. */
  readMetrics(): Promise<string>;
  /** The identity of a bearer token, or null. Throws 403 when its Bureau is not active. */
  identify(bearer: string): Promise<Identity | null>;
}

/**
 * Loads a project's services and validates them without serving them. Throws the
 * same errors as a start would.
 */
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
    // Before the migrations: a database whose master key is missing must stay as it is.
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
    });
  });
}

/**
 * Checks what a start needs before it writes anything: a project that cannot be served must not
 * change the installation. Returns the services of the project.
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

async function loadProjectServices(
  options: Pick<CreateGatewayOptions, 'project' | 'services'>,
): Promise<ReadonlyMap<string, ProjectService>> {
  const embedded = (options.services ?? []).map((definition) => ({
    definition,
    source: 'the embedding program',
  }));
  const projectServices = options.project === undefined ? [] : await loadProject(options.project);
  return registerServices([...embedded, ...projectServices], registryRules());
}

function registryRules() {
  return { reservedIds: reservedServiceIds(contractDocument.paths), isReservedKey: isStartupKey };
}

function migrations() {
  return { schema: 'gateway', directory: assetPath('src/gateway/migrations') };
}

/**
 * The database of the project's actions. On PostgreSQL it has connections of its own, so that slow
 * queries of actions cannot exhaust the server's pool. The embedded engine has one session for both.
 */
async function openProjectDatabase(
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

/** The base of every step of the assembly. */
interface Assembly {
  config: GatewayConfig;
  options: CreateGatewayOptions;
  database: Database;
  /** The same as `database`, or connections of its own. */
  projectDatabase: Database;
  projectServices: ReadonlyMap<string, ProjectService>;
  vault: Vault;
  /** Whether the database is embedded: one process on one machine, without replicas. */
  isLocalEdition: boolean;
  lifecycle: {
    phase: 'created' | 'serving' | 'draining';
    /** The address of the last `listen`. */
    url: string | null;
  };
  /** All services in the order of the directory; filled during the assembly, read at each call. */
  services: Pick<Service, 'name' | 'title' | 'env'>[];
  /** Registers the part's `close`, to run before those of the parts constructed earlier. Returns the part. */
  defer<Part extends { close?(): unknown }>(part: Part): Part;
  closers: Closers;
}

async function assemble(assembly: Assembly): Promise<Gateway> {
  const { config, database, services, isLocalEdition, closers } = assembly;
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
  if (isLocalEdition) {
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
        recentLines: assembly.options.recentLines,
      }),
      { log: assembly.options.log },
    );
    closers.defer(() => control.close());
  }
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

type Infrastructure = Awaited<ReturnType<typeof openInfrastructure>>;

/** Telemetry, audit log, settings and the queue: what the other services record to and read from. */
async function openInfrastructure({
  config,
  options,
  database,
  vault,
  services,
  lifecycle,
  isLocalEdition,
  defer,
}: Assembly) {
  const { clock, log, redactor } = options;
  const settings = telemetrySettings(config);
  for (const secret of telemetrySecrets(settings)) redactor.hold(secret);
  const telemetry = defer(
    await openTelemetry({
      settings,
      surface: 'gateway',
      version: options.version ?? 'unknown',
      hide: (text) => redactor.hide(text),
      clock,
      log,
    }),
  );
  const upstream = createUpstreamObserver({ telemetry, clock });
  showDatabase(telemetry.metrics, database);
  const changes = createChanges({ database, schema: 'gateway', clock, log });
  const auditLog = defer(audit({ store: auditStore(database), log, clock }));
  const maxBytesPerCaller = config.answersQuotaMb * 1024 * 1024;
  const idempotency = defer(
    createIdempotency({ database, schema: 'gateway', clock, log, maxBytesPerCaller }),
  );
  const envService = defer(
    await environment({
      store: envStore(database),
      vault,
      environment: options.env,
      isReserved: isStartupKey,
      declarers: () => services.map(({ name, env }) => ({ id: name, env })),
      audit: auditLog,
      changes,
      redactor,
      clock,
      log,
    }),
  );
  const mailer = defer(mail({ env: envService.reader }));
  const queue = createJobs(database, { schema: 'pgboss', log });
  const cityBaseUrl = () => envService.reader.get('TOWNHALL_CITY_BASE_URL') ?? config.cityBaseUrl;
  return {
    telemetry,
    upstream,
    changes,
    audit: auditLog,
    idempotency,
    env: envService,
    mail: mailer,
    queue,
    cityBaseUrl,
    /**
     * The address for links; null until it is configured or, in the local edition, until the server listens.
     */
    publicUrl: () => cityBaseUrl() ?? (isLocalEdition ? lifecycle.url : null),
    hasLocalLogin: () => mayLogInLocally({ ...config, cityBaseUrl: cityBaseUrl(), engine: database.engine }),
  };
}

function ledgerControls(database: Database) {
  const allotments = sqlAllotmentStore(database);
  return {
    show: (userId: string) => readLedgerView({ credits: creditsStore(database), allotments }, userId),
    generation: () => allotments.generation(),
  };
}

type Tenants = ReturnType<typeof openTenants>;

/** Bureaus, their users, administrators, and the credits of users. */
function openTenants(assembly: Assembly, infrastructure: Infrastructure) {
  const { options, database, defer } = assembly;
  const { upstream, changes, audit: auditLog, cityBaseUrl } = infrastructure;
  const { log } = options;
  const bureauService = bureaus({
    store: bureausStore(database),
    audit: auditLog,
    changes,
    findTokenOwner,
    log,
  });
  const cityService = cities({ store: citiesStore(database), audit: auditLog, baseUrl: cityBaseUrl });
  const stores = accountsStores(database, bureauService);
  const users = stores.accounts;
  const alarms = alarmStore(database, changes);
  const administrators = adminStore(database);
  const concurrencyLimit = createConcurrencyLimit(defaultConcurrency);
  const { creditsService, usageService } = openCredits(assembly, infrastructure, users);
  const accountService = openAccounts(assembly, infrastructure, {
    stores,
    bureaus: bureauService,
    credits: creditsService,
    alarms,
    administrators,
    concurrencyLimit,
  });
  // Revoked tokens, blocked users and paused Bureaus keep no credits from others.
  changes.onChange(() => {
    creditsService
      .closeEndedTokens()
      .catch((error: unknown) => log.warn({ err: error }, 'idle credits of ended tokens stay for a while'));
  });
  const adminService = defer(
    admin({
      scopeOperations,
      store: administrators,
      tokens: users,
      concurrencyLimit,
      attemptLimits: options.attemptLimits ?? {},
      audit: auditLog,
      changes,
      bureaus: bureauService,
      log,
    }),
  );

  async function findTokenOwner(token: string) {
    const identity = await accountService.identify(token);
    const expiresAt = identity && (await accountService.tokenEnd(identity.tokenId));
    return identity && expiresAt ? { ...identity, expiresAt } : null;
  }

  return {
    bureaus: bureauService,
    cities: cityService,
    users,
    alarms,
    credits: creditsService,
    ledger: observeLedger(creditsService.ledger, upstream.note),
    usage: usageService,
    accounts: accountService,
    admin: adminService,
    async identify(bearer: string): Promise<Identity | null> {
      // The service checks the form of a user's token when it is not in its cache.
      if (bearer.startsWith('th_usr_')) return accountService.identify(bearer);
      return parseToken(bearer) === 'adm' ? adminService.identify(bearer) : null;
    },
  };
}

/** The accounts of users: their logins, tokens and API keys. */
function openAccounts(
  { options, defer }: Assembly,
  { changes, audit: auditLog, env, mail: mailer, hasLocalLogin, publicUrl }: Infrastructure,
  parts: {
    stores: ReturnType<typeof accountsStores>;
    bureaus: ReturnType<typeof bureaus>;
    credits: ReturnType<typeof credits>;
    alarms: ReturnType<typeof alarmStore>;
    administrators: ReturnType<typeof adminStore>;
    concurrencyLimit: ReturnType<typeof createConcurrencyLimit>;
  },
) {
  const { stores, alarms, administrators, concurrencyLimit } = parts;
  return defer(
    accounts({
      concurrencyLimit,
      stores,
      bureaus: parts.bureaus,
      log: options.log,
      clock: options.clock,
      fetch: (input, init) => fetch(input, init),
      env: env.reader,
      mail: mailer,
      audit: auditLog,
      changes,
      credits: parts.credits,
      stops: {
        endsAt: (userIds) =>
          alarms.stopEnds(userIds, { windowMs: alarmWindowMs, alarms: defaultAlarmsToStop }),
        lift: (tx, userId) => alarms.remove(tx, userId),
      },
      machines: { lockLive: (tx, credentialId) => administrators.lockLiveMachine(tx, credentialId) },
      localLogin: hasLocalLogin,
      baseUrl: publicUrl,
    }),
  );
}

/** The ledger of credits, and the usage that it charges. */
function openCredits(
  { config, options, database, isLocalEdition, defer }: Assembly,
  { telemetry, audit: auditLog }: Infrastructure,
  users: ReturnType<typeof accountsStores>['accounts'],
) {
  const { log, clock } = options;
  const journalPath = journalFolder(config);
  const usageRecords = usageStore(database);
  const creditsService = defer(
    credits({
      store: creditsStore(database),
      allotmentStore: sqlAllotmentStore(database),
      journal: settlementJournal(journalPath),
      journals: config.journal === 'on' ? journalDirectory({ path: journalPath, log, clock }) : null,
      users,
      audit: auditLog,
      usage: usageRecords,
      log,
      clock,
      metrics: telemetry.metrics,
      isAlone: isLocalEdition,
      startingCredits: BigInt(config.startingCredits ?? (isLocalEdition ? 1_000_000 : 0)),
      retentionDays: config.usageDays,
      times: options.ledger ?? {},
    }),
  );
  const usageService = defer(
    usage({
      store: usageRecords,
      log,
      clock,
      retentionDays: config.usageDays,
      reportCharges: () => creditsService.reportEverywhere(),
    }),
  );
  return { creditsService, usageService };
}

/** Model calls, and the jobs that create images and videos. */
async function openModels(
  { config, options, database, vault, lifecycle, isLocalEdition, closers, defer }: Assembly,
  { telemetry, upstream, changes, env, queue, cityBaseUrl }: Infrastructure,
  { ledger, alarms }: Pick<Tenants, 'ledger' | 'alarms'>,
) {
  const { log, clock, redactor, env: variables } = options;
  const bucket = s3Settings('', config);
  if (bucket !== undefined) redactor.hold(bucket.secret);
  const jobs = mediaJobs({
    store: jobsStore(database),
    queue,
    storage:
      bucket === undefined
        ? directoryStorage(
            config.storagePath ?? (isLocalEdition ? join(config.databasePath, 'media') : './data/media'),
          )
        : s3Storage({ ...bucket, clock }),
    payments: jobPayments({ ledger }),
    isAlone: isLocalEdition,
    clock,
    log,
    settings: { videoDeadlineMs: config.videoMs, maxMediaBytesPerOwner: config.mediaQuotaMb * 1024 * 1024 },
  });
  const links = createLinks({
    keys: vault.derive('media links'),
    baseUrl: () => (cityBaseUrl() ?? lifecycle.url ?? '').replace(/\/+$/, ''),
    linkSeconds: config.mediaLinkSeconds,
  });
  const responses = defer(
    storedResponses({
      store: storedResponsesStore(database),
      vault,
      clock,
      log,
      keepHours: config.responsesKeepHours,
      maxBytesPerOwner: config.responsesQuotaMb * 1024 * 1024,
      isAlone: isLocalEdition,
    }),
  );
  const aiService = defer(
    await ai({
      jobs,
      links,
      storedResponses: responses,
      rejoinMs: config.responsesRejoinMs,
      ledger,
      alarms,
      env: env.reader,
      catalogFile: catalogFile(config),
      modelsFile: config.modelsFile,
      guideDirectory: assetPath('docs/guides'),
      localModels: config.localModels === 'on',
      timeouts: config,
      videoLimits: { pollMs: config.videoPollMs, maxBytes: config.videoMaxBytes },
      heartbeatMs: config.heartbeatMs,
      proxies: {
        https: variables['HTTPS_PROXY'] ?? variables['https_proxy'],
        http: variables['HTTP_PROXY'] ?? variables['http_proxy'],
        none: variables['NO_PROXY'] ?? variables['no_proxy'],
      },
      hide: (text) => options.redactor.hide(text),
      watch: upstream.observe,
      breakerChannel: options.breakerChannel,
      traceparent: () => telemetry.traces.traceparent(),
      requestId: () => telemetry.request()?.requestId,
      log,
      clock,
    }),
  );
  upstream.showBreakers(() => aiService.breakers());
  upstream.showKeys(() => aiService.sharedKeys());
  upstream.showUsageAlarms(() => aiService.usageAlarms());
  await aiService.refreshAlarms();
  changes.onChange(() => void aiService.refreshAlarms());
  // Aborted calls are still charged: wait for them while the ledger is open. Jobs
  // stop first, as they make calls.
  closers.defer(() => aiService.settled());
  closers.defer(() => aiService.stopRuns());
  closers.defer(() => jobs.close());
  return { ai: aiService, jobs, responses };
}

function openPayments(
  { options, database, isLocalEdition, defer }: Assembly,
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
      fetch: (input, init) => fetch(input, init),
      // The queue lets one replica poll at a time. The local edition has one process
      // and need not start the queue.
      queue: isLocalEdition ? null : queue,
      clock: options.clock,
      log: options.log,
    }),
  );
}

/** The services that a project brings, and the resources of their actions. */
function openProject(
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

/**
 * Checks what requests depend on: database, journal, file descriptors and job
 * queues. Rejects while one is missing.
 */
function createReadiness(
  { database, lifecycle }: Assembly,
  { queue }: Infrastructure,
  {
    jobs,
    project,
    credits: creditsService,
  }: {
    jobs: { ready(): Promise<void> };
    project: { hasJobs: boolean };
    credits: { requireJournal(): void };
  },
): () => Promise<void> {
  return async () => {
    if (lifecycle.phase === 'draining')
      throw new Problem('unavailable', 'draining', 'This server is stopping.', {
        headers: { 'retry-after': '1' },
      });
    creditsService.requireJournal();
    await database.ping();
    await withTimeout(
      () => Promise.all([requireDescriptors(), jobs.ready(), project.hasJobs ? queue.ready() : undefined]),
      {
        ms: readyMs,
        error: () =>
          new Problem('unavailable', 'not_ready', 'The server is still starting.', {
            headers: { 'retry-after': '1' },
          }),
      },
    );
  };
}

// Readiness probes usually give up after a few seconds; answer before that.
const readyMs = 2_000;

/** The contract with its handlers, and the HTTP server in front of it. */
function openHttp(
  { config, options, database, isLocalEdition, lifecycle, closers }: Assembly,
  { telemetry, changes, idempotency }: Infrastructure,
  { tenants, handlers }: { tenants: Tenants; handlers: ContractOptions<Identity>['handlers'] },
) {
  const { log, clock } = options;
  const { identify, bureaus: bureauService } = tenants;
  const contract = createContract<Identity>({
    definition: contractDocument,
    handlers: restrictToOwnBureau(handlers),
    identities: identityOfScheme,
    identify,
    guest: { kind: 'guest' },
    admit: createRequestLimiter({
      // Replicas count together in the database; a single process counts in memory.
      limiter: isLocalEdition
        ? createRateLimiter({ clock })
        : createSharedRateLimiter({ database, schema: 'gateway', clock, log }),
      limits: {
        user: config.rateUser,
        guest: config.rateGuest,
        admin: config.rateAdmin,
        login: config.rateLogin,
      },
      requestsPerMinute: (bureauId) => bureauService.requestsPerMinute(bureauId),
    }),
    idempotency,
    callerOf: idempotencyCaller,
    validateResponses: options.validateResponses ?? false,
  });
  const isUnlimited = config.rateUser === null || config.rateGuest === null;
  const pages = portalPages(options.buildPortal);
  const server = createServer({
    contract,
    surface: 'gateway',
    pages,
    frontPage: () =>
      frontPage({
        version: contractDocument.info.version,
        url: lifecycle.url ?? '',
        hasPortal: pages.length > 0,
        local: options.localEdition?.(),
      }),
    fixedPages: new Map([[devicePath, devicePage], ...loginPages]),
    log,
    clock,
    observer: telemetry.observer,
    nameIdentity: (identity) => identityLogFields(identity as Identity),
    callerOf: (identity) => idempotencyCaller(identity as Identity),
    cors: {
      origins: config.corsOrigins,
      scoped: {
        paths: loginPaths(contractDocument.paths),
        allows: (origin) => bureauService.hasLoginOrigin(origin),
      },
    },
    proxies: trustProxies(config.trustedProxies),
    ...(isUnlimited ? { limits: { maxConnections: Infinity, maxPerAddress: Infinity } } : {}),
    timeouts: {
      headersMs: config.headersMs,
      requestMs: config.requestMs,
      stalledMs: config.stalledMs,
      heartbeatMs: config.heartbeatMs,
    },
    sockets: [
      {
        paths: ['/v1/responses', '/v1/ai/responses'],
        maxMessageBytes: maxSocketMessageBytes,
        open: createResponseSockets(clock),
      },
    ],
  });
  const recheckCredentials = createCredentialRecheck({
    running: () => server.runningRequests(),
    identify,
    log,
  });
  changes.onChange(() => {
    recheckCredentials();
    bureauService
      .refresh()
      .catch((error: unknown) => log.warn({ err: error }, 'the limits of the Bureaus could not be read'));
  });
  closers.defer(() => changes.stop());
  return { server };
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
  if (isLocalEdition) await bureauService.ensureLocal(`http://127.0.0.1:${config.port || 43127}`);
}

/**
 * `listen` starts the background work with the first address; `close` drains the
 * server and then closes every part.
 */
function openLifecycle(
  { config, options, lifecycle, closers }: Assembly,
  parts: {
    infrastructure: Infrastructure;
    tenants: Tenants;
    models: { jobs: { start(): void }; responses: { start(): void } };
    project: { hasJobs: boolean };
    http: ReturnType<typeof openHttp>;
  },
): Pick<Gateway, 'listen' | 'close'> {
  const { infrastructure, tenants, models, project, http } = parts;
  const { telemetry, queue, changes } = infrastructure;

  return {
    async listen(place = { host: config.host, port: config.port }) {
      if (options.servesMetrics === false) options.log.debug({}, 'the primary process serves the metrics');
      else if ('host' in place) await telemetry.listen();
      // With a socket from a supervisor, the previous process may still hold the port of the metrics.
      else if ('fd' in place) void listenWithRetries(() => telemetry.listen(), { lifecycle, options });
      // Only a serving process maintains the ledger; commands that read the data
      // must not settle holds of others.
      if (lifecycle.phase === 'created') {
        await tenants.credits.start();
        tenants.usage.start();
      }
      const address = await http.server.listen(place);
      lifecycle.url = address.url;
      if (lifecycle.phase !== 'created') return address;
      lifecycle.phase = 'serving';
      changes.start();
      models.jobs.start();
      models.responses.start();
      // Enqueueing within a project's transaction cannot wait for the queue to start.
      if (project.hasJobs) queue.start();
      if (infrastructure.hasLocalLogin()) options.log.info({}, localLoginNotice);
      return address;
    },
    async close({ noticeMs = 0, lingerMs = 0 } = {}) {
      lifecycle.phase = 'draining';
      // Concurrently, so that both share one drain period.
      const results = await Promise.allSettled([
        http.server.close({ drainMs: config.drainMs, noticeMs, lingerMs }),
        queue.stop({ timeoutMs: config.drainMs }),
      ]);
      await closers.close();
      for (const result of results) if (result.status === 'rejected') throw result.reason;
    },
  };
}

/** Warns the operator while callers on this machine can log in without credentials. */
export const localLoginNotice =
  'The local login is open: every caller on this machine can log in without credentials, also through a proxy on it. Before you put a proxy in front, set TOWNHALL_CITY_BASE_URL or TRUSTED_PROXIES, or LOCAL_LOGIN=false.';

async function listenWithRetries(
  listen: () => Promise<unknown>,
  {
    lifecycle,
    options,
  }: { lifecycle: Assembly['lifecycle']; options: { clock: Pick<Clock, 'sleep'>; log: Log } },
): Promise<void> {
  for (let attempt = 1; lifecycle.phase !== 'draining'; attempt += 1) {
    try {
      await listen();
      return;
    } catch (error) {
      if (attempt === 1) options.log.warn({ err: error }, 'the metrics cannot be served yet');
      await options.clock.sleep(metricsRetryMs);
    }
  }
}

const metricsRetryMs = 500;

// Without the portal and a way to build it the server has no /docs.
function portalPages(build: CreateGatewayOptions['buildPortal']): FilePages[] {
  const directory = assetPath('build/docs');
  return build !== undefined || assetExists(directory) ? [{ prefix: '/docs', directory, build }] : [];
}
