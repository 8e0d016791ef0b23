// A server with the identity services (Bureaus, accounts, administrators, directory) on its own
// database. The contract is reduced to their operations; everything else is real.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import {
  accounts,
  accountsStores,
  type Accounts,
  type AccountsOptions,
} from '../../../src/gateway/accounts/index.ts';
import { admin, adminStore, type Admin, type AdminOptions } from '../../../src/gateway/admin/index.ts';
import type { AuditEntry } from '../../../src/gateway/audit/index.ts';
import { bureaus, bureausStore, type Bureaus } from '../../../src/gateway/bureaus/index.ts';
import { creditsStore } from '../../../src/gateway/credits/index.ts';
import { directory } from '../../../src/gateway/directory.ts';
import { scopeOperations } from '../../../src/contract/gateway/operations.gen.ts';
import { identityOfScheme, type Identity } from '../../../src/gateway/identity.ts';
import { mail } from '../../../src/gateway/mail.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { createContract } from '../../../src/kernel/contract/contract.ts';
import type { Database } from '../../../src/kernel/data/database.ts';
import { createLog, type Log } from '../../../src/kernel/log.ts';
import { createRedactor, parseToken } from '../../../src/kernel/secrets/secret.ts';
import { createServer } from '../../../src/kernel/http/server.ts';
import { testDatabase } from '../../support/databases.ts';
import { dumpTables } from '../stored-text.ts';

/**
 * A member of an answer, readable as text and as object; a test that expects the wrong type fails.
 */
export type Json = string & { readonly [name in Member]: Json };
type Member =
  | 'error'
  | 'code'
  | 'param'
  | 'message'
  | 'items'
  | 'login_id'
  | 'user'
  | 'user_id'
  | 'user_token'
  | 'expires_at'
  | 'bureau'
  | 'bureau_id'
  | 'session_token'
  | 'outcome'
  | 'inputs'
  | 'status'
  | 'url'
  | 'user_code'
  | 'token_id'
  | 'next_cursor'
  | 'verification_id'
  | 'token'
  | 'models'
  | 'name'
  | 'email'
  | 'revoked'
  | 'state'
  | 'kind'
  | 'external_id'
  | 'display_name'
  | 'avatar_url'
  | 'id';

export interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: Json;
  /** The raw body, for pages. */
  text: string;
}

export interface CallOptions {
  token?: string;
  /** A string is sent as it is, anything else as JSON. */
  body?: unknown;
  headers?: Record<string, string>;
}

export interface World {
  url: string;
  database: Database;
  bureaus: Bureaus;
  accounts: Accounts;
  admin: Admin;
  /** Every line of the log so far. */
  logLines: string[];
  /** Entries that the audit log received. */
  auditEntries: AuditEntry[];
  /** Environment of the declared keys; a test may change it at any time. */
  env: Record<string, string | undefined>;
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  /** Creates the administrator and resolves with a session's token. */
  logInAdmin(): Promise<string>;
  /** Shifts the database's clock; only in a world with `canShiftClock`. */
  shiftClock(interval: string): Promise<void>;
  /**
   * Every text and binary column of every table; binary values in hexadecimal, base64 and as text.
   */
  dump(): Promise<string>;
  close(): Promise<void>;
}

export interface WorldOptions {
  /** Limits the database to one connection, because each connection has its own clock. */
  canShiftClock?: boolean;
  localLogin?: boolean;
  env?: Record<string, string>;
  accounts?: Partial<AccountsOptions>;
  /** Null when the server's public address is not configured. */
  baseUrl?: null;
  admin?: Partial<AdminOptions>;
  ready?: () => Promise<void>;
}

const administrator = { admin_id: 'admin', password: 'a rather long secret' };
const operationPrefixes = ['accounts.', 'admin.', 'directory.'];

export async function startWorld(options: WorldOptions = {}): Promise<World> {
  // On the embedded engine, all statements share one session; on a busy machine they wait longer for it.
  const limits = {
    queueMs: 15_000,
    ...(options.canShiftClock === true ? { maxConnections: 1 } : {}),
  };
  const { database, close: closeDatabase } = await testDatabase({ limits });
  const logLines: string[] = [];
  const log = createLog({ level: 'debug', redactor: createRedactor(), write: (line) => logLines.push(line) });
  const env: Record<string, string | undefined> = { ...options.env };
  const mailer = mail({ env: { get: (key) => env[key] } });
  const listener: { url: string | null } = { url: null };
  const services = createServices(options, { database, log, env, mailer, listener });
  const server = createServer({
    contract: createContract<Identity>({
      definition: services.definition,
      handlers: services.handlers,
      identities: identityOfScheme,
      identify: async (bearer) =>
        parseToken(bearer) === 'adm' ? services.admin.identify(bearer) : services.accounts.identify(bearer),
      guest: { kind: 'guest' },
      validateResponses: true,
    }),
    log,
    clock: systemClock,
    surface: 'gateway',
  });
  const { url, port } = await server.listen({ host: '127.0.0.1', port: 0 });
  listener.url = url;
  await services.bureaus.ensureLocal(url);

  const call: World['call'] = (method, path, request) => sendRequest(port, method, path, request);
  return {
    url,
    database,
    bureaus: services.bureaus,
    accounts: services.accounts,
    admin: services.admin,
    logLines,
    auditEntries: services.auditEntries,
    env,
    call,
    async logInAdmin() {
      await services.admin.setup(administrator.admin_id, administrator.password);
      return (await call('POST', '/v1/admin/login', { body: administrator })).body.session_token;
    },
    async shiftClock(interval) {
      if (options.canShiftClock !== true) throw new Error('Start this world with canShiftClock: true.');
      await database.sql`select set_config('townhall.clock_shift', ${interval}, false)`;
    },
    dump: () => dumpTables(database.sql, ['gateway']),
    async close() {
      await server.close({ drainMs: 1_000 });
      await services.accounts.close?.();
      mailer.close();
      await services.admin.close?.();
      await closeDatabase();
    },
  };
}

interface ServiceParts {
  database: Database;
  log: Log;
  env: World['env'];
  mailer: ReturnType<typeof mail>;
  /** The server's address once it listens. */
  listener: { url: string | null };
}

/** The identity services with their handlers and the part of the contract that they serve. */
function createServices(options: WorldOptions, { database, log, env, mailer, listener }: ServiceParts) {
  const changes = { bump: async () => undefined, generation: () => null };
  const bureauService = bureaus({
    store: bureausStore(database),
    audit: { record: async () => undefined },
    changes,
    findTokenOwner: async () => null,
    log,
  });
  const auditEntries: AuditEntry[] = [];
  const balances = creditsStore(database);
  const accountStores = accountsStores(database, bureauService);
  const administrators = adminStore(database);
  const accountService = accounts({
    stores: accountStores,
    bureaus: bureauService,
    log,
    clock: systemClock,
    fetch: (input, init) => fetch(input, init),
    env: { get: (key) => env[key] },
    mail: mailer,
    audit: { record: async (_tx, entry) => void auditEntries.push(entry) },
    changes,
    credits: {
      openAccount: (tx, { userId, bureauId }) => balances.openAccount(tx, userId, bureauId),
      openKey: balances.openKey,
      keys: balances.keys,
    },
    machines: { lockLive: (tx, credentialId) => administrators.lockLiveMachine(tx, credentialId) },
    localLogin: () => options.localLogin ?? true,
    baseUrl: () => (options.baseUrl === null ? null : listener.url),
    ...options.accounts,
  });
  const adminService = admin({
    scopeOperations,
    store: administrators,
    tokens: accountStores.accounts,
    audit: { record: async () => undefined, note: async () => undefined },
    changes,
    bureaus: bureauService,
    log,
    ...options.admin,
  });
  const definition = identityContract();
  const directoryService = directory({
    services: () =>
      [bureauService, accountService, adminService].map(({ name, title, env: keys }) => ({
        id: name,
        title,
        env: keys,
      })),
    ready: options.ready ?? (() => database.ping()),
    contract: definition,
  });
  return {
    bureaus: bureauService,
    accounts: accountService,
    admin: adminService,
    auditEntries,
    definition,
    handlers: { ...accountService.handlers, ...adminService.handlers, ...directoryService.handlers },
  };
}

// Uses node:http, because fetch does not let a test choose Host and Origin.
async function sendRequest(
  port: number,
  method: string,
  path: string,
  { token, body, headers = {} }: CallOptions = {},
): Promise<Answer> {
  const payload = typeof body === 'string' || body === undefined ? body : JSON.stringify(body);
  const request = httpRequest({
    host: '127.0.0.1',
    port,
    method,
    path,
    headers: {
      ...(payload === undefined ? {} : { 'content-type': 'application/json' }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...headers,
    },
  });
  request.end(payload);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += String(chunk);
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: (isJson(response.headers) ? JSON.parse(text || '{}') : {}) as Json,
    text,
  };
}

function isJson(headers: Answer['headers']): boolean {
  return String(headers['content-type']).startsWith('application/json');
}

/** The contract with only the operations of the identity services. */
function identityContract(): object {
  const file = new URL('../../../src/contract/gateway/bundle.json', import.meta.url);
  const bundle = JSON.parse(readFileSync(file, 'utf8')) as {
    paths: Record<string, Record<string, { operationId?: string }>>;
  };
  const ownPaths = Object.entries(bundle.paths).filter(([, pathItem]) =>
    Object.values(pathItem).some(({ operationId = '' }) =>
      operationPrefixes.some((prefix) => operationId.startsWith(prefix)),
    ),
  );
  return { ...bundle, paths: Object.fromEntries(ownPaths) };
}

/** A new verifier and its challenge (PKCE, RFC 7636). */
export function createProof(): { verifier: string; challenge: string } {
  const verifier = randomBytes(32).toString('base64url');
  return { verifier, challenge: createHash('sha256').update(verifier).digest('base64url') };
}
