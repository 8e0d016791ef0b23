// A whole gateway for one test file, on a free port with its own database, and clients for each
// identity.
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGatewayClient, type GatewayClient } from '@townhall/gateway';
import { createGateway, type Gateway } from '../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../src/gateway/config.ts';
import type { ServiceDefinition } from '../../src/index.ts';
import { systemClock, type Clock } from '../../src/kernel/clock.ts';
import type { Database, DatabaseLimits, Sql } from '../../src/kernel/data/database.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { databaseEnv, makeDatabase, makeServerDatabase, type DatabasePlace } from './databases.ts';

/** The administrator of test gateways with `withAdmin`. */
export const testAdministrator = { adminId: 'admin', password: 'a password for tests only' };

/** The master key of test gateways unless a test sets one. */
export const testMasterKey = Buffer.alloc(32, 'test key ').toString('base64');

export interface GatewayWorldOptions {
  /** Settings and provider keys, as in the environment; database and port are set here. */
  env?: Record<string, string>;
  /**
   * Creates an administrator and logs in, which takes two password hashes, so it is off by default.
   */
  withAdmin?: boolean;
  clock?: Clock;
  /** Services of a project. */
  services?: readonly ServiceDefinition[];
  /** A shared database, such as for a second gateway on one PostgreSQL. Its creator removes it. */
  place?: Pick<DatabasePlace, 'options'>;
}

export interface GatewayWorld {
  url: string;
  gateway: Gateway;
  database: Database;
  sql: Sql;
  /** A client without a credential. */
  guest: GatewayClient;
  /** A client with a token of the Bureau `local`'s one user. */
  user: GatewayClient;
  userToken: string;
  /** A client with any token. */
  as(token: string): GatewayClient;
  /** An administrator's client and token; throws without `withAdmin`. */
  admin: GatewayClient;
  adminToken: string;
  /** All log lines, at debug level. */
  logLines: string[];
  close(): Promise<void>;
}

/**
 * Starts a gateway. `close` removes all of its data. Responses are validated against the contract.
 */
export async function startGateway(options: GatewayWorldOptions = {}): Promise<GatewayWorld> {
  const ownPlace = options.place === undefined ? await makeServerDatabase() : undefined;
  const place = options.place ?? ownPlace;
  if (place === undefined) throw new Error('The gateway has no database.');
  const folder = join(tmpdir(), `townhall-gateway-${randomUUID()}`);
  const logLines: string[] = [];
  let gateway: Gateway | undefined;
  const close = async (): Promise<void> => {
    await gateway?.close();
    await rm(folder, { recursive: true, force: true });
    await ownPlace?.remove();
  };
  try {
    gateway = await openGateway(options, {
      env: environmentOf(options, place, folder),
      logLines,
      databaseLimits: place.options.limits ?? {},
      ...(ownPlace?.database === undefined ? {} : { database: ownPlace.database }),
    });
    return await openWorld(gateway, options, { logLines, close });
  } catch (error) {
    await close();
    throw error;
  }
}

/** The settings of the gateway. The folder is for its storage, and for its journal on PostgreSQL. */
function environmentOf(
  { withAdmin, env }: GatewayWorldOptions,
  place: Pick<DatabasePlace, 'options'>,
  folder: string,
): Record<string, string> {
  return {
    HOST: '127.0.0.1',
    PORT: '0',
    LOG_LEVEL: 'debug',
    // Tests send from one address and faster than people do, so rate limits are off unless a test
    // turns them on.
    RATE_LIMIT_USER: 'off',
    RATE_LIMIT_GUEST: 'off',
    RATE_LIMIT_ADMIN: 'off',
    RATE_LIMIT_LOGIN: 'off',
    TOWNHALL_MASTER_KEY: testMasterKey,
    ...databaseEnv(place.options),
    // An embedded database keeps the journal in its own folder.
    ...('url' in place.options ? { JOURNAL_PATH: join(folder, 'journal') } : {}),
    STORAGE_PATH: join(folder, 'storage'),
    ...(withAdmin ? { ADMIN_ID: testAdministrator.adminId, ADMIN_PASSWORD: testAdministrator.password } : {}),
    ...env,
  };
}

interface OpenOptions {
  env: Record<string, string>;
  /** Receives the lines of the log. */
  logLines: string[];
  databaseLimits: Partial<DatabaseLimits>;
  database?: Database;
}

function openGateway(
  { clock = systemClock, services = [] }: GatewayWorldOptions,
  { env, logLines, ...databaseOptions }: OpenOptions,
): Promise<Gateway> {
  const redactor = createRedactor();
  const config = readGatewayConfig({}, env);
  const log = createLog({ level: config.logLevel, redactor, write: (line) => void logLines.push(line) });
  return createGateway(config, {
    env,
    log,
    redactor,
    clock,
    validateResponses: true,
    services,
    ...databaseOptions,
  });
}

/** Listens, and creates the clients of the world with their credentials. */
async function openWorld(
  gateway: Gateway,
  { withAdmin }: GatewayWorldOptions,
  { logLines, close }: Pick<GatewayWorld, 'logLines' | 'close'>,
): Promise<GatewayWorld> {
  await ensureLocalBureau(gateway.database);
  const { url } = await gateway.listen();
  const { userToken } = await gateway.issueLocalToken();
  const clientOf = (token: string): GatewayClient => createGatewayClient({ baseUrl: url, token });
  const guest = createGatewayClient({ baseUrl: url });
  const adminToken = withAdmin ? await logIn(guest) : undefined;
  return {
    url,
    gateway,
    database: gateway.database,
    sql: gateway.database.sql,
    guest,
    user: clientOf(userToken),
    userToken,
    as: clientOf,
    get adminToken() {
      return requireAdmin(adminToken);
    },
    get admin() {
      return clientOf(requireAdmin(adminToken));
    },
    logLines,
    close,
  };
}

function requireAdmin(token: string | undefined): string {
  if (token === undefined) throw new Error('This world has no administrator; start it with withAdmin.');
  return token;
}

// The local edition creates this Bureau itself; on PostgreSQL the tests use the same user in the
// same Bureau.
async function ensureLocalBureau({ sql }: Database): Promise<void> {
  await sql`
    insert into gateway.bureaus_records (bureau_id, name, server_url)
    values ('local', 'Local', 'http://127.0.0.1:43127') on conflict do nothing`;
}

async function logIn(guest: GatewayClient): Promise<string> {
  const { adminId, password } = testAdministrator;
  const { session_token } = await guest.admin.login({ admin_id: adminId, password });
  return session_token;
}

/**
 * Two replicas on one database. The embedded engine serves one process, so there both are the same
 * gateway.
 */
export async function startReplicas(
  env: Record<string, string>,
): Promise<{ first: GatewayWorld; other: GatewayWorld; close(): Promise<void> }> {
  const place = await makeDatabase();
  const firstGateway = await startGateway({ withAdmin: true, place, env });
  const otherGateway =
    'url' in place.options ? await startGateway({ withAdmin: true, place, env }) : firstGateway;
  return {
    first: firstGateway,
    other: otherGateway,
    async close() {
      if (otherGateway !== firstGateway) await otherGateway.close();
      await firstGateway.close();
      await place.remove();
    },
  };
}
