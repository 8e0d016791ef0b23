// The gateway's composition root: the one list of its services and the one place where values cross between them.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import contractDocument from '../contract/gateway/bundle.json' with { type: 'json' };
import { assetExists, assetPath } from '../kernel/assets.ts';
import type { Clock } from '../kernel/clock.ts';
import { closedOnError, createClosers, type Closers } from '../kernel/closers.ts';
import { serveControl } from '../kernel/control.ts';
import type { ControlHandler } from '../kernel/control.ts';
import { createChanges } from '../kernel/data/changes.ts';
import { createContract } from '../kernel/contract/contract.ts';
import { createIdempotency } from '../kernel/data/idempotency.ts';
import { createRateLimiter } from '../kernel/http/rate-limits.ts';
import { trustProxies } from '../kernel/http/proxies.ts';
import { createSharedRateLimiter } from '../kernel/http/shared-rate-limiter.ts';
import { connect, migrate, withSettingName } from '../kernel/data/database.ts';
import { requireDescriptors } from '../kernel/descriptors.ts';
import { databaseControls } from '../kernel/data/database-controls.ts';
import type { ConnectOptions, Database, DatabaseLimits } from '../kernel/data/database.ts';
import { createJobs } from '../kernel/data/jobs.ts';
import { makeSettingFolder } from '../kernel/folder.ts';
import type { Log } from '../kernel/log.ts';
import { Problem } from '../kernel/problem.ts';
import { parseToken } from '../kernel/secrets/secret.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';
import type { CloseOptions } from '../kernel/http/drain.ts';
import { createServer, type ListenAddress } from '../kernel/http/server.ts';
import { openTelemetry } from '../kernel/telemetry/telemetry.ts';
import { telemetrySecrets, telemetrySettings } from '../kernel/telemetry/telemetry-settings.ts';
import { showDatabase } from '../kernel/telemetry/database-metrics.ts';
import { createConcurrencyLimit, defaultConcurrency } from '../kernel/secrets/concurrency-limit.ts';
import { directoryStorage } from '../kernel/data/storage.ts';
import type { Vault } from '../kernel/secrets/vault.ts';
import { callerOf, createAdmission, withinOwnBureau } from './rate-limits.ts';
import { accounts, accountsStores, localPerson, mayLogInLocally } from './accounts/index.ts';
import type { IssuedToken } from './accounts/index.ts';
import { admin, adminStore } from './admin/index.ts';
import type { Admin, CredentialsSet, GuessBudgets, MachineRequest, Machines } from './admin/index.ts';
import { ai, createLinks, jobPayments, jobsStore, mediaJobs, requireModelsFile } from './ai/index.ts';
import type { ProviderCheck } from './ai/index.ts';
import { audit, auditStore } from './audit/index.ts';
import { bureaus, bureausStore } from './bureaus/index.ts';
import { cities, citiesStore, type Deployment } from './cities/index.ts';
import { isStartupKey } from './config.ts';
import type { GatewayConfig } from './config.ts';
import { credits, creditsStore, directoryJournal } from './credits/index.ts';
import type { LedgerTimes } from './credits/index.ts';
import { directory } from './directory/index.ts';
import { env as environment, envStore, requireMasterKeys, unlock } from './env/index.ts';
import type { Rewrapped } from './env/index.ts';
import { type Identity, nameIdentity } from './identity.ts';
import { mail } from './mail/index.ts';
import { payments, paymentsStore } from './payments/index.ts';
import { createRecheck } from './running-calls.ts';
import type { Service } from './service.ts';
import { createUpstreamWatch, watchLedger } from './telemetry/index.ts';
import {
  loadProject,
  openResources,
  registerServices,
  services as projectServices,
} from './services/index.ts';
import type { Project, ProjectService, ServiceDefinition } from './services/index.ts';
import { usage, usageStore } from './usage/index.ts';

/** What the gateway takes from the process that runs it. */
export interface GatewaySeams {
  /** Where declared keys, such as a provider's, are looked up. */
  env: Readonly<Record<string, string | undefined>>;
  log: Log;
  redactor: Redactor;
  clock: Clock;
  /** Other waits than the usual ones, for a machine that is slower than a server's. */
  databaseLimits?: Partial<DatabaseLimits>;
  /** The project whose services are served, as its declaration says. */
  project?: Project | undefined;
  /** Services of the program that runs the gateway, beside those of a project. */
  services?: readonly ServiceDefinition[];
  /** Told in a few words what the start is busy with. */
  progress?: (step: string) => void;
  /** Of the installation, as traces name it. */
  version?: string;
  /** Other times of the ledger, for tests of what happens after a crash. */
  ledger?: Partial<LedgerTimes>;
  /** Other budgets for guesses at an administrator's password; for measurements. */
  guesses?: Partial<GuessBudgets>;
  /** Holds every reply against the contract; tests do, a server in use has no time for it. */
  validateResponses?: boolean;
}

/** A gateway whose database is open and migrated. */
export interface Gateway {
  database: Database;
  /** At the address of the settings, unless another place is given. May be called again for a further place. Rejects when it cannot be had. */
  listen(place?: ListenAddress): Promise<{ url: string; port: number }>;
  /** Refuses new work, lets running answers finish, then closes everything that was opened. */
  close(options?: Pick<CloseOptions, 'noticeMs' | 'lingerMs'>): Promise<void>;
  /** Puts a deployment on record, as `POST /v1/cities/upsert` does. */
  recordCity(deployment: Omit<Deployment, 'deployedAt'>): Promise<void>;
  /** The services of the project, with the keys that they need. */
  projectServices: readonly Pick<Service, 'name' | 'title' | 'env'>[];
  hasAdministrator(): Promise<boolean>;
  /** Whether the login without credentials exists now, for callers on this machine. */
  hasLocalLogin(): boolean;
  setupAdministrator(adminId: string, password: string): Promise<CredentialsSet>;
  resetAdministrator(adminId: string, password: string): Promise<CredentialsSet>;
  /** The credentials of products' backends. */
  machines: Machines;
  /** Puts every stored value under the first of the master keys. */
  rewrapEnv(): Promise<Rewrapped>;
  /** Calls each configured model provider once and says how it stands. */
  checkProviders(): Promise<ProviderCheck[]>;
  /** Asks payment providers about the payments that wait, now and not when it is time; says how many had news. */
  lookAtPayments(): Promise<number>;
  /** A token for the local user of the local edition. */
  issueLocalToken(): Promise<IssuedToken>;
  /** Who a bearer credential stands for, or null. */
  identify(bearer: string): Promise<Identity | null>;
}

/** Runs the entry of a project and holds its services to the rules, without serving them. Throws what a start would. */
export async function inspectProject(
  project: Project,
): Promise<{ id: string; name: string; env: readonly string[] }[]> {
  const known = registerServices(await loadProject(project), {
    reservedIds: ownIds(),
    isReservedKey: isStartupKey,
  });
  return [...known.values()].map(({ id, name, env }) => ({ id, name, env: env.map(({ key }) => key) }));
}

/** Opens the database and puts the services together. What it opened is closed again when it throws. */
export async function createGateway(config: GatewayConfig, seams: GatewaySeams): Promise<Gateway> {
  const progress = seams.progress ?? (() => {});
  // First of all, as a project that cannot be served must leave everything as it is.
  const known = registerServices(
    [
      ...(seams.services ?? []).map((definition) => ({ definition, where: 'the embedding program' })),
      ...(seams.project === undefined ? [] : await loadProject(seams.project)),
    ],
    { reservedIds: ownIds(), isReservedKey: isStartupKey },
  );
  const { log, redactor, clock } = seams;
  const isEmbedded = config.databaseUrl === undefined;
  await requireMasterKeys(config, { isEmbedded, redactor });
  if (config.modelsFile !== undefined)
    await requireModelsFile(config.modelsFile, { clock, guideDirectory: assetPath('docs/guides') });
  if (isEmbedded) await makeSettingFolder('DATABASE_PATH', config.databasePath);
  progress(isEmbedded ? 'opening the embedded database' : 'connecting to PostgreSQL');
  const closers = createClosers();
  return closedOnError(closers, async () => {
    const opening = connect({ ...databaseOptions(config), limits: seams.databaseLimits ?? {} }, { log });
    const database = await withSettingName('DATABASE_URL', config.databaseUrl, opening);
    closers.defer(() => database.close());
    // Before anything is changed: a database whose key is not here is left as it is.
    const vault = await unlock({
      settings: config,
      store: envStore(database),
      dataFolder: isEmbedded ? config.databasePath : null,
      redactor,
      log,
    });
    progress('bringing the database up to date');
    await migrate(database, { schema: 'gateway', directory: assetPath('src/gateway/migrations'), log });
    progress('starting the services');
    const projectDatabase = await openProjectDatabase(config, seams, database);
    if (projectDatabase !== database) closers.defer(() => projectDatabase.close());
    return assemble(config, seams, { database, vault, known, projectDatabase, closers });
  });
}

function databaseOptions(config: GatewayConfig): ConnectOptions {
  if (config.databaseUrl === undefined) return { path: config.databasePath };
  return config.databasePrepare === undefined
    ? { url: config.databaseUrl }
    : { url: config.databaseUrl, prepare: config.databasePrepare };
}

/**
 * What the actions of the project work on: connections beside the server's own, so that slow ones of theirs hold up
 * nothing else. The embedded engine has one session for all.
 */
async function openProjectDatabase(
  config: GatewayConfig,
  { project, databaseLimits, log }: GatewaySeams,
  database: Database,
): Promise<Database> {
  if (project?.resources.database === undefined) return database;
  const migrations = join(project.directory, 'migrations');
  if (existsSync(migrations)) await migrate(database, { schema: 'project', directory: migrations, log });
  if (database.engine === 'embedded') return database;
  return connect(
    { ...databaseOptions(config), limits: { ...databaseLimits, maxConnections: projectConnections } },
    { log },
  );
}

const projectConnections = 5;

interface Opened {
  database: Database;
  /** The same, or connections of its own. */
  projectDatabase: Database;
  vault: Vault;
  /** The services that a project brings. */
  known: ReadonlyMap<string, ProjectService>;
  /** Closes what is open when a later step throws, and everything at the gateway's end. */
  closers: Closers;
}

async function assemble(
  config: GatewayConfig,
  seams: GatewaySeams,
  { database, vault, known, projectDatabase, closers }: Opened,
): Promise<Gateway> {
  const { log, clock, env, redactor } = seams;
  const deferred = <T extends Pick<Service, 'close'>>(service: T): T => {
    closers.defer(() => service.close?.());
    return service;
  };
  const isLocalEdition = database.engine === 'embedded';
  let isDraining = false;
  let isServing = false;
  let listeningUrl: string | null = null;
  const listed: Pick<Service, 'name' | 'title' | 'env'>[] = [];

  const observed = telemetrySettings(config);
  for (const secret of telemetrySecrets(observed)) redactor.hold(secret);
  const telemetry = await openTelemetry({
    settings: observed,
    surface: 'gateway',
    version: seams.version ?? 'unknown',
    hide: (text) => redactor.hide(text),
    clock,
    log,
  });
  closers.defer(() => telemetry.close());
  const upstreamWatch = createUpstreamWatch({ telemetry, clock });
  showDatabase(telemetry.metrics, database);

  const changes = createChanges({ database, schema: 'gateway', clock, log });
  const auditLog = audit({ store: auditStore(database), log, clock });
  closers.defer(() => auditLog.close());
  const idempotency = createIdempotency({
    database,
    schema: 'gateway',
    clock,
    log,
    mostBytes: config.answersQuotaMb * 1024 * 1024,
  });
  closers.defer(() => idempotency.close());
  const envService = deferred(
    await environment({
      store: envStore(database),
      vault,
      environment: env,
      isReserved: isStartupKey,
      declarers: () => listed.map(({ name, env: declared }) => ({ id: name, env: declared })),
      audit: auditLog,
      changes,
      redactor,
      clock,
      log,
    }),
  );
  const cityBaseUrl = () => envService.reader.get('TOWNHALL_CITY_BASE_URL') ?? config.cityBaseUrl;
  const hasLocalLogin = () =>
    mayLogInLocally({ ...config, cityBaseUrl: cityBaseUrl(), engine: database.engine });
  const bureauService = bureaus({
    store: bureausStore(database),
    audit: auditLog,
    changes,
    examineToken,
    log,
  });
  const cityService = cities({ store: citiesStore(database), audit: auditLog, baseUrl: cityBaseUrl });
  const mailer = mail({ env: envService.reader });
  closers.defer(() => mailer.close());
  const accountStores = accountsStores(database, bureauService);
  const administrators = adminStore(database);
  const turnstile = createConcurrencyLimit(defaultConcurrency);
  const creditsService = deferred(
    credits({
      store: creditsStore(database),
      journal: directoryJournal(
        config.journalPath ?? (isLocalEdition ? join(config.databasePath, 'journal') : './data/journal'),
      ),
      users: accountStores.accounts,
      audit: auditLog,
      log,
      clock,
      metrics: telemetry.metrics,
      isAlone: isLocalEdition,
      startingCredits: BigInt(config.startingCredits ?? (isLocalEdition ? 1_000_000 : 0)),
      retentionDays: config.usageDays,
      times: seams.ledger ?? {},
    }),
  );
  const ledger = watchLedger(creditsService.ledger, upstreamWatch.note);
  const usageService = deferred(
    usage({ store: usageStore(database), log, clock, retentionDays: config.usageDays }),
  );
  const accountService = deferred(
    accounts({
      turnstile,
      stores: accountStores,
      bureaus: bureauService,
      log,
      clock,
      fetch: (input, init) => fetch(input, init),
      env: envService.reader,
      mail: mailer,
      audit: auditLog,
      changes,
      credits: creditsService,
      machines: { lockLive: (tx, credentialId) => administrators.lockLiveMachine(tx, credentialId) },
      localLogin: hasLocalLogin,
      baseUrl: () => cityBaseUrl() ?? (isLocalEdition ? listeningUrl : null),
    }),
  );
  const adminService = deferred(
    admin({
      store: administrators,
      tokens: accountStores.accounts,
      turnstile,
      guesses: seams.guesses ?? {},
      audit: auditLog,
      changes,
      bureaus: bureauService,
      log,
    }),
  );
  const queue = createJobs(database, { schema: 'pgboss', log });
  const jobs = mediaJobs({
    store: jobsStore(database),
    queue,
    storage: directoryStorage(
      config.storagePath ?? (isLocalEdition ? join(config.databasePath, 'media') : './data/media'),
    ),
    payments: jobPayments({ ledger }),
    isAlone: isLocalEdition,
    clock,
    log,
    settings: { videoDeadlineMs: config.videoMs, maxMediaBytesPerOwner: config.mediaQuotaMb * 1024 * 1024 },
  });
  const links = createLinks({
    keys: vault.derive('media links'),
    baseUrl: () => (cityBaseUrl() ?? listeningUrl ?? '').replace(/\/+$/, ''),
    linkSeconds: config.mediaLinkSeconds,
  });
  const aiService = deferred(
    await ai({
      jobs,
      links,
      ledger,
      env: envService.reader,
      modelsFile: config.modelsFile,
      guideDirectory: assetPath('docs/guides'),
      localModels: config.localModels === 'on',
      timeouts: config,
      videoLimits: { pollMs: config.videoPollMs, maxBytes: config.videoMaxBytes },
      heartbeatMs: config.heartbeatMs,
      proxies: {
        https: env['HTTPS_PROXY'] ?? env['https_proxy'],
        http: env['HTTP_PROXY'] ?? env['http_proxy'],
        none: env['NO_PROXY'] ?? env['no_proxy'],
      },
      hide: (text) => seams.redactor.hide(text),
      watch: upstreamWatch.watch,
      traceparent: () => telemetry.traces.traceparent(),
      requestId: () => telemetry.request()?.requestId,
      log,
      clock,
    }),
  );
  const paymentsService = deferred(
    payments({
      store: paymentsStore(database),
      balances: creditsService.balances,
      users: accountStores.accounts,
      audit: auditLog,
      bureaus: bureauService,
      env: envService.reader,
      baseUrl: () => cityBaseUrl() ?? (isLocalEdition ? listeningUrl : null),
      fetch: (input, init) => fetch(input, init),
      // Of several replicas one looks at a time; a process that is alone need not start the queue for it.
      queue: isLocalEdition ? null : queue,
      clock,
      log,
    }),
  );
  upstreamWatch.showBreakers(() => aiService.breakers());
  upstreamWatch.showUsageAlarms(() => aiService.usageAlarms());
  const slices = [
    envService,
    cityService,
    bureauService,
    accountService,
    aiService,
    adminService,
    creditsService,
    usageService,
    paymentsService,
  ];
  const hasOwnJobs = [...known.values()].some(({ jobs: own }) => own.size > 0);
  const resources = openResources({
    declared: seams.project?.resources ?? {},
    database: projectDatabase,
    queue,
    openStorage: directoryStorage,
    known,
    env: envService.reader,
    log,
  });
  const ownServices = projectServices({
    known,
    resources,
    env: envService.reader,
    findUser: (userId) => accountStores.accounts.findUser(userId),
    findBureau: (bureauId) => bureauService.find(bureauId),
    ledger,
    clock,
    actionMs: config.actionMs,
  });
  listed.push(...slices, ...ownServices.listed);
  const directoryService = directory({
    services: () => listed.map(({ name, title, env: declared }) => ({ id: name, title, env: declared })),
    async ready() {
      if (isDraining)
        throw new Problem('unavailable', 'draining', 'This server is stopping.', {
          headers: { 'retry-after': '1' },
        });
      await database.ping();
      await withinMs(
        Promise.all([requireDescriptors(), jobs.ready(), hasOwnJobs ? queue.ready() : undefined]),
        readyMs,
      );
    },
  });
  const services = [...slices, ownServices, directoryService];

  async function identify(bearer: string): Promise<Identity | null> {
    const kind = parseToken(bearer);
    if (kind === 'usr') return accountService.identify(bearer);
    if (kind === 'adm') return adminService.identify(bearer);
    return null;
  }

  /** Whose user token it is, for an administrator or a backend that asks. */
  async function examineToken(token: string) {
    const identity = await accountService.identify(token);
    const expiresAt = identity && (await accountService.tokenEnd(identity.tokenId));
    return identity && expiresAt ? { ...identity, expiresAt } : null;
  }

  const contract = createContract<Identity>({
    definition: contractDocument,
    handlers: withinOwnBureau(
      Object.fromEntries(services.flatMap(({ handlers }) => Object.entries(handlers))),
    ),
    identities: { userToken: 'user', adminSession: 'admin' },
    identify,
    guest: { kind: 'guest' },
    // One process has no others to share with.
    admit: createAdmission({
      quota: isLocalEdition
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
    callerOf,
    validateResponses: seams.validateResponses ?? false,
  });
  const server = createServer({
    contract,
    surface: 'gateway',
    pages: portalPages(),
    log,
    clock,
    observer: telemetry.observer,
    nameIdentity: (identity) => nameIdentity(identity as Identity),
    cors: {
      origins: config.corsOrigins,
      scoped: { paths: loginPaths(), allows: (origin) => bureauService.hasLoginOrigin(origin) },
    },
    proxies: trustProxies(config.trustedProxies),
    ...(config.rateUser === null || config.rateGuest === null
      ? { limits: { maxConnections: Infinity, maxPerAddress: Infinity } }
      : {}),
    timeouts: {
      headersMs: config.headersMs,
      requestMs: config.requestMs,
      stalledMs: config.stalledMs,
      heartbeatMs: config.heartbeatMs,
    },
  });

  const recheckRunning = createRecheck({ running: () => server.runningRequests(), identify, log });
  changes.onChange(() => {
    recheckRunning();
    bureauService
      .refresh()
      .catch((error: unknown) => log.warn({ err: error }, 'the limits of the Bureaus could not be read'));
  });

  if (config.adminId !== undefined && config.adminPassword !== undefined) {
    seams.redactor.hold(config.adminPassword);
    // On a database that has an administrator the two settings are leftovers, not an error; also where another gateway
    // that starts in this moment has made it.
    if (!(await adminService.exists())) {
      await adminService.setup(config.adminId, config.adminPassword).catch((error: unknown) => {
        if (!(error instanceof Problem && error.kind === 'conflict')) throw error;
      });
    }
  }
  if (isLocalEdition) await bureauService.ensureLocal(`http://127.0.0.1:${config.port || 43127}`);

  // Calls that were cut off still have to be charged, by a ledger that is still open.
  closers.defer(() => aiService.settled());
  closers.defer(() => changes.stop());
  const control = isLocalEdition
    ? await serveControl(
        join(config.databasePath, 'control.sock'),
        {
          ...controlHandlers(adminService),
          'audit.verify': (head) => auditLog.verify(typeof head === 'string' ? head : null),
          'ledger.verify': () => creditsService.verify(),
          ...envService.controls,
          'models.check': () => aiService.checkProviders(),
          ...databaseHandlers(database),
        },
        { log },
      )
    : undefined;
  closers.defer(() => control?.close());
  closers.defer(() => jobs.close());
  envService.start();
  auditLog.start();

  return {
    database,
    async listen(place = { host: config.host, port: config.port }) {
      if ('host' in place) await telemetry.listen();
      // What a supervisor starts may have a predecessor that still holds the port of the metrics.
      else if ('fd' in place)
        void untilListening(
          () => telemetry.listen(),
          () => isDraining,
          clock,
          log,
        );
      // Only who serves keeps the ledger: a command that looks at the data does not settle what others left.
      if (!isServing) {
        await creditsService.start();
        usageService.start();
      }
      const address = await server.listen(place);
      listeningUrl = address.url;
      if (isServing) return address;
      isServing = true;
      changes.start();
      jobs.start();
      // A project's job must be taken also within a transaction, which cannot wait for the queue to start.
      if (hasOwnJobs) queue.start();
      void contract.warm(log);
      if (hasLocalLogin()) log.info({}, openLoginNotice);
      return address;
    },
    async close({ noticeMs = 0, lingerMs = 0 } = {}) {
      isDraining = true;
      // At once, so that both are done when the time for it is over.
      const serving = await Promise.allSettled([
        server.close({ drainMs: config.drainMs, noticeMs, lingerMs }),
        queue.stop({ timeoutMs: config.drainMs }),
      ]);
      await closers.close();
      for (const end of serving) if (end.status === 'rejected') throw end.reason;
    },
    recordCity: (deployment) => cityService.record(deployment),
    projectServices: ownServices.listed,
    hasAdministrator: () => adminService.exists(),
    hasLocalLogin,
    setupAdministrator: (adminId, password) => adminService.setup(adminId, password),
    resetAdministrator: (adminId, password) => adminService.reset(adminId, password),
    machines: adminService.machines,
    rewrapEnv: () => envService.rewrap(),
    checkProviders: () => aiService.checkProviders(),
    lookAtPayments: () => paymentsService.look(),
    issueLocalToken: () => accountService.issueUserToken({ bureauId: 'local', person: localPerson }),
    identify,
  };
}

/** The paths that pages of a Bureau's origins may call, as `x-login-origins` says. */
function loginPaths(): ReadonlySet<string> {
  const paths: Record<string, object> = contractDocument.paths;
  const isOpen = (item: object) =>
    Object.values(item).some(
      (operation: { 'x-login-origins'?: boolean }) => operation['x-login-origins'] === true,
    );
  return new Set(Object.entries(paths).flatMap(([path, item]) => (isOpen(item) ? [path] : [])));
}

/** What no service of a project may be called: the first part of each path of the contract, and what is kept for later. */
function ownIds(): ReadonlySet<string> {
  const parts = Object.keys(contractDocument.paths).flatMap(
    (path) => /^\/v1\/([^/{]+)/.exec(path)?.[1] ?? [],
  );
  return new Set([...parts, 'directory', 'services', 'audit']);
}

/** What an operator has to know of the login without credentials while it exists. */
export const openLoginNotice =
  'The local login is open: whoever calls from this machine is let in, through a proxy on it too; before a proxy is put in front, set TOWNHALL_CITY_BASE_URL or TRUSTED_PROXIES, or LOCAL_LOGIN=false.';

// How long a question whether the server is ready may wait for the answer yes.
const readyMs = 2_000;

async function untilListening(
  listen: () => Promise<unknown>,
  isOver: () => boolean,
  clock: Pick<Clock, 'sleep'>,
  log: Log,
): Promise<void> {
  for (let isTold = false; !isOver();) {
    try {
      await listen();
      return;
    } catch (error) {
      if (!isTold) log.warn({ err: error }, 'the metrics cannot be served yet');
      isTold = true;
      await clock.sleep(metricsRetryMs);
    }
  }
}

const metricsRetryMs = 500;

async function withinMs(ready: Promise<unknown>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () =>
        reject(
          new Problem('unavailable', 'not_ready', 'The server is still starting.', {
            headers: { 'retry-after': '1' },
          }),
        ),
      ms,
    );
  });
  try {
    await Promise.race([ready, late]);
  } finally {
    clearTimeout(timer);
  }
}

// The portal is built by `npm run docs`; without it the server simply has no /docs.
function portalPages(): { prefix: string; directory: string }[] {
  const built = assetPath('build/docs');
  return assetExists(built) ? [{ prefix: '/docs', directory: built }] : [];
}

/** What `townhall db` and `townhall doctor` ask of it. */
function databaseHandlers(database: Database): Record<string, ControlHandler> {
  const controls = databaseControls(database, {
    schema: 'gateway',
    directory: assetPath('src/gateway/migrations'),
  });
  return {
    ...controls,
    'db.facts': async () => ({
      ...(await controls['db.facts']()),
      storedKeys: (await envStore(database).list()).map(({ key }) => key),
    }),
  };
}

/** What `townhall admin` asks of a running server, whose embedded database no other process can open. */
function controlHandlers(
  adminService: Pick<Admin, 'setup' | 'reset' | 'machines'>,
): Record<string, ControlHandler> {
  const { machines } = adminService;
  const withCredentials = (
    act: (adminId: string, password: string) => Promise<CredentialsSet>,
  ): ControlHandler => {
    return async (input) => {
      const { adminId, password } = input as { adminId: string; password: string };
      return act(String(adminId), String(password));
    };
  };
  return {
    'admin.setup': withCredentials((adminId, password) => adminService.setup(adminId, password)),
    'admin.reset': withCredentials((adminId, password) => adminService.reset(adminId, password)),
    'admin.token.create': (input) => machines.create(input as MachineRequest),
    'admin.token.list': () => machines.list(),
    'admin.token.revoke': (input) => {
      const { credentialId, keepTokens } = input as { credentialId: unknown; keepTokens: unknown };
      return machines.revoke(String(credentialId), { keepTokens: keepTokens === true });
    },
  };
}
