// The plan of a deployment: the declaration, the services of the entry, the version, existing and missing
// resources. Making the plan changes nothing.
import { stat } from 'node:fs/promises';
import { delimiter, resolve } from 'node:path';
import type { Log } from '../kernel/log.ts';
import { cityFolder, type CityFolder, type CityState } from './supervisor/city-folder.ts';
import { databaseUrl, describeDatabase, inspectDatabase, missingRightMessage } from './database.ts';
import { defaultPort, readDeclaration, storagePath, type Declaration } from './declaration.ts';
import { readPackageVersion, type PackageVersion } from './package-version.ts';
import { supervisorClient } from './supervisor-client.ts';
import { localUrl } from '../kernel/http/listening-socket.ts';
import type { SupervisorStatus } from './supervisor/supervisor.ts';

export interface PlanLine {
  what: string;
  state: 'found' | 'made' | 'changed';
  detail: string;
}

export interface DeployContext {
  directory: string;
  /**
   * The project whose `.townhall` is used; set it when `directory` is a stored version. `directory` by
   * default.
   */
  cityDirectory?: string | undefined;
  /** The operator's environment. */
  env: Readonly<Record<string, string | undefined>>;
  /** Whether the gateway gets this variable of the operator's environment. */
  isForwarded(key: string): boolean;
  /** Runs the project's entry in its own process; throws with the process's standard error. */
  inspect(directory: string, env: Readonly<Record<string, string>>): Promise<InspectedService[]>;
  log: Log;
}

export interface InspectedService {
  id: string;
  name: string;
  env: readonly string[];
}

export interface Plan {
  folder: CityFolder;
  declaration: Declaration;
  version: PackageVersion;
  services: readonly InspectedService[];
  address: { host: string; port: number };
  /** The address for users; null when users reach the City at the address on this machine. */
  baseUrl: string | null;
  /** The City's PostgreSQL database; null for the embedded database. */
  database: { url: string; name: string; mustExist: boolean } | null;
  /** Folders that must exist before the start. */
  folders: readonly string[];
  running: SupervisorStatus | null;
  state: CityState | null;
  /** The complete environment of the gateway. */
  gatewayEnv: Readonly<Record<string, string>>;
  lines: readonly PlanLine[];
}

/** The part of a plan that needs neither the project's entry nor its database. */
export type Survey = Pick<Plan, 'folder' | 'declaration' | 'address' | 'running' | 'state'>;

export async function survey({
  directory,
  cityDirectory,
  env,
}: Pick<DeployContext, 'directory' | 'cityDirectory' | 'env'>): Promise<Survey> {
  const declaration = await readDeclaration(directory);
  const folder = cityFolder(cityDirectory ?? directory);
  const [running, state] = await Promise.all([supervisorClient(folder).status(), folder.readState()]);
  const { deployment } = declaration;
  const address = {
    host: nonEmpty(env['HOST']) ?? deployment.host ?? '0.0.0.0',
    port: readPort(nonEmpty(env['PORT'])) ?? deployment.port ?? defaultPort,
  };
  return { folder, declaration, address, running, state };
}

/** Throws with advice when the project cannot be deployed. */
export async function makePlan(context: DeployContext): Promise<Plan> {
  const directory = resolve(context.directory);
  const { folder, declaration, address, running, state } = await survey({ ...context, directory });
  const version = await readPackageVersion(directory);
  const services = await context.inspect(directory, forwardedEnv(context, []));
  const { env, log } = context;
  const { deployment } = declaration;
  const baseUrl = nonEmpty(env['TOWNHALL_CITY_BASE_URL']) ?? deployment.baseUrl ?? null;
  const database = databaseOf(declaration, nonEmpty(env['DATABASE_URL']));
  const databasePath = folder.dataPath(embeddedName(declaration));
  const storage = deployment.resources.storage;
  const folders = storage === undefined ? [] : [storagePath(folder.root, storage.name)];
  return {
    folder,
    declaration,
    version,
    services,
    address,
    baseUrl,
    database,
    folders,
    running,
    state,
    lines: [
      await databaseLine({ database, databasePath, env, log }),
      ...(await resourceLines(declaration, folder, running)),
      ...processLines({ running, state, address, baseUrl }),
      { what: 'version', state: 'changed', detail: `${version.current} to ${version.next}` },
    ],
    gatewayEnv: gatewayEnvironment(context, { services, folder, address, baseUrl, database, databasePath }),
  };
}

function planLine(label: string, exists: boolean, detail: string): PlanLine {
  return { what: label, state: exists ? 'found' : 'made', detail };
}

/** Throws when the database does not exist and this user may not create it. */
async function databaseLine({
  database,
  databasePath,
  env,
  log,
}: Pick<Plan, 'database'> &
  Pick<DeployContext, 'env' | 'log'> & { databasePath: string }): Promise<PlanLine> {
  if (database === null) {
    const hint =
      nonEmpty(env['DATABASE_URL']) === undefined
        ? ''
        : '; DATABASE_URL is not used, because the declaration selects the embedded database';
    return planLine('database', await pathExists(databasePath), `embedded, ${databasePath}${hint}`);
  }
  const detail = `PostgreSQL, ${describeDatabase(database.url)}`;
  if (database.mustExist) return planLine('database', true, detail);
  const { exists, canCreate, statement } = await inspectDatabase(database.url, database.name, log);
  if (!exists && !canCreate) throw new Error(missingRightMessage(database.name, statement));
  return planLine('database', exists, detail);
}

async function resourceLines(
  { deployment: { resources } }: Declaration,
  folder: CityFolder,
  running: SupervisorStatus | null,
): Promise<PlanLine[]> {
  const { queue, storage } = resources;
  const lines: PlanLine[] = [];
  // The plan does not look for the queue in the database. The first start of a City creates it, so a City
  // that runs is taken to have it.
  if (queue !== undefined)
    lines.push(planLine('queue', running !== null, `pg-boss in that database, ${queue.name}`));
  if (storage !== undefined) {
    const path = storagePath(folder.root, storage.name);
    const detail = `${path}, public as ${storage.publicUrlPrefix}`;
    lines.push(planLine('storage', await pathExists(path), detail));
  }
  return lines;
}

function processLines({
  running,
  state,
  address,
  baseUrl,
}: Pick<Plan, 'running' | 'state' | 'address' | 'baseUrl'>): PlanLine[] {
  const supervisor = running !== null && running.url !== null ? running : null;
  const port = address.port === 0 ? 'a free port' : address.port;
  const forUsers = baseUrl === null ? '' : `, for users ${baseUrl}`;
  return [
    planLine(
      'supervisor',
      supervisor !== null,
      supervisor === null
        ? 'a supervisor process that holds the address'
        : `process ${supervisor.pid}, version ${supervisor.version}`,
    ),
    planLine(
      'address',
      supervisor !== null && isSameAddress(state, address),
      `${address.host}:${port}${forUsers}`,
    ),
  ];
}

/** The gateway's environment: forwarded variables, and settings of the deployment. */
function gatewayEnvironment(
  context: DeployContext,
  {
    services,
    folder,
    address,
    baseUrl,
    database,
    databasePath,
  }: Pick<Plan, 'services' | 'folder' | 'address' | 'baseUrl' | 'database'> & { databasePath: string },
): Record<string, string> {
  const {
    DATABASE_URL: _url,
    TOWNHALL_PROJECT: _project,
    ...forwarded
  } = forwardedEnv(
    context,
    services.flatMap((service) => service.env),
  );
  return {
    ...forwarded,
    HOST: address.host,
    PORT: String(address.port),
    ...(baseUrl === null ? {} : { TOWNHALL_CITY_BASE_URL: baseUrl }),
    ...(database === null ? { DATABASE_PATH: databasePath } : { DATABASE_URL: database.url }),
    STORAGE_PATH: forwarded['STORAGE_PATH'] ?? folder.mediaPath,
    JOURNAL_PATH: forwarded['JOURNAL_PATH'] ?? folder.journalPath,
  };
}

// Relative paths are resolved here, because the gateway runs in another folder than the operator.
const pathKeys = [
  'MODELS_FILE',
  'MODELS_CATALOG_FILE',
  'STORAGE_PATH',
  'JOURNAL_PATH',
  'TOWNHALL_MASTER_KEY_FILE',
  'TOWNHALL_MASTER_KEY_PREVIOUS_FILE',
];

/**
 * The variables of the environment that a gateway gets; `serviceKeys` are declared by its services.
 */
function forwardedEnv(
  { env, isForwarded }: Pick<DeployContext, 'env' | 'isForwarded'>,
  serviceKeys: readonly string[],
): Record<string, string> {
  const declared = new Set(serviceKeys);
  const forwarded: Record<string, string> = {};
  for (const [key, text] of Object.entries(env)) {
    if (text === undefined || text === '' || !(declared.has(key) || isForwarded(key))) continue;
    forwarded[key] = pathKeys.includes(key) ? resolve(text) : text;
  }
  forwarded['PATH'] ??= ['/usr/local/bin', '/usr/bin', '/bin'].join(delimiter);
  return forwarded;
}

/** The PostgreSQL database that a City uses; null when its database is embedded. */
export function databaseOf({ deployment }: Declaration, url: string | undefined): Plan['database'] {
  const declaration = deployment.resources.database;
  if (declaration?.type === 'embedded') return null;
  if (declaration?.type === 'postgres') {
    if (url === undefined)
      throw new Error(
        `The declaration needs a PostgreSQL database, "${declaration.name}"; set DATABASE_URL to its server, such as postgres://user:password@127.0.0.1:5432/postgres`,
      );
    requireUrl(url);
    return { url: databaseUrl(url, declaration.name), name: declaration.name, mustExist: false };
  }
  if (url === undefined) return null;
  requireUrl(url);
  return { url, name: new URL(url).pathname.slice(1), mustExist: true };
}

/** The name of a City's embedded database. */
export function embeddedName({ name, deployment }: Declaration): string {
  return deployment.resources.database?.name ?? `${name}-db`;
}

function requireUrl(url: string): void {
  if (!URL.canParse(url) || !/^postgres(?:ql)?:$/.test(new URL(url).protocol))
    throw new Error(
      'DATABASE_URL must be the address of a PostgreSQL server, such as postgres://user:password@127.0.0.1:5432/postgres',
    );
}

function readPort(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (!(port <= 65_535)) throw new Error(`PORT takes a whole number from 0 to 65535, not "${text}".`);
  return port;
}

function isSameAddress(state: CityState | null, { host, port }: Plan['address']): boolean {
  return state !== null && state.host === host && (port === 0 || state.port === port);
}

/** The address of a City on this machine, running or not. */
export function localAddress({
  running,
  state,
  address,
}: Pick<Plan, 'running' | 'state' | 'address'>): string {
  return running?.url ?? state?.url ?? localUrl(address.host, address.port);
}

async function pathExists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === undefined || text === '' ? undefined : text;
}
