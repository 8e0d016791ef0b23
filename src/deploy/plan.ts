// What a deployment would do, found out without changing anything: the declaration, the entry, the version, what is
// there already and what has to be made.
import { stat } from 'node:fs/promises';
import { delimiter, resolve } from 'node:path';
import type { Log } from '../kernel/log.ts';
import { cityFolder, type CityFolder, type CityState } from './city-folder.ts';
import { databaseUrl, lookForDatabase, mayNot, placeOfDatabase } from './database.ts';
import { readDeclaration, storagePath, type Declaration } from './declaration.ts';
import { readPackageVersion, type PackageVersion } from './package-version.ts';
import { supervisorClient } from './supervision.ts';
import { localUrl } from './supervisor/listening-socket.ts';
import type { SupervisorStatus } from './supervisor/supervisor.ts';

export interface PlanLine {
  what: string;
  state: 'found' | 'made' | 'changed';
  detail: string;
}

export interface DeployContext {
  directory: string;
  /** Whose folder `.townhall` is meant, where the project is a kept copy. The same when absent. */
  cityDirectory?: string | undefined;
  /** The environment of whoever deploys. */
  env: Readonly<Record<string, string | undefined>>;
  /** Whether the gateway gets the key from it. */
  isForwarded(key: string): boolean;
  /** Runs the entry of a project in a process of its own; throws with the entry's words. */
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
  /** The declared address for users, or null where they reach it as this machine does. */
  baseUrl: string | null;
  /** The PostgreSQL that the City works on, or null for the embedded database. */
  database: { url: string; name: string; mustExist: boolean } | null;
  /** Folders to be there before the start. */
  folders: readonly string[];
  running: SupervisorStatus | null;
  state: CityState | null;
  /** The whole environment of the gateway. */
  gatewayEnv: Readonly<Record<string, string>>;
  lines: readonly PlanLine[];
}

const defaultPort = 43127;

/** What is known of a project and of what it has running, without looking further. */
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
    host: given(env['HOST']) ?? deployment.host ?? '0.0.0.0',
    port: readPort(given(env['PORT'])) ?? deployment.port ?? defaultPort,
  };
  return { folder, declaration, address, running, state };
}

/** Throws in words that name what to repair. */
export async function makePlan(context: DeployContext): Promise<Plan> {
  const directory = resolve(context.directory);
  const { folder, declaration, address, running, state } = await survey({ ...context, directory });
  const version = await readPackageVersion(directory);
  const services = await context.inspect(directory, forwardedEnv(context, []));
  const { env, log } = context;
  const { deployment } = declaration;
  const baseUrl = given(env['TOWNHALL_CITY_BASE_URL']) ?? deployment.baseUrl ?? null;
  const database = databaseOf(declaration, given(env['DATABASE_URL']));
  const databasePath = folder.dataPath(embeddedName(declaration));
  const storage = deployment.resources.storage;
  const folders = storage === undefined ? [] : [storagePath(folder.root, storage.name)];
  const lines: PlanLine[] = [];
  const note = (what: string, isThere: boolean, detail: string): void =>
    void lines.push({ what, state: isThere ? 'found' : 'made', detail });

  if (database === null) {
    const ignored =
      given(env['DATABASE_URL']) === undefined
        ? ''
        : '; DATABASE_URL is not used, as the declaration asks for this';
    note('database', await exists(databasePath), `embedded, ${databasePath}${ignored}`);
  } else if (database.mustExist) {
    note('database', true, `PostgreSQL, ${placeOfDatabase(database.url)}`);
  } else {
    const { exists: isThere, canCreate, statement } = await lookForDatabase(database.url, database.name, log);
    if (!isThere && !canCreate) throw new Error(mayNot(database.name, statement));
    note('database', isThere, `PostgreSQL, ${placeOfDatabase(database.url)}`);
  }
  const { queue } = deployment.resources;
  if (queue !== undefined) note('queue', running !== null, `pg-boss in that database, ${queue.name}`);
  if (storage !== undefined)
    note(
      'storage',
      await exists(storagePath(folder.root, storage.name)),
      `${storagePath(folder.root, storage.name)}, public as ${storage.publicUrlPrefix}`,
    );
  const bound = running?.url === null || running === null ? null : running;
  note(
    'supervisor',
    bound !== null,
    bound === null
      ? 'a process that stays and holds the address'
      : `process ${bound.pid}, version ${bound.version}`,
  );
  note(
    'address',
    bound !== null && sameAddress(state, address),
    `${address.host}:${address.port === 0 ? 'a free port' : address.port}${baseUrl === null ? '' : `, for users ${baseUrl}`}`,
  );
  lines.push({ what: 'version', state: 'changed', detail: `${version.current} to ${version.next}` });

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
    lines,
    gatewayEnv: gatewayEnvironment(context, { services, folder, address, baseUrl, database, databasePath }),
  };
}

/** The settings of the gateway: what is passed on, and what the deployment decides. */
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
    ...passed
  } = forwardedEnv(
    context,
    services.flatMap((service) => service.env),
  );
  return {
    ...passed,
    HOST: address.host,
    PORT: String(address.port),
    ...(baseUrl === null ? {} : { TOWNHALL_CITY_BASE_URL: baseUrl }),
    ...(database === null ? { DATABASE_PATH: databasePath } : { DATABASE_URL: database.url }),
    STORAGE_PATH: passed['STORAGE_PATH'] ?? folder.mediaPath,
    JOURNAL_PATH: passed['JOURNAL_PATH'] ?? folder.journalPath,
  };
}

// Paths mean what they mean to whoever deploys, and not in the folder that the gateway runs in.
const pathKeys = [
  'MODELS_FILE',
  'STORAGE_PATH',
  'JOURNAL_PATH',
  'TOWNHALL_MASTER_KEY_FILE',
  'TOWNHALL_MASTER_KEY_PREVIOUS_FILE',
];

/** What of the environment a gateway gets, with the keys that its services ask for. */
export function forwardedEnv(
  { env, isForwarded }: Pick<DeployContext, 'env' | 'isForwarded'>,
  asked: readonly string[],
): Record<string, string> {
  const wanted = new Set(asked);
  const passed: Record<string, string> = {};
  for (const [key, value] of Object.entries(env)) {
    if (value === undefined || value === '' || !(wanted.has(key) || isForwarded(key))) continue;
    passed[key] = pathKeys.includes(key) ? resolve(value) : value;
  }
  passed['PATH'] ??= ['/usr/local/bin', '/usr/bin', '/bin'].join(delimiter);
  return passed;
}

/** The PostgreSQL that a City works on; null where its database is embedded. */
export function databaseOf({ deployment }: Declaration, url: string | undefined): Plan['database'] {
  const declared = deployment.resources.database;
  if (declared?.type === 'embedded') return null;
  if (declared?.type === 'postgres') {
    if (url === undefined)
      throw new Error(
        `The declaration asks for a PostgreSQL database, "${declared.name}"; set DATABASE_URL to the server that it belongs on, such as postgres://user:password@127.0.0.1:5432/postgres`,
      );
    requireUrl(url);
    return { url: databaseUrl(url, declared.name), name: declared.name, mustExist: false };
  }
  if (url === undefined) return null;
  requireUrl(url);
  return { url, name: new URL(url).pathname.slice(1), mustExist: true };
}

/** What the embedded database of a City is called. */
export function embeddedName({ name, deployment }: Declaration): string {
  return deployment.resources.database?.name ?? `${name}-db`;
}

function requireUrl(url: string): void {
  if (!URL.canParse(url) || !/^postgres(?:ql)?:$/.test(new URL(url).protocol))
    throw new Error(
      'DATABASE_URL must be the address of a PostgreSQL, such as postgres://user:password@127.0.0.1:5432/postgres',
    );
}

function readPort(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (!(port <= 65_535)) throw new Error(`PORT takes a whole number from 0 to 65535, not "${text}".`);
  return port;
}

function sameAddress(state: CityState | null, { host, port }: Plan['address']): boolean {
  return state !== null && state.host === host && (port === 0 || state.port === port);
}

/** The address at which a City that runs, or would run, is reached on this machine. */
export function reachedAt({ running, state, address }: Pick<Plan, 'running' | 'state' | 'address'>): string {
  return running?.url ?? state?.url ?? localUrl(address.host, address.port);
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}

function given(text: string | undefined): string | undefined {
  return text === undefined || text === '' ? undefined : text;
}
