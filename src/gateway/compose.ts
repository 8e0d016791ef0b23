// The gateway's composition root: the one list of its services and the one place where values cross between them.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import contractDocument from '../contract/gateway/bundle.json' with { type: 'json' };
import type { Clock } from '../kernel/clock.ts';
import { serveControl } from '../kernel/control.ts';
import type { ControlHandler } from '../kernel/control.ts';
import { createChanges } from '../kernel/changes.ts';
import { createContract } from '../kernel/contract.ts';
import { connect, migrate } from '../kernel/database.ts';
import type { ConnectOptions, Database } from '../kernel/database.ts';
import type { Log } from '../kernel/log.ts';
import { Problem } from '../kernel/problem.ts';
import { parseToken } from '../kernel/secret.ts';
import type { Redactor } from '../kernel/secret.ts';
import { createServer } from '../kernel/server.ts';
import type { Vault } from '../kernel/vault.ts';
import { accounts, accountsStore, localPerson, mayLogInLocally } from './accounts/index.ts';
import type { IssuedToken } from './accounts/index.ts';
import { admin, adminStore } from './admin/index.ts';
import type { CredentialsSet } from './admin/index.ts';
import { ai } from './ai/index.ts';
import { audit, auditStore } from './audit/index.ts';
import { bureaus, bureausStore } from './bureaus/index.ts';
import { isStartupKey } from './config.ts';
import type { GatewayConfig } from './config.ts';
import { directory } from './directory/index.ts';
import { env as environment, envStore, unlock } from './env/index.ts';
import type { Rewrapped } from './env/index.ts';
import type { Identity } from './identity.ts';
import type { Service } from './service.ts';

/** What the gateway takes from the process that runs it. */
export interface GatewaySeams {
  /** Where declared keys, such as a provider's, are looked up. */
  env: Readonly<Record<string, string | undefined>>;
  log: Log;
  redactor: Redactor;
  clock: Clock;
  /** Told in a few words what the start is busy with. */
  progress?: (step: string) => void;
  /** Holds every reply against the contract; tests do, a server in use has no time for it. */
  validateResponses?: boolean;
}

/** A gateway whose database is open and migrated. */
export interface Gateway {
  database: Database;
  /** Rejects when the address cannot be had. */
  listen(): Promise<{ url: string; port: number }>;
  /** Refuses new work, lets running answers finish, then closes everything that was opened. */
  close(): Promise<void>;
  hasAdministrator(): Promise<boolean>;
  setupAdministrator(adminId: string, password: string): Promise<CredentialsSet>;
  resetAdministrator(adminId: string, password: string): Promise<CredentialsSet>;
  /** Puts every stored value under the first of the master keys. */
  rewrapEnv(): Promise<Rewrapped>;
  /** A token for the local user of the local edition. */
  issueLocalToken(): Promise<IssuedToken>;
  /** Who a bearer credential stands for, or null. */
  identify(bearer: string): Promise<Identity | null>;
}

const projectRoot = fileURLToPath(new URL('../../', import.meta.url));
const migrations = fileURLToPath(new URL('./migrations/', import.meta.url));

/** Opens the database and puts the services together. What it opened is closed again when it throws. */
export async function createGateway(config: GatewayConfig, seams: GatewaySeams): Promise<Gateway> {
  const progress = seams.progress ?? (() => {});
  progress(config.databaseUrl === undefined ? 'opening the embedded database' : 'connecting to PostgreSQL');
  const database = await connect(databaseOptions(config), { log: seams.log });
  try {
    const { log, redactor } = seams;
    const dataFolder = database.engine === 'embedded' ? config.databasePath : null;
    // Before anything is changed: a database whose key is not here is left as it is.
    const vault = await unlock({ settings: config, store: envStore(database), dataFolder, redactor, log });
    progress('bringing the database up to date');
    await migrate(database, { schema: 'gateway', directory: migrations, log: seams.log });
    progress('starting the services');
    return await assemble(config, seams, { database, vault });
  } catch (error) {
    await database.close();
    throw error;
  }
}

function databaseOptions(config: GatewayConfig): ConnectOptions {
  if (config.databaseUrl === undefined) return { path: config.databasePath };
  return config.databasePrepare === undefined
    ? { url: config.databaseUrl }
    : { url: config.databaseUrl, prepare: config.databasePrepare };
}

async function assemble(config: GatewayConfig, seams: GatewaySeams, { database, vault }: { database: Database; vault: Vault }): Promise<Gateway> {
  const { log, clock, env, redactor } = seams;
  const isLocalEdition = database.engine === 'embedded';
  let isDraining = false;
  const listed: Pick<Service, 'name' | 'title' | 'env'>[] = [];

  const changes = createChanges({ database, schema: 'gateway', clock, log });
  const auditLog = audit({ store: auditStore(database), log, clock });
  const envService = await environment({
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
  });
  const bureauService = bureaus({ store: bureausStore(database), log });
  const accountService = accounts({
    store: accountsStore(database, bureauService),
    bureaus: bureauService,
    log,
    localLogin: mayLogInLocally({ ...config, engine: database.engine }),
  });
  const adminService = admin({ store: adminStore(database), log });
  const aiService = await ai({
    env: envService.reader,
    modelsFile: config.modelsFile,
    guideDirectory: join(projectRoot, 'docs', 'guides'),
    timeouts: config,
    heartbeatMs: config.heartbeatMs,
    proxies: { https: env['HTTPS_PROXY'] ?? env['https_proxy'], http: env['HTTP_PROXY'] ?? env['http_proxy'], none: env['NO_PROXY'] ?? env['no_proxy'] },
    hide: (text) => seams.redactor.hide(text),
    log,
    clock,
  });
  const slices = [envService, bureauService, accountService, aiService, adminService];
  listed.push(...slices);
  const directoryService = directory({
    services: () => listed.map(({ name, title, env: declared }) => ({ id: name, title, env: declared })),
    async ready() {
      if (isDraining) throw new Problem('unavailable', 'draining', 'This server is stopping.', { headers: { 'retry-after': '1' } });
      await database.ping();
    },
  });
  const services = [...slices, directoryService];

  async function identify(bearer: string): Promise<Identity | null> {
    const kind = parseToken(bearer);
    if (kind === 'usr') return accountService.identify(bearer);
    if (kind === 'adm') return adminService.identify(bearer);
    return null;
  }

  const contract = createContract<Identity>({
    definition: contractDocument,
    handlers: Object.assign({}, ...services.map(({ handlers }) => handlers)),
    identities: { userToken: 'user', adminSession: 'admin' },
    identify,
    guest: { kind: 'guest' },
    validateResponses: seams.validateResponses ?? false,
  });
  const server = createServer({
    contract,
    surface: 'gateway',
    pages: portalPages(),
    log,
    clock,
    cors: { origins: config.corsOrigins },
    timeouts: { headersMs: config.headersMs, requestMs: config.requestMs, stalledMs: config.stalledMs, heartbeatMs: config.heartbeatMs },
  });

  if (config.adminId !== undefined && config.adminPassword !== undefined) {
    seams.redactor.hold(config.adminPassword);
    // On a database that has an administrator the two settings are leftovers, not an error.
    if (!(await adminService.exists())) await adminService.setup(config.adminId, config.adminPassword);
  }
  if (isLocalEdition) await bureauService.ensureLocal(config.cityBaseUrl ?? `http://127.0.0.1:${config.port || 43127}`);

  const control = isLocalEdition
    ? await serveControl(join(config.databasePath, 'control.sock'), { ...controlHandlers(adminService), 'env.rewrap': () => envService.rewrap() }, { log })
    : undefined;
  envService.start();
  auditLog.start();

  return {
    database,
    async listen() {
      const address = await server.listen({ host: config.host, port: config.port });
      changes.start();
      void contract.warm(log);
      return address;
    },
    async close() {
      isDraining = true;
      await server.close({ drainMs: config.drainMs });
      await control?.close();
      await changes.stop();
      for (const service of services.reverse()) await service.close?.();
      await auditLog.close();
      await database.close();
    },
    hasAdministrator: () => adminService.exists(),
    setupAdministrator: (adminId, password) => adminService.setup(adminId, password),
    resetAdministrator: (adminId, password) => adminService.reset(adminId, password),
    rewrapEnv: () => envService.rewrap(),
    issueLocalToken: () => accountService.issueUserToken({ bureauId: 'local', person: localPerson }),
    identify,
  };
}

// The portal is built by `npm run docs`; without it the server simply has no /docs.
function portalPages(): { prefix: string; directory: string }[] {
  const built = join(projectRoot, 'build', 'docs');
  return existsSync(built) ? [{ prefix: '/docs', directory: built }] : [];
}

/** What `townhall admin` asks of a running server, whose embedded database no other process can open. */
function controlHandlers(adminService: {
  setup(adminId: string, password: string): Promise<CredentialsSet>;
  reset(adminId: string, password: string): Promise<CredentialsSet>;
}): Record<string, ControlHandler> {
  const withCredentials = (act: (adminId: string, password: string) => Promise<CredentialsSet>): ControlHandler => {
    return async (input) => {
      const { adminId, password } = input as { adminId: string; password: string };
      return act(String(adminId), String(password));
    };
  };
  return {
    'admin.setup': withCredentials((adminId, password) => adminService.setup(adminId, password)),
    'admin.reset': withCredentials((adminId, password) => adminService.reset(adminId, password)),
  };
}
